//! Backoff: the wait before a retry.

use std::time::Duration;

/// Waits that double from a shortest to a longest one, and start over after a success. Has no clock.
#[derive(Debug, Clone)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff whose first wait is `shortest`, and whose longest is `longest` (or `shortest`, if that is longer).
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Backoff {
            shortest,
            longest,
            failures: 0,
        }
    }

    /// The wait after one more failure. If many clients fail together, [`spread`](crate::Random::spread) it.
    pub fn failed(&mut self) -> Duration {
        let doubled = self.shortest.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        doubled.min(self.longest.max(self.shortest))
    }

    /// Starts over with the shortest wait.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The wait after a run that ended: a run of at least `healthy` first resets the backoff.
    pub fn ended(&mut self, ran: Duration, healthy: Duration) -> Duration {
        if ran >= healthy {
            self.succeeded();
        }
        self.failed()
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;
    use crate::Random;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_double_are_spread_and_have_an_end() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let whole = Duration::from_secs(whole);
            let wait = random.spread(backoff.failed());
            assert!(
                wait > whole / 2 - Duration::from_millis(1) && wait <= whole,
                "{wait:?}"
            );
        }
        backoff.succeeded();
        assert!(random.spread(backoff.failed()) <= Duration::from_secs(1));
    }

    #[test]
    fn waits_grow_up_to_the_longest_and_start_over() {
        let (first, longest) = (ms(200), ms(5_000));
        for seed in 0..100 {
            let (mut random, mut backoff) = (Random::new(seed), Backoff::new(first, longest));
            let mut whole = first;
            for _ in 0..10 {
                let wait = random.spread(backoff.failed());
                assert!(whole / 2 <= wait && wait <= whole, "{wait:?} of {whole:?}");
                whole = (whole * 2).min(longest);
            }
            backoff.succeeded();
            assert!(random.spread(backoff.failed()) <= first);
        }
    }

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_a_long_run() {
        let mut backoff = Backoff::new(ms(200), ms(1_000));
        let mut after = |ran| backoff.ended(ran, ms(1_000));
        let waits: Vec<Duration> = (0..5).map(|_| after(ms(5))).collect();
        assert_eq!(waits, [ms(200), ms(400), ms(800), ms(1_000), ms(1_000)]);
        assert_eq!(after(ms(1_000)), ms(200));
        assert_eq!(after(ms(999)), ms(400));
    }

    #[test]
    fn a_longest_wait_below_the_shortest_is_lifted() {
        let mut backoff = Backoff::new(ms(200), ms(10));
        assert_eq!([backoff.failed(), backoff.failed()], [ms(200), ms(200)]);
    }
}
