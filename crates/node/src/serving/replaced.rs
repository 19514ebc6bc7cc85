//! Which configurations a Worker may still serve: the one in force, and for a few seconds those that it replaced.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A Worker that serves a configuration for longer than this after it was replaced is stuck.
const TAKES_CONFIG_WITHIN: Duration = Duration::from_secs(5);

/// The generations that were replaced in the last [`TAKES_CONFIG_WITHIN`]. Generations do not always increase: another
/// control plane counts anew. So they are compared for equality alone.
#[derive(Debug, Default)]
pub(super) struct Replaced(VecDeque<(u64, Instant)>);

impl Replaced {
    /// Notes that a generation was replaced, and forgets those that no Worker may serve any more.
    pub(super) fn note(&mut self, generation: u64, now: Instant) {
        self.0.retain(|(_, at)| is_recent(*at, now));
        self.0.push_back((generation, now));
    }

    /// Whether a Worker may still serve this generation.
    pub(super) fn is_recent(&self, generation: u64, now: Instant) -> bool {
        let mut noted = self.0.iter();
        noted.any(|(other, at)| *other == generation && is_recent(*at, now))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < TAKES_CONFIG_WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_stuck_is_found_however_often_the_mesh_changes() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut replaced = Replaced::default();
        for generation in 1..=100 {
            let now = at(100 * generation);
            replaced.note(generation, now);
            assert!(replaced.is_recent(generation, now), "just replaced");
            assert_eq!(replaced.is_recent(1, now), generation < 51, "{generation}");
            assert!(
                replaced.0.len() <= 50,
                "those of five seconds, ten a second"
            );
        }
    }

    #[test]
    fn what_was_never_served_is_not_recent() {
        let now = Instant::now();
        let mut replaced = Replaced::default();
        assert!(!replaced.is_recent(0, now));
        replaced.note(7, now);
        assert!(!replaced.is_recent(6, now));
    }
}
