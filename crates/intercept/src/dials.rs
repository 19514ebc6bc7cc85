//! Ends connection attempts (dials) of a pod that get no answer.
//!
//! A connection attempt that began before a pod had hooks goes to the address that the program named. At a Service's
//! address only the mesh answers, and hooks see only new attempts. So the kernel would retransmit the SYN for two
//! minutes and more, without an answer. Such an attempt is ended, so that the program can try again.
//!
//! sock_diag(7) lists the connections of a namespace in SYN-SENT, and ends a given one (`SOCK_DESTROY`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as Kernel};

use crate::namespace::within;

#[cfg(test)]
pub(crate) mod tests;

/// Limit of connection attempts checked per namespace: others wait until the kernel gives up.
const MAX_DIALS: usize = 4_096;

/// Message types (linux/sock_diag.h, linux/netlink.h), and their flags.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Sizes in bytes: of the netlink header, of the socket ID, which is at offset 4 of an answer (`inet_diag_msg`), and
/// of a request (`inet_diag_req_v2`, linux/inet_diag.h).
const HEADER: usize = 16;
const NAME: usize = 48;
const REQUEST: usize = 56;
/// `1 << TCP_SYN_SENT` (net/tcp_states.h).
const BEING_OPENED: u32 = 1 << 2;

/// Ends the unanswered connection attempts of a namespace for whose destination `is_lost` is true. Returns their
/// number.
///
/// # Errors
/// Without CAP_NET_ADMIN, or where the kernel cannot do it (CONFIG_INET_DIAG_DESTROY).
pub(crate) fn end(
    netns: BorrowedFd<'_>,
    is_lost: impl Fn(SocketAddr) -> bool,
) -> io::Result<usize> {
    within(netns, || {
        let socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.connect(&Kernel::new(0, 0))?;
        let mut ended = 0;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let family = u8::try_from(family).unwrap_or_default();
            for dial in being_opened(&socket, family)? {
                if is_lost(dial.to) {
                    ended += usize::from(dial.end(&socket, family)?);
                }
            }
        }
        Ok(ended)
    })?
}

/// A connection in SYN-SENT.
#[derive(Debug, PartialEq, Eq)]
struct Dial {
    /// The kernel's ID of the socket (`inet_diag_sockid`).
    name: [u8; NAME],
    to: SocketAddr,
}

impl Dial {
    /// Parses an `inet_diag_msg`.
    fn parse(family: u8, answer: &[u8]) -> Option<Dial> {
        let name: [u8; NAME] = answer.get(4..4 + NAME)?.try_into().ok()?;
        let port = u16::from_be_bytes(name[2..4].try_into().ok()?);
        let address: [u8; 16] = name[20..36].try_into().ok()?;
        let ip = match i32::from(family) {
            libc::AF_INET => {
                let [a, b, c, d, ..] = address;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            _ => Ipv6Addr::from(address).to_canonical(),
        };
        Some(Dial {
            name,
            to: SocketAddr::new(ip, port),
        })
    }

    /// Ends the connection attempt. False when it was already gone.
    fn end(&self, socket: &Socket, family: u8) -> io::Result<bool> {
        let asked = request(
            SOCK_DESTROY,
            NLM_F_REQUEST | NLM_F_ACK,
            family,
            0,
            &self.name,
        );
        socket.send(&asked, 0)?;
        let (said, _) = socket.recv_from_full()?;
        let mut ended = Err(io::ErrorKind::InvalidData.into());
        each(&said, |kind, body| {
            if kind == NLMSG_ERROR {
                ended = error_of(body).map_or(Ok(true), Err);
            }
        });
        match ended {
            // The server has answered, or the program has given up.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            ended => ended,
        }
    }
}

fn being_opened(socket: &Socket, family: u8) -> io::Result<Vec<Dial>> {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    let any = [0; NAME];
    let asked = request(SOCK_DIAG_BY_FAMILY, flags, family, BEING_OPENED, &any);
    socket.send(&asked, 0)?;
    let mut dials = Vec::new();
    let mut done = None;
    while done.is_none() {
        let (said, _) = socket.recv_from_full()?;
        let mut is_empty = true;
        each(&said, |kind, body| {
            is_empty = false;
            match kind {
                NLMSG_DONE => done = Some(Ok(())),
                NLMSG_ERROR => done = Some(error_of(body).map_or(Ok(()), Err)),
                _ if dials.len() < MAX_DIALS => dials.extend(Dial::parse(family, body)),
                _ => {}
            }
        });
        if is_empty {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    done.unwrap_or(Ok(()))?;
    Ok(dials)
}

/// Builds a netlink message with an `inet_diag_req_v2`.
fn request(kind: u16, flags: u16, family: u8, states: u32, name: &[u8; NAME]) -> Vec<u8> {
    let length = u32::try_from(HEADER + REQUEST).unwrap_or_default();
    let tcp = u8::try_from(libc::IPPROTO_TCP).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and port ID: 0, since only one request is open at a time.
    bytes.extend([0; 8]);
    bytes.extend([family, tcp, 0, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(name);
    bytes
}

/// Calls `take` with the type and the body of each message. A truncated message is skipped.
fn each(mut bytes: &[u8], mut take: impl FnMut(u16, &[u8])) {
    while let Some(length) = bytes.first_chunk() {
        let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
        let (Some(kind), Some(body)) = (bytes.get(4..6), bytes.get(HEADER..length)) else {
            return;
        };
        take(u16::from_ne_bytes([kind[0], kind[1]]), body);
        // Messages are aligned to 4 bytes.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The error in a netlink acknowledgement; `None` for success.
fn error_of(body: &[u8]) -> Option<io::Error> {
    let code = body.first_chunk().map(|code| i32::from_ne_bytes(*code));
    match code {
        Some(0) => None,
        Some(code) => Some(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Some(io::ErrorKind::InvalidData.into()),
    }
}
