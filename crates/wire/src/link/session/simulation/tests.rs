use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;

fn add(all: &mut Tally, one: &Tally) {
    all.streams += one.streams;
    all.refused += one.refused;
    all.reset += one.reset;
    all.lost += one.lost;
    all.connections += one.connections;
    all.resumed += one.resumed;
    all.given_up += one.given_up;
    all.restarts += one.restarts;
    all.dead += one.dead;
    all.bytes += one.bytes;
    all.waits += one.waits;
}

fn run(seeds: std::ops::Range<u64>, steps: usize) -> Tally {
    let mut all = Tally::default();
    for seed in seeds {
        match catch_unwind(|| World::run(Choices::seed(seed), steps)) {
            Ok(one) => add(&mut all, &one),
            Err(panic) => {
                eprintln!("seed {seed} with {steps} steps");
                resume_unwind(panic);
            }
        }
    }
    println!("{all:?}");
    all
}

#[test]
fn whatever_the_network_does_streams_are_whole() {
    let all = run(0..2000, 120);
    // The random choices reach every case.
    assert!(all.streams > 10_000 && all.bytes > 20_000_000, "{all:?}");
    let rare = [all.refused, all.reset, all.lost, all.resumed];
    assert!(rare.iter().all(|&times| times > 100), "{all:?}");
    assert!(
        all.restarts > 10 && all.dead > 10 && all.waits > 100,
        "{all:?}"
    );
}

#[test]
fn a_session_lives_long() {
    run(0..4, 5000);
}

/// A long run: `cargo test --release -p heddle-wire -- --ignored --nocapture link`.
#[test]
#[ignore = "takes many minutes"]
fn whatever_the_network_does_for_long_streams_are_whole() {
    run(1_000_000..1_200_000, 500);
    run(2_000_000..2_000_500, 20_000);
}

#[test]
fn scripts_are_worlds_too() {
    let mut choices = Choices::seed(1);
    for _ in 0..50 {
        let script: Vec<u8> = (0..2000).map(|_| choices.below(256) as u8).collect();
        let run = catch_unwind(AssertUnwindSafe(|| {
            World::run(Choices::script(&script), usize::MAX)
        }));
        assert!(run.is_ok());
    }
}
