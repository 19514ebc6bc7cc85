//! Saying the same thing only now and then.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How much is said.
#[derive(Debug)]
struct Bounds {
    /// How long nothing more is said of a cause that was named.
    every: Duration,
    /// Causes that are told apart.
    causes: usize,
    /// Whether, when there are as many, the one that was named first makes room for one more. If not, those beyond
    /// are not named until others are old.
    makes_room: bool,
}

/// For faults of our own, which are few.
const FEW: Bounds = Bounds {
    every: Duration::from_secs(10),
    causes: 8,
    makes_room: true,
};
/// For what others cause, who could make any number of them.
const MANY: Bounds = Bounds {
    every: Duration::from_secs(60),
    causes: 1_024,
    makes_room: false,
};

/// Decides what is worth a line in the log when something fails many times a second. The time is passed in.
///
/// A cause is an error's number, as the operating system counts them, or whatever `C` is.
#[derive(Debug)]
pub struct Seldom<C = Option<i32>> {
    bounds: &'static Bounds,
    /// The one that was named first is the first.
    named: Vec<Named<C>>,
}

#[derive(Debug)]
struct Named<C> {
    cause: C,
    /// When it was named last.
    at: Instant,
    /// How often it was not since.
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
    /// Nothing was said yet.
    pub fn new() -> Self {
        Seldom::default()
    }

    /// Whether `error` is to be named now: not if the same was in the last ten seconds.
    pub fn is_due(&mut self, error: &std::io::Error, now: Instant) -> bool {
        self.may_name(error.raw_os_error(), now)
    }
}

impl<C: PartialEq> Seldom<C> {
    /// For causes that others decide on: each is named once a minute at most, and at most 1,024 are.
    pub fn of_others() -> Self {
        Seldom {
            bounds: &MANY,
            named: Vec::new(),
        }
    }

    /// Whether `cause` is to be named now: not if it was in the last ten seconds.
    pub fn may_name(&mut self, cause: C, now: Instant) -> bool {
        self.name(cause, now).is_some()
    }

    /// Whether `cause` is to be named now; and if so, how often it was not since it was last.
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
