//! Limits how often a caller may reset streams before they are answered. Each of them has cost a head, a permit and a
//! task, and an endpoint's connection, for about twenty bytes ("rapid reset", CVE-2023-44487).

use std::cell::Cell;

use crate::clock::Millis;

/// Resets per second.
const RATE_PER_S: u64 = 1_000;
/// Burst: a caller that has opened as many streams as allowed, and loses all of its clients, may open and reset as many
/// again.
const AT_ONCE: u64 = 2_048;

/// A token bucket of resets, which starts full.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Missing tokens, in thousandths of a reset.
    missing: Cell<u64>,
    looked: Cell<Millis>,
}

impl Resets {
    /// Counts a reset. False when there are too many.
    pub(super) fn count(&self, now: Millis) -> bool {
        let passed = now.saturating_sub(self.looked.replace(now));
        let refilled = passed.saturating_mul(RATE_PER_S);
        let missing = self.missing.get().saturating_sub(refilled) + 1_000;
        self.missing.set(missing);
        missing <= AT_ONCE * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_may_reset_a_thousand_a_second_and_no_more() {
        let resets = Resets::default();
        assert!((0..10_000).all(|n| resets.count(5_000 + n)));
        let at_once = (0..10_000).take_while(|_| resets.count(15_000)).count();
        assert!((2_000..=2_048).contains(&at_once), "{at_once}");
        assert!(!resets.count(15_001));
        assert!(resets.count(20_000), "a while later it may again");
    }
}
