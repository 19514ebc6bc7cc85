//! The proxy of a holder, from its side: what it is told, and the channel to the holder.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_intercept::Cidr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketType;

use crate::exit::Failure;
use crate::user::User;

/// What a holder of pods tells its proxy.
pub(crate) struct HeldBy {
    /// The addresses of the mesh, and exceptions to that (`false`).
    pub(crate) ranges: Vec<(Cidr, bool)>,
    /// Where the holder is asked.
    pub(crate) holder_socket: PathBuf,
    /// The user that it is to run as; `None`: the one that started it.
    pub(crate) user: Option<User>,
}

/// The channel to the holder, which is this process's standard input.
///
/// # Errors
/// When it is something else: only a holder starts a program so.
pub(crate) fn channel() -> Result<OwnedFd, Failure> {
    let stdin = std::io::stdin();
    let kind = rustix::net::sockopt::socket_type(stdin.as_fd());
    if kind != Ok(SocketType::SEQPACKET) {
        return Err(anyhow!("--held is for the proxy that a holder starts: leave it out").into());
    }
    let channel = stdin.as_fd().try_clone_to_owned();
    Ok(channel.context("cannot keep the channel to the holder")?)
}

/// Makes sure that the holder, whose end this process was to be told, has not ended before that was asked for.
///
/// # Errors
/// When it has.
pub(crate) fn is_there() -> Result<(), Failure> {
    let stdin = std::io::stdin();
    // What is asked for is said of its own: that the other end is gone (poll(2), POLLHUP).
    let mut channel = [PollFd::new(&stdin, PollFlags::empty())];
    let at_once = Timespec::default();
    let asked = poll(&mut channel, Some(&at_once));
    asked.context("cannot look at the channel to the holder")?;
    match channel[0].revents().contains(PollFlags::HUP) {
        true => Err(anyhow!("the holder of the pods is gone").into()),
        false => Ok(()),
    }
}
