//! The one timer of a Worker: when to sweep next.
//!
//! A timer of the kernel's own (timerfd_create(2)), set a few times a second, rather than one of
//! the runtime's: with those, every wait for events has a time-out, and the kernel sets up and
//! takes down a timer for each of them, twice in a request.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Wakes the task that waits for it at a planned time.
pub(super) struct Timer {
    fd: AsyncFd<OwnedFd>,
    due: Option<Instant>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[allow(
            unsafe_code,
            reason = "the runtime asks for a promise about the descriptor"
        )]
        // SAFETY: the descriptor is open, and stays the same open one for as long as the
        // registration lives: an `OwnedFd` closes it only when it is dropped, and nothing takes it
        // out of the `AsyncFd` before.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Timer { fd, due: None })
    }

    /// Whether the planned time has come. Asked once for it, the answer is yes once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }

    /// Wakes the caller at `next` or before, if not planned already.
    pub(super) fn plan(&mut self, now: Instant, next: Instant, cx: &mut Context<'_>) {
        if self.due.is_some_and(|due| due <= next) {
            return;
        }
        // A zero time would stop the timer.
        let wait = next
            .saturating_duration_since(now)
            .max(Duration::from_micros(1));
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: timespec(wait),
        };
        match timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec) {
            Ok(_) => self.due = Some(next),
            // The times are sound, and the descriptor is ours: it cannot fail.
            Err(error) => tracing::error!(%error, "the worker's timer cannot be set"),
        }
        // Setting it took back what it had to say; ask to be woken when it speaks again.
        while let Poll::Ready(Ok(mut guard)) = self.fd.poll_read_ready(cx) {
            guard.clear_ready();
        }
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}
