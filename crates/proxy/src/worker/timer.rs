//! The only timer of a Worker: when to sweep next.
//!
//! It is a kernel timer (timerfd_create(2)) that is set a few times a second. The runtime's own timers would give every
//! wait for events a timeout, for which the kernel sets up and removes a timer each time, twice per request.

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
    /// The planned time.
    due: Option<Instant>,
    /// The time that the kernel's timer is set to: the planned time, or a later one.
    set: Option<Instant>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[allow(
            unsafe_code,
            reason = "the runtime asks for a promise about the descriptor"
        )]
        // SAFETY: the descriptor is open, and stays the same open descriptor for as long as the registration lives: an
        // `OwnedFd` closes it only when it is dropped, and nothing takes it out of the `AsyncFd` before.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Timer {
            fd,
            due: None,
            set: None,
        })
    }

    /// Whether the planned time has come. Returns true only once for each planned time.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        // The kernel's timer has expired by then, whatever is planned now.
        self.set = self.set.filter(|set| *set > now);
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }

    /// Plans `next`, unless an earlier time is planned already, without setting the kernel's timer. The caller has to
    /// call `is_due` again before it waits for anything.
    pub(super) fn note(&mut self, next: Instant) {
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Plans `next` in the same way, and has the caller woken at the planned time.
    pub(super) fn plan(&mut self, now: Instant, next: Instant, cx: &mut Context<'_>) {
        self.note(next);
        let due = self.due.unwrap_or(next);
        if self.set.is_some_and(|set| set <= due) {
            return;
        }
        // A zero time would disarm the timer.
        let wait = due
            .saturating_duration_since(now)
            .max(Duration::from_micros(1));
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: timespec(wait),
        };
        match timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec) {
            Ok(_) => self.set = Some(due),
            // The times are valid, and the descriptor is ours: setting the timer cannot fail.
            Err(error) => tracing::error!(%error, "the worker's timer cannot be set"),
        }
        // Setting the timer cleared its pending expiry; register to be woken by the next one.
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::thread;

    use super::*;

    /// After a noted time has come, the kernel's timer may be set to a later one; a time that is planned after that one
    /// is still waited for.
    #[test]
    fn what_is_planned_after_a_noted_time_is_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new().unwrap();
            let began = Instant::now();
            let after = |ms| began + Duration::from_millis(ms);
            poll_fn(|cx| {
                timer.plan(began, after(60), cx);
                Poll::Ready(())
            })
            .await;
            timer.note(after(10));
            thread::park_timeout(Duration::from_millis(15));
            assert!(timer.is_due(Instant::now()));
            assert!(!timer.is_due(Instant::now()), "the answer is yes once");
            let waits = poll_fn(|cx| {
                let now = Instant::now();
                if timer.is_due(now) {
                    return Poll::Ready(now);
                }
                timer.plan(now, after(120), cx);
                Poll::Pending
            });
            let woken = tokio::time::timeout(Duration::from_secs(5), waits).await;
            assert!(woken.expect("woken") >= after(120));
        });
    }
}
