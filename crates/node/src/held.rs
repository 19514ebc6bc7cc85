//! The proxy's side of the relation to its holder: the values that the holder passes, and the channel.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_model::Cidr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketType;

use crate::exit::Failure;
use crate::user::User;

/// Values that a holder passes to its proxy.
pub(crate) struct HeldBy {
    /// The mesh's address ranges (`true`), and exceptions to them (`false`).
    pub(crate) ranges: Vec<(Cidr, bool)>,
    /// Socket of the holder, for operators.
    pub(crate) holder_socket: PathBuf,
    /// User to run as; `None` to stay the user that started the proxy.
    pub(crate) user: Option<User>,
}

/// The channel to the holder, which is this process's standard input.
///
/// # Errors
/// When standard input is something else: then no holder has started this program.
pub(crate) fn channel() -> Result<OwnedFd, Failure> {
    let stdin = std::io::stdin();
    let kind = rustix::net::sockopt::socket_type(stdin.as_fd());
    if kind != Ok(SocketType::SEQPACKET) {
        return Err(anyhow!("--held is for the proxy that a holder starts: leave it out").into());
    }
    let channel = stdin.as_fd().try_clone_to_owned();
    Ok(channel.context("cannot keep the channel to the holder")?)
}

/// Checks that the holder did not end before the kernel was asked to end this process with it.
///
/// # Errors
/// When the holder is gone.
pub(crate) fn is_there() -> Result<(), Failure> {
    let stdin = std::io::stdin();
    // No event has to be requested: POLLHUP, which says that the other end is gone, is always reported (poll(2)).
    let mut channel = [PollFd::new(&stdin, PollFlags::empty())];
    let at_once = Timespec::default();
    let asked = poll(&mut channel, Some(&at_once));
    asked.context("cannot look at the channel to the holder")?;
    match channel[0].revents().contains(PollFlags::HUP) {
        true => Err(anyhow!("the holder of the pods is gone").into()),
        false => Ok(()),
    }
}
