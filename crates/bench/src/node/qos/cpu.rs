//! `qos-cpu`: batch work that takes every processor.
//!
//! While the service is alone, a filler keeps the processors awake in the scheduler's idle class, so that waking them
//! costs the same in all conditions.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use rustix::process::Signal;
use serde_json::json;

use super::{Agent, Condition, Latency, report_latency, rounds, seconds, web_service};
use crate::child::{Child, Confinement};
use crate::install;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::Spread;

/// Time that an answer takes the web service, which so has a fifth of a processor to do.
const WORK_US: u64 = 300;
/// Threads of the batch work for each processor.
const THREADS_PER_CORE: usize = 2;
/// Where the batch work and the filler are: groups beside those of the pods.
const BATCH: &str = "node-one/pods/batch";
const FILLER: &str = "node-one/pods/filler";
/// A round counts when the batch work makes the p99 at least so many times that alone.
const DISTURBED: f64 = 3.0;

/// What was measured of one condition in one round.
#[derive(Debug, Clone, Copy)]
struct BesideBatch {
    latency: Latency,
    /// Processors that the batch work had, and processors that were idle besides.
    batch: f64,
    idle: f64,
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let stress = install::tool("stress-ng", "stress-ng")?;
    let mut experiment = NodeExperiment::new(options, "qos-cpu", &[Kind::Node])?;
    let mut seen = Vec::new();
    let measured = measure(&experiment, &stress, &mut seen);
    report(&mut experiment, &seen);
    experiment.conclude(measured, &[])
}

fn measure(
    experiment: &NodeExperiment,
    stress: &Path,
    seen: &mut Vec<[BesideBatch; 3]>,
) -> anyhow::Result<()> {
    let shape = SceneShape {
        near: 1,
        work_us: WORK_US,
        ..SceneShape::default()
    };
    let scene = Scene::up(Kind::Node, shape, &experiment.tools)?;
    let batch = Batch::new(&scene, stress, &experiment.tools.heddle)?;
    rounds(experiment, seen, |condition| {
        batch.measure(&scene, condition, seconds(experiment))
    })
}

/// The batch work, and what holds it back.
struct Batch {
    stress: PathBuf,
    agent: Agent,
    group: LabGroup,
    filler: LabGroup,
}

impl Batch {
    fn new(scene: &Scene, stress: &Path, heddle: &Path) -> anyhow::Result<Batch> {
        let (group, filler) = (scene.group(BATCH), scene.group(FILLER));
        group.create()?;
        filler.create()?;
        filler.make_idle()?;
        Ok(Batch {
            stress: stress.to_owned(),
            agent: Agent::new(scene, heddle, vec![group.clone()])?,
            group,
            filler,
        })
    }

    fn measure(
        &self,
        scene: &Scene,
        condition: Condition,
        seconds: u32,
    ) -> anyhow::Result<BesideBatch> {
        let agent = match condition {
            Condition::On => Some(self.agent.start()?),
            Condition::Alone | Condition::Off => None,
        };
        let group = match condition {
            Condition::Alone => &self.filler,
            Condition::Off | Condition::On => &self.group,
        };
        let mut work = self.work(group)?;
        let before = Use::now(group)?;
        let latency = web_service(scene, seconds);
        let used = Use::now(group)?.since(before);
        work.stop(Signal::KILL);
        drop(agent);
        Ok(BesideBatch {
            latency: latency?,
            batch: used.group,
            idle: used.idle,
        })
    }

    /// Starts the batch work in a group.
    fn work(&self, group: &LabGroup) -> anyhow::Result<Child> {
        let cores = thread::available_parallelism()?.get();
        let threads = (cores * THREADS_PER_CORE).to_string();
        let command: Vec<OsString> = [
            self.stress.as_os_str(),
            "--cpu".as_ref(),
            threads.as_ref(),
            "--quiet".as_ref(),
        ]
        .map(OsString::from)
        .into();
        let place = Confinement {
            groups: group.folders()?,
            ..Confinement::default()
        };
        let log = self.agent.folder.path().join("stress.log");
        Child::start("stress-ng", &place, &command, &log, false)
    }
}

/// Use of the processors up to a moment.
#[derive(Debug, Clone, Copy)]
struct Use {
    at: Instant,
    /// Seconds of processors: of the group, and idle.
    group: f64,
    idle: f64,
}

/// Processors that were used on average.
struct Used {
    group: f64,
    idle: f64,
}

impl Use {
    fn now(group: &LabGroup) -> anyhow::Result<Use> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat")?;
        // user, nice, system, idle, iowait, in ticks of 10 ms.
        let ticks = line.split_ascii_whitespace().skip(4).take(2);
        let ticks: u64 = ticks.filter_map(|number| number.parse::<u64>().ok()).sum();
        Ok(Use {
            at: Instant::now(),
            group: group.used_s()?,
            idle: ticks as f64 / 100.0,
        })
    }

    fn since(self, before: Use) -> Used {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        Used {
            group: (self.group - before.group) / seconds,
            idle: (self.idle - before.idle) / seconds,
        }
    }
}

fn report(experiment: &mut NodeExperiment, seen: &[[BesideBatch; 3]]) {
    let findings = &mut experiment.runner.findings;
    let counted = report_latency(findings, seen, |seen| seen.latency, ("cpu", DISTURBED));
    let share = counted
        .iter()
        .map(|[_, _, on]| on.batch / (on.batch + on.idle));
    findings.ratio(
        "batch_share_of_idle",
        Spread::of(&share.collect::<Vec<_>>()),
    );
    for round in seen {
        for (condition, seen) in Condition::ALL.into_iter().zip(round) {
            findings.rows.push(json!({
                "condition": condition.name(),
                "p50_us": seen.latency.p50_us,
                "p99_us": seen.latency.p99_us,
                "max_us": seen.latency.max_us,
                "requests_per_s": seen.latency.per_s,
                "batch_processors": seen.batch,
                "idle_processors": seen.idle,
            }));
        }
    }
}
