use super::super::schedule::RATE;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Two seconds of changes, of which the second one counts.
fn schedule(pods: usize) -> Schedule {
    Schedule::new(Instant::now(), 0, (SECOND, SECOND), (pods, RATE))
}

#[test]
fn a_change_is_there_when_it_has_come_to_the_last_of_its_nodes() {
    let shape = Shape::new(1_000);
    let schedule = schedule(1_000);
    let mut ledger = Ledger::new(schedule, &shape, Told::Users, &[]);
    let change = 300;
    let users = shape.users(service_of(schedule.pod(change))).to_vec();
    for (behind, node) in (1..).zip(&users) {
        assert_eq!(ledger.open(), 400);
        ledger.came(
            *node,
            change,
            &shape,
            schedule.due(change) + behind * SECOND,
        );
    }
    assert_eq!(ledger.open(), 399);
    let pushed = ledger.pushed();
    assert_eq!(pushed.took, [SECOND * u32::try_from(users.len()).unwrap()]);
    assert_eq!(pushed.missed, 199);
    assert_eq!((ledger.delivered, ledger.merged), (users.len() as u64, 0));
}

#[test]
fn a_later_change_of_the_pod_stands_for_an_earlier_one() {
    let shape = Shape::new(100);
    let schedule = schedule(100);
    let mut ledger = Ledger::new(schedule, &shape, Told::All, &[]);
    // The pods come again after a hundred changes.
    assert_eq!(schedule.pod(7), schedule.pod(207));
    for node in 0..shape.nodes {
        ledger.came(node, 207, &shape, schedule.due(210));
        // What comes late is no news.
        ledger.came(node, 107, &shape, schedule.due(300));
    }
    assert_eq!(ledger.open(), 400 - 3);
    assert_eq!((ledger.delivered, ledger.merged), (4, 8));
}

#[test]
fn nodes_that_do_not_use_a_service_are_strangers_to_its_changes() {
    let shape = Shape::new(1_000);
    let schedule = schedule(1_000);
    let mut ledger = Ledger::new(schedule, &shape, Told::Users, &[]);
    let users = shape.users(service_of(schedule.pod(0)));
    let stranger = (0..shape.nodes).find(|node| !users.contains(node));
    ledger.came(stranger.unwrap(), 0, &shape, schedule.due(1));
    assert_eq!((ledger.strangers, ledger.delivered), (1, 0));
}

#[test]
fn nothing_is_expected_of_nodes_that_are_left_out() {
    let shape = Shape::new(100);
    let schedule = schedule(100);
    let mut ledger = Ledger::new(schedule, &shape, Told::Users, &[1, 2]);
    ledger.came(1, 0, &shape, schedule.due(1));
    for node in [0, 3] {
        ledger.came(node, 0, &shape, schedule.due(1));
    }
    assert_eq!(ledger.open(), 399);
    assert_eq!(ledger.delivered, 2);
    assert!((ledger.pushed().nodes - 2.0).abs() < 1e-9);
}

#[test]
fn changes_of_an_earlier_run_do_not_count() {
    let shape = Shape::new(100);
    let schedule = Schedule::new(Instant::now(), 1_000, (SECOND, SECOND), (100, RATE));
    let mut ledger = Ledger::new(schedule, &shape, Told::Users, &[]);
    ledger.came(0, 999, &shape, Instant::now());
    assert_eq!(ledger.delivered, 0);
}

#[test]
fn quantiles_are_values_that_occurred() {
    let all: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
    assert_eq!(quantile_ms(&all, 0.5), Some(50.0));
    assert_eq!(quantile_ms(&all, 0.99), Some(99.0));
    assert_eq!(quantile_ms(&all, 1.0), Some(100.0));
    assert_eq!(quantile_ms(&[], 0.5), None);
}
