//! Connections that ended while they waited.
//!
//! A client that connects and resets leaves a connection in the listener's queue, which the kernel hands over like any
//! other. Many that come together are looked at with one system call before anything is begun for them; few are not,
//! since what they cost is less than that call would cost all others.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// So many are looked at together.
const MANY: usize = 8;
/// Without waiting.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Drops what its client has reset, if there are many. What has no socket to look at stays. Returns how many were
/// dropped.
pub(crate) fn leave_out_reset<T>(
    batch: &mut Vec<T>,
    socket: impl Fn(&T) -> Option<BorrowedFd<'_>>,
) -> u64 {
    if batch.len() < MANY {
        return 0;
    }
    // Of what is asked for nothing, it is said nevertheless whether it has failed or has ended both ways.
    let mut polled: Vec<PollFd<'_>> = batch
        .iter()
        .filter_map(&socket)
        .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::empty()))
        .collect();
    // What cannot be looked at is taken for alive: its end is found out when it is read from.
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
