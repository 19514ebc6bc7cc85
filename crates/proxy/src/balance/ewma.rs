//! The latency of an endpoint: a moving average that follows a peak at once and forgets it gradually ("Peak EWMA", as
//! in the balancers of Finagle and Linkerd).

/// Time after which 1/e of a sample's weight is left, in microseconds.
const DECAY_US: f64 = 10_000_000.0;
/// Assumed latency of an endpoint that has requests under way and has never answered, in microseconds: it gets no more
/// requests before its first answer.
const UNKNOWN_US: f64 = 60_000_000.0;
/// Least latency of an endpoint that has failed and never answered, in microseconds.
const FAILED_US: f64 = 1_000_000.0;

/// The average latency of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ewma {
    us: f64,
    /// Time of the last sample, in microseconds of the caller's clock.
    seen_us: u64,
}

impl Ewma {
    /// Adds the latency of an answer.
    pub(crate) fn observe(self, took_us: u64, now_us: u64) -> Self {
        let took = took_us as f64;
        let us = match took > self.us {
            true => took,
            false => {
                let kept = self.kept(now_us);
                self.us * kept + took * (1.0 - kept)
            }
        };
        let seen_us = now_us.max(self.seen_us);
        Ewma { us, seen_us }
    }

    /// Adds the time that a failure took. A quick failure does not mean that answers would be quick: the average never
    /// falls with a failure, or all requests would go to the endpoint that refuses them fastest. An answer with a 5xx
    /// status is a failure, too.
    pub(crate) fn observe_failure(self, took_us: u64, now_us: u64) -> Self {
        let known = if self.us > 0.0 { self.us } else { FAILED_US };
        Ewma {
            us: known.max(took_us as f64),
            seen_us: now_us.max(self.seen_us),
        }
    }

    /// The average as of now. It decays without answers, too, so that an endpoint that was slow once is tried again.
    fn now(self, now_us: u64) -> f64 {
        self.us * self.kept(now_us)
    }

    fn kept(self, now_us: u64) -> f64 {
        let since = now_us.saturating_sub(self.seen_us) as f64;
        (-since / DECAY_US).exp()
    }
}

/// Cost of one more request at an endpoint with `active` requests under way: each waits for the ones before it.
pub(crate) fn cost(latency: Ewma, active: u32, now_us: u64) -> u64 {
    let us = match latency.us > 0.0 {
        true => latency.now(now_us),
        false if active > 0 => UNKNOWN_US,
        false => 0.0,
    };
    // Precision lost beyond the mantissa does not matter: no client waits that long. The minimum of a microsecond makes
    // the requests under way count even for the fastest endpoint.
    (us.max(1.0) * (f64::from(active) + 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000;

    #[test]
    fn a_peak_counts_at_once_and_is_forgotten_by_and_by() {
        let calm = (0..100).fold(Ewma::default(), |ewma, i| ewma.observe(1_000, i * 1_000));
        assert_eq!(cost(calm, 0, 100_000), 999);
        let peak = calm.observe(500_000, S);
        assert_eq!(cost(peak, 0, S), 500_000);
        // One quick answer changes little.
        let after = peak.observe(1_000, S + 1_000);
        assert!(cost(after, 0, S + 1_000) > 499_000);
        let later = (1..=300).fold(peak, |ewma, i| ewma.observe(1_000, S + i * 100_000));
        assert!(cost(later, 0, 31 * S) < 30_000);
        // Time without answers lowers it, too.
        assert!(cost(peak, 0, 61 * S) < 2_000);
    }

    #[test]
    fn a_failure_only_raises_it() {
        let calm = Ewma::default().observe(5_000, 0);
        let quick = (1..=600).fold(calm, |ewma, i| ewma.observe_failure(100, i * 100_000));
        assert_eq!(cost(quick, 0, 60 * S), 5_000);
        assert_eq!(cost(quick.observe_failure(S, 61 * S), 0, 61 * S), S);
        // Without new samples it decays all the same, so the endpoint is tried again.
        assert!(cost(quick, 0, 120 * S) < 50);
    }

    #[test]
    fn one_that_only_failed_is_not_taken_for_a_fast_one() {
        let failed = Ewma::default().observe_failure(100, 0);
        assert_eq!(cost(failed, 0, 0), S);
        assert!(cost(failed, 0, 60 * S) < 5_000, "it is tried again");
    }

    #[test]
    fn requests_under_way_multiply_it() {
        let ewma = Ewma::default().observe(2_000, 0);
        assert_eq!(cost(ewma, 0, 0), 2_000);
        assert_eq!(cost(ewma, 4, 0), 10_000);
    }

    #[test]
    fn one_that_never_answered_gets_one_request_and_no_more() {
        let ewma = Ewma::default();
        assert_eq!(cost(ewma, 0, 0), 1);
        assert!(cost(ewma, 1, 0) > cost(ewma.observe(S, 0), 50, 0));
    }

    proptest! {
        #[test]
        fn it_stays_between_what_was_seen_and_zero(
            samples in prop::collection::vec((0u64..10_000_000, 0u64..100_000_000), 1..50),
        ) {
            let mut ewma = Ewma::default();
            let most = samples.iter().map(|sample| sample.0).max().unwrap_or(0);
            let mut now = 0;
            for (took, later) in samples {
                now += later;
                ewma = ewma.observe(took, now);
                prop_assert!(ewma.us >= 0.0 && ewma.us <= most as f64);
                prop_assert!(cost(ewma, 0, now) <= most.max(1));
            }
        }
    }
}
