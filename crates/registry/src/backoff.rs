//! How long to wait before etcd is asked again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first wait at most, and the longest.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that double up to five seconds. Each is between half of itself and the whole, so that those who lost
/// the same etcd do not all come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    /// State of a splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    state: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Backoff {
            next: FIRST,
            state: seed,
        }
    }

    /// With a seed of its own.
    pub(super) fn seeded() -> Self {
        Self::new(RandomState::new().hash_one(0))
    }

    /// All is well again.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// The wait after one more failure.
    pub(super) fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX);
        Duration::from_millis(half + self.random() % (half + 1))
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest_and_start_over() {
        for seed in 0..100 {
            let mut backoff = Backoff::new(seed);
            let mut whole = FIRST;
            for _ in 0..10 {
                let wait = backoff.wait();
                assert!(whole / 2 <= wait && wait <= whole, "{wait:?} of {whole:?}");
                whole = (whole * 2).min(LONGEST);
            }
            backoff.reset();
            assert!(backoff.wait() <= FIRST);
        }
    }
}
