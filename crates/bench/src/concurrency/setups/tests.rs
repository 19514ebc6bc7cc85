use super::*;
use crate::concurrency::figures::run;
use crate::concurrency::plan::ROOMS;

const SETUPS: [EnvoySetup; 12] = TOLD;

/// What a setup has shown: requests per second, p99, maximum.
fn shown(index: usize, qps: f64, p99_ms: f64, max_ms: f64) -> (EnvoySetup, ConcurrencyRun) {
    let shown = ConcurrencyRun {
        p99_ms,
        ..run(qps, max_ms, 0)
    };
    (SETUPS[index], shown)
}

#[test]
fn each_figure_has_its_best_of_those_that_carry_as_much() {
    let mut failed = shown(5, 5000.0, 50.0, 60.0);
    failed.1.errors = 1;
    let mut wrong = shown(6, 5000.0, 50.0, 60.0);
    wrong.1.wrong_hashes = 1;
    let screened = [
        shown(0, 4000.0, 300.0, 900.0),
        shown(1, 3985.0, 200.0, 950.0),
        shown(2, 3970.0, 290.0, 800.0),
        shown(3, 3900.0, 100.0, 110.0),
        failed,
        wrong,
    ];
    let found = best(&screened).expect("sound ones");
    assert_eq!(found.figures_of(&SETUPS[0]), ["qps"]);
    assert_eq!(found.figures_of(&SETUPS[1]), ["p99"]);
    assert_eq!(found.figures_of(&SETUPS[2]), ["max"]);
    assert!(found.figures_of(&SETUPS[3]).is_empty());
    assert_eq!(found.each(), sorted([SETUPS[0], SETUPS[1], SETUPS[2]]));
    let alone = best(&screened[3..]).expect("a sound one");
    assert_eq!(alone.each(), [SETUPS[3]]);
    assert_eq!(best(&screened[4..]), None);
}

fn sorted<const COUNT: usize>(mut setups: [EnvoySetup; COUNT]) -> [EnvoySetup; COUNT] {
    setups.sort();
    setups
}

#[test]
fn what_is_the_same_adds_no_setup() {
    let screened = [
        shown(0, 4000.0, 301.0, 801.0),
        shown(1, 3990.0, 300.0, 900.0),
        shown(2, 3980.0, 310.0, 800.0),
    ];
    let found = best(&screened).expect("sound ones");
    assert_eq!(found.each(), [SETUPS[0]]);
    let screened = [
        shown(0, 4000.0, 400.0, 900.0),
        shown(1, 3990.0, 300.0, 803.0),
        shown(2, 3980.0, 310.0, 800.0),
    ];
    let found = best(&screened).expect("sound ones");
    assert_eq!(found.figures_of(&SETUPS[1]), ["p99", "max"]);
}

#[test]
fn what_is_far_behind_after_one_run_is_not_run_again() {
    assert!(may_be_best(&run(975.0, 1.0, 0), 1000.0));
    assert!(!may_be_best(&run(965.0, 1.0, 0), 1000.0));
    assert!(!may_be_best(&run(2000.0, 1.0, 1), 1000.0));
}

#[test]
fn every_candidate_has_a_name_of_its_own_and_room_is_known_only_where_it_is_told() {
    for room in ROOMS {
        let candidates = EnvoySetup::candidates(&room);
        let mut names: Vec<String> = candidates.iter().map(EnvoySetup::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), candidates.len());
        let knows = |setup: &EnvoySetup| setup.weights != Weights::None;
        assert!(candidates.iter().all(|setup| knows(setup) == room.told));
    }
}

#[test]
fn all_hosts_are_scanned_only_where_weights_are_equal() {
    let mut all = UNTOLD.iter().chain(&TOLD);
    let equal = |weights| matches!(weights, Weights::None | Weights::Listed);
    assert!(all.all(|setup| setup.policy != Policy::FullScan || equal(setup.weights)));
}
