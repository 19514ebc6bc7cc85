//! Saying the same thing only now and then, for as many causes as there are nodes that may make one.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How long nothing more is said of a cause that was named.
const EVERY: Duration = Duration::from_secs(60);
/// Causes that are told apart. Those beyond are not named until others are old.
const CAUSES: usize = 1_024;

/// Decides what is worth a line in the log when others decide how often it happens. The time is passed in.
#[derive(Debug)]
pub(super) struct Seldom<C> {
    /// When each cause was named last, and how often it was not since.
    named: HashMap<C, (Instant, u64)>,
}

impl<C> Default for Seldom<C> {
    fn default() -> Self {
        Self {
            named: HashMap::new(),
        }
    }
}

impl<C: Eq + Hash> Seldom<C> {
    /// Whether a cause is to be named now; and if so, how often it was not since it was last.
    pub(super) fn may_name(&mut self, cause: C, now: Instant) -> Option<u64> {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= EVERY;
        if let Some((at, unnamed)) = self.named.get_mut(&cause) {
            if !is_old(*at) {
                *unnamed = unnamed.saturating_add(1);
                return None;
            }
            *at = now;
            return Some(std::mem::take(unnamed));
        }
        if self.named.len() >= CAUSES {
            self.named.retain(|_, (at, _)| !is_old(*at));
            if self.named.len() >= CAUSES {
                return None;
            }
        }
        self.named.insert(cause, (now, 0));
        Some(0)
    }
}
