//! Saying the same thing only now and then.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How long nothing more is said of a cause that was named.
const EVERY: Duration = Duration::from_secs(10);
/// Causes that are told apart. The one that was named first makes room for one more.
const CAUSES: usize = 8;

/// Decides what is worth a line in the log when something fails many times a second.
///
/// A cause is an error's number, as the operating system counts them, or whatever `C` is.
#[derive(Debug)]
pub struct Seldom<C = Option<i32>> {
    /// Each cause with the time when it was last named, the oldest first.
    named: Vec<(C, Instant)>,
}

impl<C> Default for Seldom<C> {
    fn default() -> Self {
        Seldom { named: Vec::new() }
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
    /// Whether `cause` is to be named now: not if it was in the last ten seconds.
    pub fn may_name(&mut self, cause: C, now: Instant) -> bool {
        if let Some(at) = self.named.iter().position(|(known, _)| *known == cause) {
            if now.saturating_duration_since(self.named[at].1) < EVERY {
                return false;
            }
            self.named.remove(at);
        } else if self.named.len() == CAUSES {
            self.named.remove(0);
        }
        self.named.push((cause, now));
        true
    }
}
