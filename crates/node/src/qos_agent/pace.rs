//! When the agent is started again. No clock of its own.

use std::time::{Duration, Instant};

/// The first wait; each further one is twice as long as the one before,
const FIRST: Duration = Duration::from_secs(1);
/// up to this.
const LONGEST: Duration = Duration::from_secs(128);
/// An agent that ran so long did not end because it cannot run: the next wait is the first again.
const LIVED: Duration = Duration::from_secs(60);

/// The waits between starts.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
    wait: Option<Duration>,
}

impl Pace {
    /// Whether it may be started now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// It has ended after it `lived` so long. Returns how long to wait.
    pub(super) fn ended(&mut self, now: Instant, lived: Duration) -> Duration {
        let before = self.wait.filter(|_| lived < LIVED);
        let wait = before.map_or(FIRST, |before| (before * 2).min(LONGEST));
        self.wait = Some(wait);
        self.next = Some(now + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_grow_until_it_has_lived() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert!(pace.is_due(now), "at once");
        let mut ended = |lived_s| pace.ended(now, Duration::from_secs(lived_s)).as_secs();
        let waits: Vec<u64> = (0..10).map(|_| ended(0)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        assert_eq!((ended(59), ended(60), ended(0)), (128, 1, 2));
    }

    proptest! {
        #[test]
        fn starts_are_bounded(lives in prop::collection::vec(0u64..200, 1..100)) {
            let began = Instant::now();
            let mut now = began;
            let mut pace = Pace::default();
            for lived in &lives {
                prop_assert!(pace.is_due(now));
                let lived = Duration::from_secs(*lived);
                now += lived;
                let wait = pace.ended(now, lived);
                prop_assert!((FIRST..=LONGEST).contains(&wait));
                prop_assert!(!pace.is_due(now) && pace.is_due(now + wait));
                prop_assert!(lived < LIVED || wait == FIRST);
                now += wait;
            }
            // A minute has six starts at most: after 0, 1, 3, 7, 15 and 31 seconds.
            let starts = u32::try_from(lives.len()).expect("few");
            let minutes = now.duration_since(began).as_secs() / 60 + 1;
            prop_assert!(u64::from(starts) <= 7 * minutes, "{starts} in {minutes}");
        }
    }
}
