use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::*;
use crate::{namespace, routes};

/// Arguments of `ip` that route `10.96.0.0/16` and `fd00::/64` into silence, without answer or error: the far end of
/// the link ignores the packets, because their destination is another host's link address.
const SILENCE: &str = "link add silence type veth peer name far
link set far up
link set silence arp off up
address add 10.0.0.9/32 dev lo
address add fd01::9/128 dev lo
route add 10.96.0.0/16 dev silence
route add fd00::/64 dev silence";

/// A namespace with these routes. `None`, reported as a skip, where it cannot be created.
pub(crate) fn silence() -> Option<File> {
    if !rustix::process::geteuid().is_root() {
        heddle_skips::skipped("namespaces are made by root");
        return None;
    }
    let netns = File::from(namespace::create().unwrap());
    routes::turn_on_loopback(netns.as_fd()).unwrap();
    for line in SILENCE.lines() {
        let status = within(netns.as_fd(), || {
            Command::new("ip").args(line.split(' ')).status()
        });
        assert!(status.unwrap().unwrap().success(), "{line}");
    }
    Some(netns)
}

/// Starts a connection attempt from that namespace.
pub(crate) fn dial(netns: &File, to: &str) -> OwnedFd {
    let to: SocketAddr = to.parse().unwrap();
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let dialled = within(netns.as_fd(), || {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Err(Errno::INPROGRESS) => Ok(socket),
            other => panic!("{to}: {other:?}"),
        }
    });
    dialled
        .unwrap()
        .unwrap_or_else(|error: Errno| panic!("{to}: {error}"))
}

/// The result of a connection attempt so far.
pub(crate) fn fate(dial: &OwnedFd) -> Result<(), Errno> {
    socket_error(dial).unwrap()
}

#[test]
fn a_dial_that_is_not_answered_is_ended_and_no_other() {
    let Some(netns) = silence() else { return };
    let services = ["10.96.0.1:80", "[fd00::1]:80", "[::ffff:10.96.0.3]:80"];
    let others = ["10.96.0.2:80", "[fd00::1]:81"];
    let lost: Vec<OwnedFd> = services.map(|to| dial(&netns, to)).into();
    let kept: Vec<OwnedFd> = others.map(|to| dial(&netns, to)).into();
    let is_lost = |to: SocketAddr| {
        let to = to.to_string();
        // A dual-stack socket that connects to an IPv4 address is listed with that address.
        services.contains(&to.as_str()) || to == "10.96.0.3:80"
    };
    assert_eq!(end(netns.as_fd(), is_lost).unwrap(), 3);
    for dial in &lost {
        assert_eq!(fate(dial), Err(Errno::CONNABORTED));
    }
    for dial in &kept {
        assert_eq!(fate(dial), Ok(()));
    }
    assert_eq!(end(netns.as_fd(), is_lost).unwrap(), 0);
}

#[test]
fn what_is_no_message_is_none() {
    let heard = |bytes: &[u8]| {
        let mut kinds = Vec::new();
        each(bytes, |kind, body| kinds.push((kind, body.len())));
        kinds
    };
    let done = |length: u32| [&length.to_ne_bytes()[..], &3u16.to_ne_bytes(), &[0; 10]].concat();
    assert_eq!(heard(&done(16)), [(NLMSG_DONE, 0)]);
    assert_eq!(heard(&[done(16), done(16)].concat()).len(), 2);
    for cut in [0, 3, 15, 17, u32::MAX] {
        assert_eq!(heard(&done(cut)), [], "{cut}");
    }
    assert_eq!(heard(&[1, 2, 3]), []);
    assert_eq!(Dial::parse(2, &[0; 51]), None);
    assert!(error_of(&[]).is_some());
    assert!(error_of(&[0; 4]).is_none());
}
