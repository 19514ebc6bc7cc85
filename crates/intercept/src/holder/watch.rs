//! Addresses that come and go while a pod is enrolled.
//!
//! Each pod has a socket in its namespace at which the kernel says that something about addresses has changed
//! (rtnetlink(7)). What it says is not read: the holder then reads all addresses again, so that nothing is
//! lost when the kernel had more to say than fits. One descriptor stands for all of these sockets.

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
/// What the kernel may keep for us of one pod, in bytes: that there is anything is enough.
const QUEUE: usize = 4_096;
/// More messages than fit into that.
const MOST: usize = 64;
/// Pods that are noticed at once; others are the next time.
const BATCH: usize = 64;

/// All pods that are watched.
#[derive(Debug)]
pub(super) struct Watches {
    epoll: OwnedFd,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    socket: Socket,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watches { epoll })
    }

    /// Watches a pod's namespace. What changes from now on is noticed.
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

    /// The pods whose addresses have changed. Each is named once, until it is watched [again](Self::again).
    pub(super) fn changed(&self) -> Vec<PodId> {
        let mut events = Vec::with_capacity(BATCH);
        let at_once = Timespec::default();
        // What cannot be waited for now is there the next time.
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&at_once),
        );
        let pods = events.iter().map(|event: &epoll::Event| event.data.u64());
        pods.filter_map(|pod| u32::try_from(pod).ok().map(PodId))
            .collect()
    }

    /// Notices changes from now on, no others: before addresses are read.
    pub(super) fn again(&self, pod: PodId, watch: &Watch) -> io::Result<()> {
        let mut ignored = [0; 64];
        for _ in 0..MOST {
            // That it had more to say than fits is an error, and makes no difference.
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

/// Once: a pod whose addresses change all the time does not keep us from anything else.
fn once() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}
