//! Slow start: the share of a new or returning endpoint. A program that has just started has cold caches and pools, and
//! must not get at once the load that it can take later.

use super::FULL_SHARE;
use crate::clock::Millis;

/// The share at the start: a tenth, as in Envoy.
const FIRST: u32 = FULL_SHARE / 10;

/// The share of an endpoint that started `since_ms` ago, in parts of [`FULL_SHARE`]; it is full after `window_ms`. The
/// share rises in proportion to the time, and is at least a tenth (Envoy's slow start with an aggression of 1).
pub(crate) fn share(since_ms: Millis, window_ms: Millis) -> u32 {
    if since_ms >= window_ms {
        return FULL_SHARE;
    }
    let share = u128::from(since_ms) * u128::from(FULL_SHARE) / u128::from(window_ms);
    u32::try_from(share).unwrap_or(FULL_SHARE).max(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_rises_from_a_tenth_to_all() {
        for (since, want) in [
            (0, FIRST),
            (1_000, FIRST),
            (5_000, FULL_SHARE / 2),
            (9_000, FULL_SHARE / 10 * 9),
            (10_000, FULL_SHARE),
            (u64::MAX, FULL_SHARE),
        ] {
            let got = share(since, 10_000);
            assert!(
                got.abs_diff(want) <= 6,
                "after {since} ms {got}, not {want}"
            );
        }
        assert_eq!(share(0, 0), FULL_SHARE);
    }

    proptest! {
        #[test]
        fn it_never_falls(a: u64, b: u64, window: u64) {
            prop_assert!(share(a.min(b), window) <= share(a.max(b), window));
            prop_assert!((FIRST..=FULL_SHARE).contains(&share(a, window)));
        }
    }
}
