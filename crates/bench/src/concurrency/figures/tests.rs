use std::collections::BTreeMap;

use super::*;
use crate::account::Usage;
use crate::concurrency::consumer::ConsumerCounts;
use crate::load::Outcome;
use crate::provider::Counts;

/// A run of a test.
pub(in crate::concurrency) fn run(qps: f64, max_ms: f64, errors: u64) -> ConcurrencyRun {
    ConcurrencyRun {
        qps,
        mean_ms: 1.0,
        p50_ms: 1.0,
        p99_ms: 2.0,
        max_ms,
        errors,
        wrong_hashes: 0,
        proxy_cores: 0.3,
        other_cores: 0.2,
        mean_at_each: [1.0, 2.0, 3.0],
        most_at_each: [2, 3, 4],
        throttled: [0.5, 0.25, 0.0],
    }
}

#[test]
fn the_best_and_the_worst_run_are_left_out_but_not_their_errors() {
    let runs = [
        run(100.0, 5.0, 0),
        run(10.0, 900.0, 7),
        run(110.0, 30.0, 0),
        run(120.0, 7.0, 1),
        run(900.0, 1.0, 0),
    ];
    let found = summary(&runs).expect("runs");
    assert_eq!((found.qps, found.errors), (110.0, 8));
    assert_eq!(found.max_ms, 7.0, "the median of the maxima");
    assert_eq!(found.busiest_core(), 0.3);
    assert_eq!(found.mean_at_each, [1.0, 2.0, 3.0]);
    assert!(!found.is_right());
    assert_eq!(summary(&[]), None);
}

#[test]
fn connections_are_shared_out_as_requests_were_at_the_providers() {
    assert_eq!(shared_out(512, [67.0, 133.0, 200.0]), [86, 170, 256]);
    assert_eq!(shared_out(512, [170.0, 170.0, 170.0]), [171, 171, 170]);
    assert_eq!(shared_out(128, [0.0; 3]), [43, 43, 42]);
    for connections in [1, 128, 511] {
        let shares = shared_out(connections, [0.3, 17.1, 90.7]);
        assert_eq!(shares.iter().sum::<u32>(), connections);
    }
}

#[test]
fn what_differs_by_no_more_than_its_runs_is_equal() {
    let runs = |qps: [f64; 4], max_ms| qps.map(|qps| run(qps, max_ms, 0));
    let ours = runs([90.0, 100.0, 104.0, 130.0], 5.0);
    let theirs = runs([80.0, 98.0, 103.0, 120.0], 10.0);
    let found = compared(&ours, &theirs);
    assert_eq!(found["qps"].verdict, Verdict::Equal);
    assert!((found["qps"].ratio - 102.0 / 100.5).abs() < 1e-9);
    assert_eq!(found["p99"].verdict, Verdict::Equal);
    assert_eq!(found["max"].verdict, Verdict::Better);
    let spread = found["qps"].spread().expect("rounds");
    assert_eq!((spread.rounds.len(), spread.max), (4, 90.0 / 80.0));
    assert_eq!(spread.median, found["qps"].ratio);
    let steady = runs([1000.0; 4], 5.0);
    let a_little_more = compared(&runs([1001.0; 4], 5.0), &steady);
    assert_eq!(a_little_more["qps"].verdict, Verdict::Equal);
    let slower = compared(&runs([50.0, 50.0, 50.0, 50.0], 10.0), &theirs);
    assert_eq!(slower["qps"].verdict, Verdict::Worse);
    assert!(compared(&ours, &[]).is_empty());
}

#[test]
fn each_figure_is_taken_where_it_leaves_least() {
    let runs = |qps, max_ms| vec![run(qps, max_ms, 0); 3];
    let ours = runs(100.0, 10.0);
    let (fast, even) = (runs(125.0, 20.0), runs(100.0, 5.0));
    let found = least_left(&ours, &[&fast, &even, &[]]);
    let least = |name| {
        let (index, ratios): &(usize, SystemRatios) = &found[name];
        (*index, ratios.ratio)
    };
    assert_eq!(least("qps"), (0, 0.8));
    assert_eq!(least("p99"), (0, 1.0));
    assert_eq!(least("max"), (1, 2.0));
    assert!(least_left(&ours, &[]).is_empty());
}

#[test]
fn of_a_few_runs_the_median_of_each_figure_counts() {
    let runs = [run(100.0, 9.0, 0), run(130.0, 7.0, 1), run(110.0, 8.0, 0)];
    let found = medians(&runs).expect("runs");
    assert_eq!((found.qps, found.max_ms, found.errors), (110.0, 8.0, 1));
    assert_eq!(medians(&[]), None);
}

#[test]
fn a_run_is_read_off_load_generator_consumer_and_providers() {
    let usage = |cpu_ns| Usage {
        cpu_ns,
        user_share: 0.5,
    };
    let outcome = Outcome {
        seconds: 2.0,
        requests: 1_000,
        mean_us: 51_000.0,
        errors: BTreeMap::from([("status not 200".to_owned(), 2)]),
        cpu: BTreeMap::from([
            ("proxy".to_owned(), usage(1_000_000_000)),
            ("client".to_owned(), usage(200_000_000)),
            ("consumer".to_owned(), usage(200_000_000)),
            ("provider".to_owned(), usage(400_000_000)),
        ]),
        ..Outcome::default()
    };
    let counts = |most| Counts {
        most,
        ..Counts::default()
    };
    let found = ConcurrencyRun::of(&RunOutcome {
        outcome,
        consumer: ConsumerCounts {
            wrong_hashes: 1,
            ..ConsumerCounts::default()
        },
        providers: [counts(7), counts(8), counts(9)],
        mean_at_each: [5.0, 6.0, 7.0],
        throttled: [0.5, 0.1, 0.0],
    });
    assert_eq!((found.qps, found.mean_ms, found.errors), (500.0, 51.0, 2));
    assert_eq!((found.proxy_cores, found.other_cores), (0.5, 0.4));
    assert_eq!((found.wrong_hashes, found.most_at_each), (1, [7, 8, 9]));
}
