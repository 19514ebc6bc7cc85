//! One node that reads nothing any more and one that answers late: what they cost the others.

use super::common::Health;
use super::run::{self, Found};
use super::stage::{Programs, Stage};
use super::{Mode, Times};

/// Pods of the mesh: 300 nodes, and 30 in a quick run.
const PODS: usize = 9_000;
const QUICK_PODS: usize = 900;
/// Rounds of a run without faults and one with them, and those of a quick run.
const ROUNDS: u32 = 3;
const QUICK_ROUNDS: u32 = 2;
/// The nodes that fail.
const DEAD: usize = 7;
const SLOW: usize = 11;

/// The runs of all rounds. The nodes that fail are left out of both.
#[derive(Debug, Default)]
pub(super) struct FaultRuns {
    pub(super) nodes: usize,
    pub(super) healthy: Vec<Found>,
    pub(super) faulty: Vec<Found>,
}

/// Measures with and without the faults, in turn, in one mesh.
///
/// # Errors
/// When something does not start, or a call of another node ends.
pub(super) async fn run(
    programs: &Programs,
    times: &Times,
    quick: bool,
) -> anyhow::Result<FaultRuns> {
    let (pods, rounds) = match quick {
        true => (QUICK_PODS, QUICK_ROUNDS),
        false => (PODS, ROUNDS),
    };
    let failing = [DEAD, SLOW];
    eprintln!("{pods} pods, with one dead and one slow node");
    let mut stage = Stage::new(programs, pods, Mode::OnDemand, &failing).await?;
    let mut runs = FaultRuns {
        nodes: stage.shape.nodes,
        ..FaultRuns::default()
    };
    for round in 1..=rounds {
        eprintln!("faults: round {round} of {rounds}");
        if round > 1 {
            stage.replace(&failing).await?;
        }
        runs.healthy
            .push(run::run(&mut stage, times, &failing).await?);
        stage.fleet.set_health(DEAD, Health::Dead);
        stage.fleet.set_health(SLOW, Health::Slow);
        runs.faulty
            .push(run::run(&mut stage, times, &failing).await?);
    }
    Ok(runs)
}
