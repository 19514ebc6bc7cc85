//! Messages to the service manager that started this process: systemd, by `sd_notify(3)`. Without one nothing is sent.
//!
//! The main loop calls [`ServiceManager::turn`] about once a second. A main loop that hangs stops doing so, and then
//! the service manager restarts the process (`WatchdogSec=`).

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Messages in each period of the watchdog.
const PER_PERIOD: u32 = 3;

/// What the service manager has been told.
#[derive(Debug)]
pub struct ServiceManager {
    /// Time between two messages for its watchdog; `None` if it has none for this process.
    every: Option<Duration>,
    next: Option<Instant>,
    is_ready: bool,
    /// Sends messages, and returns whether that succeeded.
    send: fn(&[NotifyState<'_>]) -> bool,
}

impl Default for ServiceManager {
    /// The one that the environment names, if any.
    fn default() -> Self {
        ServiceManager::with(sd_notify::watchdog_enabled(), |states| {
            sd_notify::notify(states).is_ok()
        })
    }
}

impl ServiceManager {
    fn with(watchdog: Option<Duration>, send: fn(&[NotifyState<'_>]) -> bool) -> Self {
        ServiceManager {
            every: watchdog.map(|period| period / PER_PERIOD),
            next: None,
            is_ready: false,
            send,
        }
    }

    /// Says that the main loop goes on, and once that the process is ready.
    pub fn turn(&mut self, now: Instant, is_ready: bool) {
        if is_ready && !self.is_ready {
            // The service manager may be restarting: it is told at the next turn then.
            self.is_ready = (self.send)(&[NotifyState::Ready]);
        }
        if let Some(every) = self.every
            && self.next.is_none_or(|next| now >= next)
        {
            let sent = (self.send)(&[NotifyState::Watchdog]);
            self.next = sent.then(|| now + every);
        }
    }

    /// Says that the process ends, because it was told to.
    pub fn stopping(&self) {
        // It is about to see the end itself.
        let _sent = (self.send)(&[NotifyState::Stopping]);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SENT: RefCell<String> = RefCell::default();
    }

    fn sent() -> String {
        SENT.take()
    }

    #[test]
    fn it_is_told_once_that_all_is_ready_and_again_that_the_loop_goes_on() {
        let send = |states: &[NotifyState<'_>]| {
            for state in states {
                SENT.with_borrow_mut(|sent| sent.push_str(&format!("{state} ")));
            }
            true
        };
        let mut manager = ServiceManager::with(Some(Duration::from_secs(30)), send);
        let start = Instant::now();
        let mut turn = |second, is_ready| {
            manager.turn(start + Duration::from_secs(second), is_ready);
            sent()
        };
        assert_eq!(turn(0, false), "WATCHDOG=1 ");
        assert_eq!(turn(9, false), "");
        assert_eq!(turn(10, true), "READY=1 WATCHDOG=1 ");
        assert_eq!(turn(11, false), "");
        assert_eq!(turn(12, true), "");
        assert_eq!(turn(20, true), "WATCHDOG=1 ");
        let mut unwatched = ServiceManager::with(None, send);
        unwatched.turn(start, true);
        unwatched.stopping();
        assert_eq!(sent(), "READY=1 STOPPING=1 ");
    }

    #[test]
    fn what_did_not_arrive_is_sent_again() {
        let send = |states: &[NotifyState<'_>]| {
            for state in states {
                SENT.with_borrow_mut(|sent| sent.push_str(&format!("{state} ")));
            }
            false
        };
        let mut manager = ServiceManager::with(Some(Duration::from_secs(30)), send);
        for _ in 0..2 {
            manager.turn(Instant::now(), true);
            assert_eq!(sent(), "READY=1 WATCHDOG=1 ");
        }
    }
}
