//! Captures the packets on the links of a network namespace.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// All protocols, in network byte order (packet(7), ETH_P_ALL).
const EVERYTHING: u16 = 3u16.to_be();
/// Bytes of each packet that are read: its headers.
const LOOKED_AT: usize = 256;
/// Limit of the bytes of payloads that are kept.
const MOST_KEPT: usize = 1 << 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// TCP and UDP packets from one host to another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    /// Payload bytes, without headers.
    pub(crate) payload: u64,
}

/// The captured traffic.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    between: BTreeMap<(IpAddr, IpAddr), Traffic>,
    /// The beginnings of payloads, one behind the other.
    beginnings: Vec<u8>,
}

impl Heard {
    /// Traffic from or to any of these.
    pub(crate) fn of(&self, hosts: &[IpAddr]) -> Traffic {
        let is_meant = |(from, to): &(IpAddr, IpAddr)| hosts.contains(from) || hosts.contains(to);
        let meant = self.between.iter().filter(|(ends, _)| is_meant(ends));
        meant.fold(Traffic::default(), |sum, (_, one)| Traffic {
            packets: sum.packets + one.packets,
            payload: sum.payload + one.payload,
        })
    }

    /// All captured traffic.
    pub(crate) fn all(&self) -> Traffic {
        let ends: Vec<IpAddr> = self.between.keys().map(|ends| ends.0).collect();
        self.of(&ends)
    }

    /// Whether the beginning of a packet's payload holds these bytes.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        self.beginnings
            .windows(bytes.len())
            .any(|found| found == bytes)
    }

    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let Packet {
            ends,
            protocol,
            rest,
            length,
        } = ip(frame)?;
        let header = match protocol {
            TCP => usize::from(*rest.get(12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
        let traffic = self.between.entry(ends).or_default();
        traffic.packets += 1;
        traffic.payload += length.saturating_sub(header) as u64;
        if self.beginnings.len() < MOST_KEPT {
            self.beginnings
                .extend(rest.get(header..).unwrap_or_default());
        }
        Some(())
    }
}

/// The parsed IP header of a packet.
struct Packet<'f> {
    ends: (IpAddr, IpAddr),
    protocol: u8,
    /// The captured bytes after the IP header.
    rest: &'f [u8],
    /// The full length after the IP header.
    length: usize,
}

fn ip(frame: &[u8]) -> Option<Packet<'_>> {
    let packet = frame.get(14..)?;
    let number = |at: usize| {
        let bytes = packet.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
    };
    match frame.get(12..14)? {
        [0x08, 0x00] => {
            let header = usize::from(packet.first()? & 15) * 4;
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(bytes).into())
            };
            let ends = (address(12)?, address(16)?);
            Some(Packet {
                ends,
                protocol: *packet.get(9)?,
                rest: packet.get(header..)?,
                length: number(2)?.saturating_sub(header),
            })
        }
        [0x86, 0xdd] => {
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(bytes).into())
            };
            let ends = (address(8)?, address(24)?);
            Some(Packet {
                ends,
                protocol: *packet.get(6)?,
                rest: packet.get(40..)?,
                length: number(4)?,
            })
        }
        _ => None,
    }
}

/// Captures on every link of a namespace, with a thread of its own.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

impl Capture {
    pub(crate) fn start(netns: &Path) -> Capture {
        let netns = File::open(netns).expect("a namespace");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (listening, listens) = sync_channel(1);
        let thread = thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(netns.as_fd(), network).expect("entered");
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let protocol = NonZeroU32::new(EVERYTHING.into()).map(Protocol::from_raw);
            let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol);
            let socket = socket.expect("a socket for packets");
            listening.send(()).expect("the test waits");
            listen(&socket, &stopped)
        });
        listens.recv().expect("it listens");
        Capture { stop, thread }
    }

    pub(crate) fn stop(self) -> Heard {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("what was heard")
    }
}

fn listen(socket: &OwnedFd, stopped: &AtomicBool) -> Heard {
    let mut heard = Heard::default();
    let mut frame = [0; LOOKED_AT];
    loop {
        // Loaded before the queue is emptied, so that packets from before the stop are captured.
        let is_last = stopped.load(Ordering::Relaxed);
        while let Ok((length, _)) = recv(socket, &mut frame[..], RecvFlags::empty()) {
            heard.take(&frame[..length.min(LOOKED_AT)]);
        }
        if is_last {
            return heard;
        }
        let wait = Timespec::try_from(Duration::from_millis(20)).expect("a time");
        let _interrupted = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait));
    }
}
