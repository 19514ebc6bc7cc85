//! `qos-cpu`: batch work that takes every processor.
//!
//! The batch work is several pods, as on a node that is filled up with it: each pod has the same weight as the web
//! service, and the service has to wait for all of them. While the service is alone, a filler keeps the processors
//! awake in the scheduler's idle class, so that waking them costs the same in all conditions.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::Signal;
use serde_json::json;

use super::agent::{Agent, AgentPod};
use super::over_time::{self, ALONE, ON, OTHER, Samples};
use super::{
    CONNECTIONS, Condition, Latency, RATE, ROUNDS, report_latency, rounds, seconds, web_service,
};
use crate::child::{Child, Confinement};
use crate::install;
use crate::node::chart::Panel;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape, finish};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::Spread;

/// Time that an answer takes the web service, which so has a fifth of a processor to do.
const WORK_US: u64 = 300;
/// Pods of batch work, and threads of each for each processor.
const BATCH_PODS: usize = 8;
const THREADS_PER_CORE: usize = 1;
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
    let (measured, panels) = match measured {
        Ok(panels) => (Ok(()), panels),
        Err(error) => (Err(error), Vec::new()),
    };
    experiment.conclude(measured, &panels)
}

fn measure(
    experiment: &NodeExperiment,
    stress: &Path,
    seen: &mut Vec<[BesideBatch; 3]>,
) -> anyhow::Result<Vec<Panel>> {
    let shape = SceneShape {
        near: 1,
        work_us: WORK_US,
        ..SceneShape::default()
    };
    let scene = Scene::up(Kind::Node, shape, &experiment.tools)?;
    let batch = Batch::new(&scene, stress, &experiment.tools.heddle)?;
    rounds(experiment, ROUNDS, seen, |condition| {
        batch.measure(&scene, condition, seconds(experiment))
    })?;
    batch.over_time(&scene, seconds(experiment))
}

/// The batch work, and what holds it back.
struct Batch {
    stress: PathBuf,
    agent: Agent,
    groups: Vec<LabGroup>,
    filler: Vec<LabGroup>,
}

impl Batch {
    fn new(scene: &Scene, stress: &Path, heddle: &Path) -> anyhow::Result<Batch> {
        let of = |prefix: &str| -> anyhow::Result<Vec<LabGroup>> {
            let all = (0..BATCH_PODS).map(|number| scene.group(&format!("{prefix}{number}")));
            let all: Vec<LabGroup> = all.collect();
            all.iter().try_for_each(LabGroup::create)?;
            Ok(all)
        };
        let (groups, filler) = (of(BATCH)?, of(FILLER)?);
        filler.iter().try_for_each(LabGroup::make_idle)?;
        let pods = groups.iter().cloned().map(AgentPod::offline);
        Ok(Batch {
            stress: stress.to_owned(),
            agent: Agent::new(scene, heddle, pods.collect(), "")?,
            groups,
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
        let groups = match condition {
            Condition::Alone => &self.filler,
            Condition::Off | Condition::On => &self.groups,
        };
        let work = self.work(groups)?;
        let before = Use::now(groups)?;
        let latency = web_service(scene, seconds);
        let used = Use::now(groups)?.since(before);
        stop(work);
        drop(agent);
        Ok(BesideBatch {
            latency: latency?,
            batch: used.groups,
            idle: used.idle,
        })
    }

    /// One run for the picture: alone, then beside the batch work, then with node QoS.
    fn over_time(&self, scene: &Scene, seconds: u32) -> anyhow::Result<Vec<Panel>> {
        let part = Duration::from_secs(seconds.into());
        let (rate, all) = (RATE.to_string(), (3 * seconds).to_string());
        let slice = over_time::SLICE.as_millis().to_string();
        let filler = self.work(&self.filler)?;
        let load = scene.start_load(
            &[scene.target("near0")?],
            &[
                "--connections",
                CONNECTIONS,
                "--rate",
                &rate,
                "--warm-up",
                "0",
                "--seconds",
                &all,
                "--history",
                &slice,
            ],
        )?;
        let mut uses = Samples::begin();
        let now = || Use::now(&self.groups);
        uses.take_until(part, now)?;
        stop(filler);
        let work = self.work(&self.groups)?;
        uses.take_until(2 * part, now)?;
        let agent = self.agent.start()?;
        uses.take_until(3 * part, now)?;
        let outcome = finish(load);
        stop(work);
        drop(agent);
        let outcome = outcome?;
        let latency = |of: fn(&crate::load::Slice) -> f64| {
            let slices = outcome.history.iter();
            slices.map(|slice| (slice.at_s, of(slice) / 1e3)).collect()
        };
        let parts = format!(
            "alone, from {seconds} s beside batch work, from {} s with node QoS",
            2 * seconds
        );
        Ok(vec![
            over_time::panel(
                &format!("response time (ms): {parts}"),
                vec![
                    ("p99", ON, latency(|slice| slice.p99_us)),
                    ("p50", ALONE, latency(|slice| slice.p50_us)),
                ],
            ),
            over_time::panel(
                "processors that batch work had",
                vec![(
                    "batch work",
                    OTHER,
                    over_time::rates(&uses.points(|seen| seen.groups)),
                )],
            ),
        ])
    }

    /// Starts the batch work in each of the groups.
    fn work(&self, groups: &[LabGroup]) -> anyhow::Result<Vec<Child>> {
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
        let start = |(number, group): (usize, &LabGroup)| {
            let place = Confinement {
                groups: group.folders()?,
                ..Confinement::default()
            };
            let log = self.agent.folder().join(format!("stress{number}.log"));
            Child::start("stress-ng", &place, &command, &log, false)
        };
        groups.iter().enumerate().map(start).collect()
    }
}

fn stop(work: Vec<Child>) {
    for mut one in work {
        one.stop(Signal::KILL);
    }
}

/// Use of the processors up to a moment.
#[derive(Debug, Clone, Copy)]
struct Use {
    at: Instant,
    /// Seconds of processors: of the groups, and idle.
    groups: f64,
    idle: f64,
}

/// Processors that were used on average.
struct Used {
    groups: f64,
    idle: f64,
}

impl Use {
    fn now(groups: &[LabGroup]) -> anyhow::Result<Use> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat")?;
        // user, nice, system, idle, iowait, in ticks of 10 ms.
        let ticks = line.split_ascii_whitespace().skip(4).take(2);
        let ticks: u64 = ticks.filter_map(|number| number.parse::<u64>().ok()).sum();
        let used: anyhow::Result<Vec<f64>> = groups.iter().map(LabGroup::used_s).collect();
        Ok(Use {
            at: Instant::now(),
            groups: used?.iter().sum(),
            idle: ticks as f64 / 100.0,
        })
    }

    fn since(self, before: Use) -> Used {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        Used {
            groups: (self.groups - before.groups) / seconds,
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
