//! Notices changes of the addresses of enrolled pods.
//!
//! For each pod there is a netlink socket in its namespace on which the kernel reports address changes
//! (rtnetlink(7)). The reports themselves are discarded: the holder reads all addresses again, so that nothing is
//! lost when the socket buffer overflows. One epoll descriptor stands for all of these sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::Timespec;

use crate::PodId;
use crate::namespace::within;

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR` (`linux/rtnetlink.h`).
const GROUPS: u32 = 0x10 | 0x100;
/// Receive buffer of a netlink socket in bytes. It can be small, since one message is enough.
const QUEUE: usize = 4_096;
/// More messages than fit into the receive buffer.
const MOST: usize = 64;
/// Limit of pods reported per call; others follow with the next call.
const BATCH: usize = 64;

/// The watches of all pods.
#[derive(Debug)]
pub(super) struct Watches {
    epoll: OwnedFd,
}

/// The watch of one pod, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    socket: Socket,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watches { epoll })
    }

    /// Watches a pod's namespace. Changes from now on are noticed.
    pub(super) fn add(&self, pod: PodId, netns: BorrowedFd<'_>) -> io::Result<Watch> {
        let socket = within(netns, || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.set_rx_buf_sz(QUEUE)?;
            socket.bind(&SocketAddr::new(0, GROUPS))?;
            io::Result::Ok(socket)
        })??;
        epoll::add(&self.epoll, &socket, key(pod), once())?;
        Ok(Watch { socket })
    }

    /// The pods whose addresses have changed. Each is reported once, until it is watched [again](Self::again).
    pub(super) fn changed(&self) -> Vec<PodId> {
        let mut events = Vec::with_capacity(BATCH);
        let at_once = Timespec::default();
        // On an error the events stay, and are reported the next time.
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&at_once),
        );
        let pods = events.iter().map(|event: &epoll::Event| event.data.u64());
        pods.filter_map(|pod| u32::try_from(pod).ok().map(PodId))
            .collect()
    }

    /// Discards the changes so far, and notices those from now on. Call it before addresses are read.
    pub(super) fn again(&self, pod: PodId, watch: &Watch) -> io::Result<()> {
        let mut ignored = [0; 64];
        for _ in 0..MOST {
            // Other errors, such as an overflow of the buffer, make no difference.
            if recv(&watch.socket, &mut ignored, RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
                break;
            }
        }
        Ok(epoll::modify(&self.epoll, &watch.socket, key(pod), once())?)
    }
}

impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn key(pod: PodId) -> epoll::EventData {
    epoll::EventData::new_u64(pod.0.into())
}

/// One-shot events: a pod whose addresses change all the time must not keep the holder busy.
fn once() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}
