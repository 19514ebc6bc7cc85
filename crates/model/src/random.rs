//! Random numbers that spread out simultaneous actions. They are not suitable for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator from a seed: equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A generator whose seed differs between processes and calls.
    pub fn from_system() -> Self {
        Random::new(RandomState::new().hash_one(0))
    }

    /// The next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of the product: its bias is too small to matter for a wait.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A wait between half of `whole` and `whole`, so that clients that failed together do not retry together.
    pub fn spread(&mut self, whole: Duration) -> Duration {
        let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX);
        whole - Duration::from_millis(self.below(half))
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

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
