//! Numbers that spread what many nodes would do at the same moment. They are no secret.

use std::time::Duration;

/// A generator of 64 bits (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A seed that differs between nodes and starts.
    pub(super) fn from_system() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let state = std::hash::RandomState::new();
        Random::new(state.build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The product's upper half: the error is too small to matter for a wait.
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }
}

/// Waits that double from a shortest to a longest one; each is between half and all of that, so that
/// those who failed together do not come back together.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    shortest: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) const fn new(shortest: Duration, longest: Duration) -> Self {
        Backoff {
            shortest,
            longest,
            failures: 0,
        }
    }

    /// The wait after one more failure.
    pub(super) fn failed(&mut self, random: &mut Random) -> Duration {
        let doubled = self.shortest.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let whole = doubled.min(self.longest);
        let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX);
        whole - Duration::from_millis(random.below(half))
    }

    /// Begins again with the shortest wait.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Random};
    use std::time::Duration;

    #[test]
    fn waits_double_are_spread_and_have_an_end() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let whole = Duration::from_secs(whole);
            let wait = backoff.failed(&mut random);
            assert!(
                wait > whole / 2 - Duration::from_millis(1) && wait <= whole,
                "{wait:?}"
            );
        }
        backoff.succeeded();
        assert!(backoff.failed(&mut random) <= Duration::from_secs(1));
    }

    #[test]
    fn numbers_are_below_their_bound_and_reach_all_of_it() {
        let mut random = Random::new(7);
        let mut seen = [0; 10];
        for _ in 0..1_000 {
            seen[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!(
            seen.iter().all(|times| (50..200).contains(times)),
            "{seen:?}"
        );
        assert_eq!(random.below(0), 0);
    }
}
