//! Finds connections that were reset while they waited.
//!
//! A client that connects and resets leaves a connection in the listener's backlog, and the kernel accepts it like any
//! other. A large batch is checked with one system call before any work begins; a small one is not, since the resets
//! would cost less than the call costs all others.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Smallest batch that is checked.
const MANY: usize = 8;
/// Polls without waiting.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Drops the connections of a large batch that their clients have reset. An item without a socket stays. Returns how
/// many were dropped.
pub(crate) fn leave_out_reset<T>(
    batch: &mut Vec<T>,
    socket: impl Fn(&T) -> Option<BorrowedFd<'_>>,
) -> u64 {
    if batch.len() < MANY {
        return 0;
    }
    // `poll` reports errors and hang-ups even if no events are requested.
    let mut polled: Vec<PollFd<'_>> = batch
        .iter()
        .filter_map(&socket)
        .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::empty()))
        .collect();
    // If `poll` fails, all connections count as alive: a reset is then found by the next read.
    if !matches!(poll(&mut polled, Some(&NOW)), Ok(1..)) {
        return 0;
    }
    let ended: Vec<bool> = polled.iter().map(|polled| has_ended(polled)).collect();
    let mut ended = ended.into_iter();
    let before = batch.len();
    batch.retain(|item| match socket(item) {
        Some(_) => !ended.next().unwrap_or(false),
        None => true,
    });
    (before - batch.len()) as u64
}

/// Whether a connection's client has reset it.
pub(crate) fn is_reset(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    matches!(poll(&mut polled, Some(&NOW)), Ok(1..)) && has_ended(&polled[0])
}

fn has_ended(polled: &PollFd<'_>) -> bool {
    polled.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests;
