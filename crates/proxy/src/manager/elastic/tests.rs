use std::time::Duration;

use proptest::prelude::*;

use super::{Controller, CrewChange, SETTLE, Shortage};
use crate::settings::Elasticity;

const TICK: Duration = Duration::from_millis(100);

fn up_to(max: usize) -> Elasticity {
    Elasticity {
        max,
        ..Elasticity::default()
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Workers that share a load evenly. A load of 1 is what one Worker can carry.
struct BusyNode {
    controller: Controller,
    workers: usize,
    clock: Duration,
    changes: Vec<(Duration, CrewChange)>,
}

impl BusyNode {
    fn new(wanted: Elasticity) -> Self {
        BusyNode {
            workers: wanted.min.max(1),
            controller: Controller::new(wanted),
            clock: Duration::ZERO,
            changes: Vec::new(),
        }
    }

    fn run(&mut self, load: f64, time: Duration) {
        self.run_uneven(time, |_, workers| {
            vec![(load / workers as f64).min(1.0); workers]
        });
    }

    fn run_uneven(&mut self, time: Duration, mut busy: impl FnMut(usize, usize) -> Vec<f64>) {
        for tick in 0..time.as_millis() / TICK.as_millis() {
            self.clock += TICK;
            let busy = busy(tick as usize, self.workers);
            let decision = self.controller.observe(TICK, &busy);
            match decision {
                CrewChange::Stay => continue,
                CrewChange::Grow => self.workers += 1,
                CrewChange::Retire(index) => {
                    assert!(index < self.workers);
                    self.workers -= 1;
                }
            }
            self.changes.push((self.clock, decision));
        }
    }
}

#[test]
fn overload_brings_a_worker_within_a_second_and_quiet_takes_it_within_three() {
    let mut node = BusyNode::new(up_to(2));
    for cycle in 0..10_000 {
        let start = node.clock;
        node.run(1.4, seconds(3));
        assert_eq!(node.workers, 2, "cycle {cycle}");
        let after = node.changes[2 * cycle].0 - start;
        assert!(after <= seconds(1), "grew after {after:?}");

        let start = node.clock;
        node.run(0.2, seconds(3));
        assert_eq!(node.workers, 1, "cycle {cycle}");
        let after = node.changes[2 * cycle + 1].0 - start;
        assert!(after <= seconds(3), "retired after {after:?}");
    }
    assert_eq!(node.changes.len(), 20_000);
}

#[test]
fn a_load_for_many_workers_does_not_take_a_second_for_each() {
    let mut node = BusyNode::new(up_to(8));
    node.run(8.0, seconds(4));
    assert_eq!(node.workers, 8);
    node.run(0.0, seconds(8));
    assert_eq!(node.workers, 1);
}

#[test]
fn a_burst_shorter_than_the_patience_changes_nothing() {
    let mut node = BusyNode::new(up_to(4));
    for _ in 0..100 {
        node.run(1.0, Duration::from_millis(300));
        node.run(0.3, Duration::from_millis(700));
    }
    assert_eq!(node.changes, []);
}

#[test]
fn a_load_that_wavers_above_the_threshold_is_seen() {
    let mut node = BusyNode::new(up_to(2));
    node.run_uneven(seconds(2), |tick, workers| {
        vec![if tick % 4 == 3 { 0.7 } else { 1.0 }; workers]
    });
    assert_eq!(node.workers, 2);
}

#[test]
fn without_patience_it_is_still_the_load_that_counts() {
    let mut controller = Controller::new(Elasticity {
        grow_after: Duration::ZERO,
        retire_after: Duration::ZERO,
        ..up_to(8)
    });
    let tick = Duration::from_millis(100);
    for _ in 0..50 {
        assert_eq!(controller.observe(tick, &[0.6]), CrewChange::Stay);
    }
    assert_eq!(controller.observe(tick, &[0.9]), CrewChange::Grow);
    // With one Worker fewer, the other would have too much to do.
    for _ in 0..50 {
        assert_eq!(controller.observe(tick, &[0.4, 0.4]), CrewChange::Stay);
    }
    assert_eq!(controller.observe(tick, &[0.1, 0.1]), CrewChange::Retire(1));
}

#[test]
fn the_least_busy_worker_retires() {
    let mut controller = Controller::new(up_to(3));
    let busy = [0.2, 0.05, 0.3];
    let retired = (0..100)
        .map(|_| controller.observe(TICK, &busy))
        .find(|decision| *decision != CrewChange::Stay);
    assert_eq!(retired, Some(CrewChange::Retire(1)));
}

#[test]
fn there_are_never_fewer_than_wanted() {
    let wanted = Elasticity {
        min: 3,
        max: 2,
        ..Elasticity::default()
    };
    let mut controller = Controller::new(wanted);
    assert_eq!(controller.observe(TICK, &[0.0]), CrewChange::Grow);
    assert_eq!(controller.observe(TICK, &[0.0, 0.0]), CrewChange::Grow);
    for _ in 0..100 {
        assert_eq!(controller.observe(TICK, &[1.0, 1.0, 1.0]), CrewChange::Stay);
        assert_eq!(controller.observe(TICK, &[0.0, 0.0, 0.0]), CrewChange::Stay);
    }
}

proptest! {
    /// Under any steady load the number of Workers settles, after changes in one direction only; then there are enough
    /// Workers, and no more than needed.
    #[test]
    fn a_steady_load_is_served_by_a_steady_number(
        before in 0.0..10.0f64,
        load in 0.0..10.0f64,
        max in 1usize..10,
    ) {
        let mut node = BusyNode::new(up_to(max));
        node.run(before, seconds(10));
        let (changes, workers) = (node.changes.len(), node.workers);
        node.run(load, seconds(20));
        let kinds: Vec<bool> = node.changes[changes..]
            .iter()
            .map(|(_, decision)| *decision == CrewChange::Grow)
            .collect();
        prop_assert!(kinds.windows(2).all(|pair| pair[0] == pair[1]));
        prop_assert_eq!(kinds.len(), workers.abs_diff(node.workers));
        let mean = load / node.workers as f64;
        prop_assert!(node.workers == max || mean <= 0.8 + 1e-9);
        prop_assert!(node.workers == 1 || load / (node.workers - 1) as f64 >= 0.5 - 1e-9);
    }

    /// Invalid ratios do no harm, the limits hold, and changes keep their distance in time.
    #[test]
    fn bounds_hold_whatever_it_is_told(
        ticks in proptest::collection::vec(proptest::collection::vec(-1.0..2.0f64, 8), 1..300),
        strange in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(0.5)],
        (min, more) in (1usize..4, 0usize..5),
    ) {
        let wanted = Elasticity { min, max: min + more, ..Elasticity::default() };
        let mut node = BusyNode::new(wanted);
        let count = u32::try_from(ticks.len()).unwrap();
        node.run_uneven(TICK * count, |tick, workers| {
            let mut busy = ticks[tick][..workers].to_vec();
            busy[0] = if tick % 3 == 0 { strange } else { busy[0] };
            busy
        });
        prop_assert!((min..=min + more).contains(&node.workers));
        for pair in node.changes.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 > SETTLE);
        }
    }
}

#[test]
fn workers_that_are_busy_and_may_not_become_more_are_said_to_be_short_now_and_then() {
    for max in [1, 2] {
        let mut node = BusyNode::new(up_to(max));
        let mut shortage = Shortage::default();
        let mut said = Vec::new();
        for second in 0..200_u64 {
            // A pause in the middle.
            let load = if (90..100).contains(&second) {
                0.3
            } else {
                3.0
            };
            for _ in 0..10 {
                node.run(load, TICK);
                assert!(node.workers == max || !node.controller.is_short());
                if shortage.observe(TICK, node.controller.is_short()) {
                    said.push(second);
                }
            }
        }
        assert_eq!(said.len(), 4, "up to {max}: {said:?}");
        assert!(said[0] >= 5 && said[0] < 8, "{said:?}");
        assert!(said.windows(2).all(|two| two[1] - two[0] >= 60), "{said:?}");
    }
    let mut quiet = BusyNode::new(up_to(1));
    quiet.run(0.7, seconds(60));
    assert!(!quiet.controller.is_short());
}
