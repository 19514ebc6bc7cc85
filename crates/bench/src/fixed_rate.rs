//! The rate at which proxies are compared: so low that none of them is at its limit and only their own work is
//! compared.
//!
//! The throughput at full speed overstates what a proxy can do at a fixed rate: at full speed one wake-up serves many
//! requests, at a fixed rate they come one by one. And client or upstream may be the limit before the proxy is. So the
//! first guess is checked against the proxies' use of their core at that rate, and lowered until that use is low
//! enough.

use super::load::Outcome;

/// The fraction of its core that the busiest proxy is to use …
const AIM: f64 = 0.7;
/// and the most that it may use.
const MOST: f64 = 0.75;
/// A run in which a proxy uses more of its core than this measures its queueing, not its cost.
const AT_ITS_LIMIT: f64 = 0.85;
/// The rate at which latency is compared a second time, as a fraction of what the slowest proxy carries: there is
/// little queueing.
const QUIET: f64 = 0.4;
/// The cores that a proxy with half a core has to use. If it uses less, its client or upstream was the limit.
const SATURATED: f64 = 0.45;
/// How often the rate is lowered at most.
const TRIALS: usize = 4;

/// The throughput of one proxy at full speed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    /// With a core of its own; client or upstream may have been the limit.
    pub(super) whole_core_per_s: f64,
    /// With part of a core, where the proxy itself was the limit: extrapolated to all of that core.
    pub(super) by_itself_per_s: Option<f64>,
}

impl Carried {
    /// From two runs; in `held` the proxy is limited to a part of its core, where that can be done.
    pub(super) fn of(whole_core: &Outcome, held: Option<&Outcome>) -> Carried {
        let by_itself = held.map(|held| held.per_s() / held.cores("proxy"));
        Carried {
            whole_core_per_s: whole_core.per_s(),
            by_itself_per_s: by_itself.filter(|per_s| per_s.is_finite()),
        }
    }

    fn per_s(self) -> f64 {
        let by_itself = self.by_itself_per_s.unwrap_or(f64::INFINITY);
        self.whole_core_per_s.min(by_itself)
    }
}

/// The fraction `share` of the slowest proxy's throughput; `None` if `carried` is empty.
pub(super) fn guess(carried: &[Carried], share: f64) -> Option<f64> {
    let slowest = carried.iter().map(|carried| carried.per_s());
    let slowest = slowest.min_by(f64::total_cmp)?;
    Some((slowest * share).max(1.0))
}

/// Lowers a rate until the proxies use little enough of their core. `trial` returns what the busiest proxy uses at a
/// rate.
///
/// # Errors
/// The errors of `trial`.
pub(super) fn settle(
    mut rate: f64,
    mut trial: impl FnMut(f64) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    for _ in 0..TRIALS {
        let used = trial(rate)?;
        if used <= MOST {
            break;
        }
        rate = (rate * AIM / used).max(1.0);
    }
    Ok(rate)
}

/// The lower one of the two rates, from the settled rate, which began at the fraction `share` of what the slowest
/// carries.
pub(super) fn quiet(settled: f64, share: f64) -> f64 {
    (settled * QUIET / share).max(1.0)
}

/// Whether the busiest proxy uses little enough of its core at the rate at which all are compared.
pub(super) fn is_enough(used: f64) -> bool {
    used <= MOST
}

/// Why a run at the fixed rate does not count: the proxy was close to its limit.
pub(super) fn at_its_limit(outcome: &Outcome) -> Option<String> {
    let used = outcome.cores("proxy");
    (used > AT_ITS_LIMIT).then(|| {
        format!(
            "the proxy used {:.0} % of its core at the fixed rate",
            used * 100.0
        )
    })
}

/// Why a run with half a core does not count: the proxy did not use it.
pub(super) fn not_the_limit(outcome: &Outcome) -> Option<String> {
    let used = outcome.cores("proxy");
    (used < SATURATED).then(|| {
        format!(
            "the proxy used {used:.2} cores of the half that it had: something else was the limit"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::account::Usage;

    fn outcome(requests: u64, cores: f64) -> Outcome {
        let usage = Usage {
            cpu_ns: (cores * 2e9) as u64,
            user_share: 0.5,
        };
        Outcome {
            seconds: 2.0,
            requests,
            cpu: BTreeMap::from([("proxy".to_owned(), usage)]),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_slowest_counts_by_whatever_limits_it() {
        // The first proxy is limited by the client, the second by its own core.
        let fast = Carried::of(&outcome(40_000, 0.6), Some(&outcome(40_000, 0.5)));
        assert_eq!(fast.per_s(), 20_000.0);
        let slow = Carried::of(&outcome(30_000, 1.0), Some(&outcome(12_000, 0.5)));
        assert_eq!(slow.per_s(), 12_000.0);
        assert_eq!(guess(&[fast, slow], 0.7), Some(8_400.0));
        let unknown = Carried::of(&outcome(30_000, 1.0), None);
        assert_eq!(guess(&[unknown], 0.5), Some(7_500.0));
        assert_eq!(guess(&[], 0.7), None);
    }

    #[test]
    fn a_rate_is_lowered_until_the_busiest_has_a_quarter_of_its_core_left() {
        // A proxy that needs more CPU time for a request the lower the rate is.
        let used = |rate: f64| 0.3 + rate / 20_000.0;
        let settled = settle(14_000.0, |rate| Ok(used(rate))).expect("a rate");
        assert!(settled < 9_100.0 && is_enough(used(settled)), "{settled}");
        let mut trials = 0;
        let settled = settle(5_000.0, |rate| {
            trials += 1;
            Ok(used(rate))
        });
        assert_eq!((settled.expect("a rate"), trials), (5_000.0, 1));
        assert!(settle(1.0, |_| anyhow::bail!("no load")).is_err());
    }

    #[test]
    fn a_proxy_near_its_limit_makes_a_run_invalid() {
        assert_eq!(at_its_limit(&outcome(1, 0.85)), None);
        let why = at_its_limit(&outcome(1, 0.86)).expect("a reason");
        assert!(why.contains("86 %"), "{why}");
    }

    #[test]
    fn the_quiet_rate_is_two_fifths_of_what_the_slowest_carries() {
        assert_eq!(quiet(7_000.0, 0.7).round(), 4_000.0);
        // If the common rate was lowered, the quiet one is lowered too.
        assert_eq!(quiet(3_500.0, 0.7).round(), 2_000.0);
        assert_eq!(quiet(1.0, 0.7), 1.0);
    }

    #[test]
    fn a_proxy_that_did_not_use_its_half_core_makes_a_run_invalid() {
        assert_eq!(not_the_limit(&outcome(1, 0.45)), None);
        let why = not_the_limit(&outcome(1, 0.44)).expect("a reason");
        assert!(why.contains("0.44 cores"), "{why}");
    }
}
