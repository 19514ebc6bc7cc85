//! Systems side by side: all labs are up, one at a time is loaded, in an order that rotates.

use anyhow::Context;

use super::Experiment;
use super::figures::Figures;
use super::kind::Kind;
use super::scene::{Scene, Shape};
use crate::bench::load::Outcome;

/// A run of the load generator must carry that part of the rate that it offered.
const CARRIED_SHARE: f64 = 0.93;

/// Makes a lab of every system.
///
/// # Errors
/// One cannot be made; the others are removed.
pub(super) fn scenes(experiment: &Experiment, shape: Shape) -> anyhow::Result<Vec<Scene>> {
    let kinds = experiment.kinds.iter();
    let up = kinds.map(|kind| {
        eprintln!("a lab of {kind}");
        Scene::up(*kind, shape, &experiment.tools)
    });
    up.collect()
}

/// Measures every system at every place in every round.
///
/// # Errors
/// Nothing was measured at all.
pub(super) fn run<Place: Copy>(
    scenes: &[Scene],
    rounds: usize,
    places: &[Place],
    figures: &mut Figures,
    mut measure: impl FnMut(&Scene, Place, usize, &mut Figures) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut measured = 0;
    let mut first = None;
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for (number, place) in places.iter().enumerate() {
            for turn in 0..scenes.len() {
                let scene = &scenes[(turn + round + number) % scenes.len()];
                match measure(scene, *place, round, figures) {
                    Ok(()) => measured += 1,
                    Err(error) => {
                        figures.problem(scene.kind, round, &error);
                        first.get_or_insert(error);
                    }
                }
            }
        }
    }
    match (measured, first) {
        (0, Some(error)) => Err(error).context("nothing was measured"),
        _ => Ok(()),
    }
}

/// Why a run does not count, if it does not.
///
/// # Errors
/// It had failures, or carried less than was offered.
pub(super) fn check(outcome: &Outcome, rate: Option<f64>) -> anyhow::Result<()> {
    anyhow::ensure!(outcome.errors.is_empty(), "errors: {:?}", outcome.errors);
    anyhow::ensure!(outcome.requests > 0, "no request was answered");
    let carried = outcome.requests as f64 / outcome.seconds;
    if let Some(rate) = rate {
        anyhow::ensure!(
            carried >= rate * CARRIED_SHARE,
            "carried {carried:.0} of {rate:.0} requests per second"
        );
    }
    Ok(())
}

/// Microseconds of processor time for each request: of the proxies, and of a server.
pub(super) fn cpu_us(outcome: &Outcome, of: &str) -> f64 {
    let used = outcome.cpu.get(of).copied().unwrap_or_default();
    used.cpu_ns as f64 / 1e3 / outcome.requests as f64
}

/// The same of the whole machine: of everything that runs on it, interrupts included.
pub(super) fn machine_us(outcome: &Outcome) -> f64 {
    let busy: f64 = outcome.cores.iter().sum();
    busy * outcome.seconds * 1e6 / outcome.requests as f64
}

/// The quotients that every experiment has: a node's proxy in a proxy for each pod, Heddle's and Envoy's.
pub(super) const BESIDE: [(usize, Kind); 2] = [(0, Kind::Pod), (1, Kind::Envoy)];
