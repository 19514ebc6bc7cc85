//! Systems side by side: all labs are up, one at a time is loaded, in an order that rotates.

use anyhow::Context;

use super::NodeExperiment;
use super::figures::Figures;
use super::kind::Kind;
use super::scene::{Scene, SceneShape};
use crate::load::Outcome;

/// Fraction of all cores that other processes may use where the figure is for the whole machine.
const OTHERS_SHARE: f64 = 0.15;

/// Makes a lab of every system.
///
/// # Errors
/// When one cannot be made; the others are removed.
pub(super) fn scenes(experiment: &NodeExperiment, shape: SceneShape) -> anyhow::Result<Vec<Scene>> {
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
/// When nothing was measured at all.
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

/// Microseconds of CPU time for each request, of all watched process trees whose name begins with `of`.
pub(super) fn cpu_us(outcome: &Outcome, of: &str) -> f64 {
    let accounts = outcome.cpu.iter().filter(|(name, _)| name.starts_with(of));
    let used_ns: u64 = accounts.map(|(_, used)| used.cpu_ns).sum();
    used_ns as f64 / 1e3 / outcome.requests as f64
}

/// The same for the whole machine: for everything that runs on it, interrupts included. `None` if other processes use
/// so much CPU time that the figure would be more theirs than ours.
pub(super) fn machine_us(outcome: &Outcome) -> Option<f64> {
    let all = outcome.cores.iter().sum::<f64>() * outcome.seconds;
    let ours: u64 = outcome.cpu.values().map(|used| used.cpu_ns).sum();
    let others = all - ours as f64 / 1e9;
    let most = OTHERS_SHARE * outcome.cores.len() as f64 * outcome.seconds;
    (others < most).then_some(all * 1e6 / outcome.requests as f64)
}

/// The systems with which every experiment compares a node's proxy, with the index of their ratios: a proxy for each
/// pod, Heddle's and Envoy's, and an Envoy for the node.
pub(super) const BESIDE: [(usize, Kind); 3] = [(0, Kind::Pod), (1, Kind::Envoy), (2, Kind::Shared)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Usage;

    #[test]
    fn the_whole_machine_counts_only_where_it_is_quiet() {
        let of = |cores: [f64; 2]| {
            let mut outcome = Outcome {
                seconds: 2.0,
                requests: 1000,
                cores: cores.into(),
                ..Outcome::default()
            };
            let used = Usage {
                cpu_ns: 400_000_000,
                user_share: 0.5,
            };
            outcome.cpu.insert("proxy".to_owned(), used);
            machine_us(&outcome)
        };
        assert_eq!(of([0.25, 0.0]), Some(500.0));
        assert_eq!(of([1.0, 1.0]), None);
    }
}
