//! Pseudo-random numbers.

/// A small random number generator (xorshift64*, Vigna 2016): good enough to spread load. The caller passes in the
/// seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound` (0 for a bound of 0). Its bias is too small to matter for weights.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_draw_is_below_its_bound(seed: u64, bound in 1u64..1_000_000) {
            let mut random = Random::new(seed);
            for _ in 0..20 {
                prop_assert!(random.below(bound) < bound);
            }
            prop_assert_eq!(random.below(0), 0);
        }
    }
}
