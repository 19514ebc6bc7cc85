//! The source of random choices.

/// Numbers that decide what happens next.
#[derive(Debug)]
pub struct Choices<'a>(Source<'a>);

#[derive(Debug)]
enum Source<'a> {
    /// Endless, from a seed (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    Seed(u64),
    /// From a script, byte by byte; zeros after its end.
    Script(&'a [u8]),
}

impl<'a> Choices<'a> {
    /// Always the same choices for the same seed.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        Self(Source::Seed(seed))
    }

    /// The choices in a script, with zeros after its end.
    #[must_use]
    pub fn script(bytes: &'a [u8]) -> Self {
        Self(Source::Script(bytes))
    }

    /// Whether a script has ended.
    pub(super) fn are_exhausted(&self) -> bool {
        matches!(self.0, Source::Script([]))
    }

    /// A number less than `most`, 0 if that is 0.
    pub fn below(&mut self, most: usize) -> usize {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut number = *state;
                number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let number = (number ^ (number >> 31)) as usize;
                number.checked_rem(most).unwrap_or_default()
            }
            Source::Script(script) => {
                let bytes = if most > 256 { 2 } else { 1 };
                let mut number = 0;
                for _ in 0..bytes {
                    let (byte, rest) = script.split_first().unwrap_or((&0, &[]));
                    *script = rest;
                    number = number << 8 | usize::from(*byte);
                }
                number.checked_rem(most).unwrap_or_default()
            }
        }
    }

    /// `true` once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        // The value must not be 0, which an exhausted script returns.
        self.below(times) == times - 1
    }

    /// One of these values.
    ///
    /// # Panics
    /// When `these` is empty.
    pub fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}
