//! When each change is due, and which pod it replaces. No clock.

use std::time::{Duration, Instant};

/// Changes a second, in most runs.
pub(super) const RATE: u32 = 200;

/// A run of changes at an even pace, whatever becomes of them: one that is written late was due as if it were not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// When the first one is due.
    pub(super) begins: Instant,
    /// The number of the first one. Numbers go on from one run to the next.
    pub(super) first: usize,
    /// How many there are, and how many of these are before the window.
    pub(super) count: usize,
    pub(super) warm_up: usize,
    pub(super) pods: usize,
    /// Changes a second.
    pub(super) rate: u32,
}

impl Schedule {
    /// Changes for so long.
    pub(super) fn new(
        begins: Instant,
        first: usize,
        (warm_up, window): (Duration, Duration),
        (pods, rate): (usize, u32),
    ) -> Schedule {
        let changes = |time: Duration| (time.as_secs_f64() * f64::from(rate)).round() as usize;
        Schedule {
            begins,
            first,
            count: changes(warm_up + window),
            warm_up: changes(warm_up),
            pods,
            rate,
        }
    }

    /// The numbers of all changes.
    pub(super) fn changes(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }

    /// When a change is due.
    pub(super) fn due(&self, change: usize) -> Instant {
        let behind = u32::try_from(change.saturating_sub(self.first)).unwrap_or(u32::MAX);
        self.begins + Duration::from_secs(1) * behind / self.rate
    }

    /// The pod that a change replaces: all pods in turn, neighbours in time far from each other.
    pub(super) fn pod(&self, change: usize) -> usize {
        change * stride(self.pods) % self.pods
    }

    /// The window: from when its first change is due until after the last one.
    pub(super) fn window(&self) -> (Instant, Instant) {
        let due = |behind| self.due(self.first + behind);
        (due(self.warm_up), due(self.count))
    }
}

/// A step that comes to every one of so many pods: near the golden section of them, without a common divisor.
fn stride(pods: usize) -> usize {
    let near = (pods as f64 * 0.618) as usize;
    let mut steps = near.max(1)..;
    steps.find(|step| divisor(*step, pods) == 1).unwrap_or(1)
}

fn divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn changes_are_evenly_paced_and_the_window_begins_after_the_warm_up() {
        let begins = Instant::now();
        let times = (Duration::from_secs(2), Duration::from_secs(10));
        let schedule = Schedule::new(begins, 1_000, times, (100, RATE));
        assert_eq!(schedule.changes(), 1_000..3_400);
        assert_eq!(schedule.due(1_001) - begins, Duration::from_millis(5));
        let (from, to) = schedule.window();
        assert_eq!(from - begins, Duration::from_secs(2));
        assert_eq!(to - begins, Duration::from_secs(12));
    }

    #[test]
    fn every_pod_has_its_turn_before_any_has_a_second_one() {
        let times = (Duration::ZERO, Duration::from_secs(60));
        for pods in [10, 100, 1_000, 9_000, 10_000] {
            let schedule = Schedule::new(Instant::now(), 77, times, (pods, RATE));
            let all: BTreeSet<usize> = (77..77 + pods).map(|one| schedule.pod(one)).collect();
            assert_eq!(all.len(), pods);
        }
    }
}
