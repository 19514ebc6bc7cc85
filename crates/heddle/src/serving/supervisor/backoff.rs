//! How long to wait before a restart.

use std::time::Duration;

/// Waits that double from a shortest to a longest one, and start over after a run that lasted.
/// No clock: it is told how long a run lasted.
#[derive(Debug)]
pub(super) struct RestartBackoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl RestartBackoff {
    /// The first wait is `min`, none is longer than `max` (or `min`, if that is longer).
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        RestartBackoff {
            min,
            max: max.max(min),
            next: min,
        }
    }

    /// The wait after a run of this length. One longer than the longest wait counts as healthy.
    pub(super) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= self.max {
            self.next = self.min;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::RestartBackoff;
    use std::time::Duration;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_a_long_run() {
        let mut backoff = RestartBackoff::new(ms(200), ms(1_000));
        let waits: Vec<Duration> = (0..5).map(|_| backoff.after(ms(5))).collect();
        assert_eq!(waits, [ms(200), ms(400), ms(800), ms(1_000), ms(1_000)]);
        assert_eq!(backoff.after(ms(1_000)), ms(200));
        assert_eq!(backoff.after(ms(999)), ms(400));
    }

    #[test]
    fn a_longest_wait_below_the_shortest_is_lifted() {
        let mut backoff = RestartBackoff::new(ms(200), ms(10));
        assert_eq!(
            [backoff.after(ms(0)), backoff.after(ms(0))],
            [ms(200), ms(200)]
        );
    }
}
