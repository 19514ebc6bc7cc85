//! Rate limit for log messages: the same cause is logged only now and then.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

#[derive(Debug)]
struct Bounds {
    /// How long a cause stays silent after it was logged.
    every: Duration,
    /// Limit of causes that are remembered.
    causes: usize,
    /// Whether the oldest cause is forgotten for a new one when the limit is reached. If not, new causes are not logged
    /// until an old one has passed `every`.
    makes_room: bool,
}

/// For causes within this process, which are few.
const FEW: Bounds = Bounds {
    every: Duration::from_secs(10),
    causes: 8,
    makes_room: true,
};
/// For causes that peers control, who could produce any number of them.
const MANY: Bounds = Bounds {
    every: Duration::from_secs(60),
    causes: 1_024,
    makes_room: false,
};

/// Decides which failures are logged when something fails many times a second. The caller passes the time.
///
/// A cause is a value of `C`, by default an operating system error number (errno).
#[derive(Debug)]
pub struct Seldom<C = Option<i32>> {
    bounds: &'static Bounds,
    /// Oldest first.
    named: Vec<Named<C>>,
}

#[derive(Debug)]
struct Named<C> {
    cause: C,
    /// When it was last logged.
    at: Instant,
    /// How often it was suppressed since then.
    unnamed: u64,
}

impl<C> Default for Seldom<C> {
    fn default() -> Self {
        Seldom {
            bounds: &FEW,
            named: Vec::new(),
        }
    }
}

impl Seldom {
    /// For errors within this process: each is logged once in 10 s, and 8 are remembered.
    pub fn new() -> Self {
        Seldom::default()
    }

    /// Whether to log `error` now: not if the same errno was logged in the last 10 s.
    pub fn is_due(&mut self, error: &std::io::Error, now: Instant) -> bool {
        self.may_name(error.raw_os_error(), now)
    }
}

impl<C: PartialEq> Seldom<C> {
    /// For causes that peers control: each is logged at most once a minute, and at most 1,024 causes in that time.
    pub fn of_others() -> Self {
        Seldom {
            bounds: &MANY,
            named: Vec::new(),
        }
    }

    /// Whether to log `cause` now: not if it was logged in the last 10 s, or the last minute with
    /// [`Seldom::of_others`].
    pub fn may_name(&mut self, cause: C, now: Instant) -> bool {
        self.name(cause, now).is_some()
    }

    /// Whether to log `cause` now. If so, returns how often it was suppressed since it was last logged.
    pub fn name(&mut self, cause: C, now: Instant) -> Option<u64> {
        let bounds = self.bounds;
        let is_old = |at: Instant| now.saturating_duration_since(at) >= bounds.every;
        let mut missed = 0;
        if let Some(known) = self.named.iter().position(|known| known.cause == cause) {
            if !is_old(self.named[known].at) {
                let unnamed = &mut self.named[known].unnamed;
                *unnamed = unnamed.saturating_add(1);
                return None;
            }
            missed = self.named.remove(known).unnamed;
        } else if self.named.len() == bounds.causes {
            match bounds.makes_room {
                true => drop(self.named.remove(0)),
                false => self.named.retain(|known| !is_old(known.at)),
            }
            if self.named.len() == bounds.causes {
                return None;
            }
        }
        self.named.push(Named {
            cause,
            at: now,
            unnamed: 0,
        });
        Some(missed)
    }
}
