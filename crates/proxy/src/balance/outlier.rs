//! When an endpoint is left out because of what its answers show ("outlier ejection", as Envoy has it).
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

/// What is known of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlier {
    /// Failures since the last answer that was none.
    failures: u32,
    /// How often it was ejected in a row.
    times: u32,
    /// When it returned, or will, from the last time.
    until: Millis,
}

impl Outlier {
    /// It answered: the failures in a row are forgotten.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Whether a success changes anything.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.failures > 0
    }

    /// It failed. Returns until when it is left out, if it is from now on; `ejected` of `endpoints` are
    /// already.
    pub(crate) fn failed(
        &mut self,
        rules: &Ejection,
        now: Millis,
        (ejected, endpoints): (usize, usize),
    ) -> Option<Millis> {
        if now < self.until {
            // What was under way when it was ejected, or was sent for want of another.
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

/// How many of so many endpoints may be out at once: one always.
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
        // Late answers of what was sent before do not prolong it.
        assert_eq!(fail(&mut outlier, 500, 9), None);
    }

    #[test]
    fn each_time_in_a_row_is_longer_and_that_is_forgotten() {
        let mut outlier = Outlier::default();
        assert_eq!(fail(&mut outlier, 0, 3), Some(1_000));
        assert_eq!(fail(&mut outlier, 1_000, 3), Some(3_000));
        assert_eq!(fail(&mut outlier, 3_000, 3), Some(6_000));
        // Two good base times later it is the second time, not the fourth.
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
