//! Outlier ejection, as in Envoy: an endpoint whose requests keep failing is left out for a while.
//!
//! ```text
//!              so many failures in a row, and not too many are out
//!   in use ───────────────────────────────────────────────────────▶ ejected
//!     ▲  ▲                                                             │ base × times in a row
//!     │  └──────────── an answer: the failures are forgotten           ▼
//!     └──────────────────────────────────────────────────────────── returned
//!        for each base time without another ejection one of the times is forgotten
//! ```

use heddle_model::Ejection;

use crate::clock::Millis;

/// The failure history of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlier {
    /// Failures since the last success.
    failures: u32,
    /// Ejections in a row.
    times: u32,
    /// When the last ejection ended, or will end.
    until: Millis,
}

impl Outlier {
    /// Counts a success: the failures in a row are forgotten.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Whether [`Self::succeeded`] would change anything.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.failures > 0
    }

    /// Counts a failure. Returns the end of the ejection if one begins now. `ejected` of `endpoints` are ejected
    /// already.
    pub(crate) fn failed(
        &mut self,
        rules: &Ejection,
        now: Millis,
        (ejected, endpoints): (usize, usize),
    ) -> Option<Millis> {
        if now < self.until {
            // The request was under way when the endpoint was ejected, or was sent here because no other endpoint was
            // left.
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < rules.after || ejected >= most(rules, endpoints) {
            return None;
        }
        let forgiven = now.saturating_sub(self.until) / rules.base_ms.max(1);
        let times = self
            .times
            .saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        self.times = times.saturating_add(1);
        self.failures = 0;
        let out = rules.base_ms.saturating_mul(u64::from(self.times));
        self.until = now.saturating_add(out.min(Ejection::LONGEST_MS.max(rules.base_ms)));
        Some(self.until)
    }
}

/// How many of `endpoints` may be ejected at the same time: at least one.
fn most(rules: &Ejection, endpoints: usize) -> usize {
    (endpoints.saturating_mul(usize::from(rules.max_percent)) / 100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_model::Failing;
    use proptest::prelude::*;

    const RULES: Ejection = Ejection {
        after: 3,
        on: Failing::ServerError,
        base_ms: 1_000,
        max_percent: 50,
    };

    fn fail(outlier: &mut Outlier, now: Millis, times: u32) -> Option<Millis> {
        (0..times)
            .filter_map(|_| outlier.failed(&RULES, now, (0, 4)))
            .last()
    }

    #[test]
    fn it_takes_so_many_failures_in_a_row() {
        let mut outlier = Outlier::default();
        assert_eq!(fail(&mut outlier, 0, 2), None);
        assert!(outlier.is_in_doubt());
        outlier.succeeded();
        assert!(!outlier.is_in_doubt());
        assert_eq!(fail(&mut outlier, 0, 2), None);
        assert_eq!(fail(&mut outlier, 0, 1), Some(1_000));
        // Late failures of earlier requests do not prolong the ejection.
        assert_eq!(fail(&mut outlier, 500, 9), None);
    }

    #[test]
    fn each_time_in_a_row_is_longer_and_that_is_forgotten() {
        let mut outlier = Outlier::default();
        assert_eq!(fail(&mut outlier, 0, 3), Some(1_000));
        assert_eq!(fail(&mut outlier, 1_000, 3), Some(3_000));
        assert_eq!(fail(&mut outlier, 3_000, 3), Some(6_000));
        // After two base times without a failure this is the second ejection in a row, not the fourth.
        assert_eq!(fail(&mut outlier, 8_000, 3), Some(10_000));
        assert_eq!(fail(&mut outlier, 90_000, 3), Some(91_000));
    }

    #[test]
    fn no_time_is_longer_than_five_minutes() {
        let rules = Ejection {
            base_ms: 120_000,
            after: 1,
            ..RULES
        };
        let (mut outlier, mut now) = (Outlier::default(), 0);
        for out_ms in [120_000, 240_000, 300_000, 300_000] {
            let until = outlier.failed(&rules, now, (0, 4));
            assert_eq!(until, Some(now + out_ms));
            now += out_ms;
        }
    }

    #[test]
    fn not_too_many_are_out_at_once() {
        for (endpoints, out, is_left_out) in [
            (1, 0, true),
            (3, 0, true),
            (3, 1, false),
            (4, 1, true),
            (4, 2, false),
            (100, 49, true),
            (100, 50, false),
        ] {
            let mut outlier = Outlier::default();
            let until = (0..3).find_map(|_| outlier.failed(&RULES, 0, (out, endpoints)));
            assert_eq!(until.is_some(), is_left_out, "{out} of {endpoints}");
        }
    }

    proptest! {
        #[test]
        fn it_always_returns(
            events in prop::collection::vec((any::<bool>(), 0u64..5_000), 1..200),
            base_ms in 1u64..=Ejection::LONGEST_MS,
        ) {
            let rules = Ejection { base_ms, after: 1, ..RULES };
            let (mut outlier, mut now) = (Outlier::default(), 0);
            for (fails, later) in events {
                now += later;
                match fails {
                    false => outlier.succeeded(),
                    true => {
                        if let Some(until) = outlier.failed(&rules, now, (0, 1)) {
                            prop_assert!(until > now && until - now <= Ejection::LONGEST_MS);
                        }
                    }
                }
            }
        }
    }
}
