//! `heddle-lab bench qos-cpu`: a latency-sensitive web service behind the mesh, and batch work that takes every
//! processor, with and without node QoS.
//!
//! Three conditions, in every round one after another in an order that rotates: the web service alone; beside batch
//! work as Kubernetes would run it, with equal weight; and the same with `heddle qos`. While the service is alone, a
//! filler keeps the processors awake in the scheduler's idle class, so that waking them costs the same in all
//! conditions.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use serde_json::json;

use super::group::LabGroup;
use super::kind::Kind;
use super::scene::{Scene, SceneShape, finish};
use super::{NodeBenchOptions, NodeExperiment};
use crate::child::{Child, Confinement};
use crate::install;
use crate::statistics::{Spread, ratio};

/// Time that an answer takes the web service.
const WORK_US: u64 = 300;
/// Requests per second, over this number of connections: the service has a quarter of a processor to do.
const RATE: &str = "600";
const CONNECTIONS: &str = "32";
/// Threads of the batch work for each processor.
const THREADS_PER_CORE: usize = 2;
/// Where the batch work and the filler are: groups beside those of the pods.
const BATCH: &str = "node-one/pods/batch";
const FILLER: &str = "node-one/pods/filler";
/// A round counts when the batch work disturbs at least this much.
const DISTURBED: f64 = 3.0;
/// Time for everything to settle before the measurement.
const SETTLE: Duration = Duration::from_millis(700);

/// What runs beside the web service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Alone,
    Off,
    On,
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Alone, Condition::Off, Condition::On];

    fn name(self) -> &'static str {
        match self {
            Condition::Alone => "alone",
            Condition::Off => "off",
            Condition::On => "on",
        }
    }
}

/// What was measured of one condition in one round.
#[derive(Debug, Clone, Copy)]
struct Seen {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    per_s: f64,
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
    let count = experiment.rounds(3, 12);
    let mut rounds = Vec::new();
    let measured = measure(&experiment, &stress, count, &mut rounds);
    report(&mut experiment, &rounds);
    experiment.conclude(measured, &[])
}

fn measure(
    experiment: &NodeExperiment,
    stress: &Path,
    count: usize,
    rounds: &mut Vec<[Seen; 3]>,
) -> anyhow::Result<()> {
    let shape = SceneShape {
        near: 1,
        work_us: WORK_US,
        ..SceneShape::default()
    };
    let scene = Scene::up(Kind::Node, shape, &experiment.tools)?;
    let stage = Stage::new(&scene, stress, &experiment.tools.heddle)?;
    let seconds = if experiment.runner.quick { "2" } else { "6" };
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        let mut seen = [None; 3];
        for turn in 0..3 {
            let number = (turn + round) % 3;
            seen[number] = Some(stage.condition(&scene, Condition::ALL[number], seconds)?);
        }
        let [Some(alone), Some(off), Some(on)] = seen else {
            continue;
        };
        rounds.push([alone, off, on]);
    }
    Ok(())
}

/// The groups and programs beside the web service.
struct Stage {
    stress: PathBuf,
    heddle: PathBuf,
    folder: tempfile::TempDir,
    batch: LabGroup,
    filler: LabGroup,
}

impl Stage {
    fn new(scene: &Scene, stress: &Path, heddle: &Path) -> anyhow::Result<Stage> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let (batch, filler) = (scene.group(BATCH), scene.group(FILLER));
        batch.create()?;
        filler.create()?;
        filler.make_idle()?;
        let manifests = folder.path().join("pods");
        fs::create_dir(&manifests)?;
        let manifest = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: batch\n  labels: \
             {{volcano.sh/preemptable: \"true\"}}\n  annotations: {{heddle.dev/cgroup: {}}}\nspec: {{}}\n",
            batch.path().display()
        );
        fs::write(manifests.join("batch.yaml"), manifest)?;
        Ok(Stage {
            stress: stress.to_owned(),
            heddle: heddle.to_owned(),
            folder,
            batch,
            filler,
        })
    }

    fn condition(
        &self,
        scene: &Scene,
        condition: Condition,
        seconds: &str,
    ) -> anyhow::Result<Seen> {
        let agent = match condition {
            Condition::On => Some(self.agent()?),
            Condition::Alone | Condition::Off => None,
        };
        let group = match condition {
            Condition::Alone => &self.filler,
            Condition::Off | Condition::On => &self.batch,
        };
        let mut work = self.work(group)?;
        settle();
        let load = scene.start_load(
            &[scene.target("near0")?],
            &[
                "--connections",
                CONNECTIONS,
                "--rate",
                RATE,
                "--seconds",
                seconds,
            ],
        )?;
        // Its warm-up has 0.3 s; the window of the processors begins and ends within that of the requests.
        let before = Use::now(group)?;
        let outcome = finish(load);
        let used = Use::now(group)?.since(before);
        work.stop(Signal::KILL);
        if let Some(mut agent) = agent {
            agent.stop(Signal::TERM);
        }
        let outcome = outcome?;
        anyhow::ensure!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        Ok(Seen {
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            max_us: outcome.max_us,
            per_s: outcome.per_s(),
            batch: used.group,
            idle: used.idle,
        })
    }

    /// Starts `heddle qos run`, and waits until the batch work yields.
    fn agent(&self) -> anyhow::Result<Child> {
        let folder = self.folder.path();
        let command: Vec<OsString> = [
            self.heddle.as_os_str(),
            "qos".as_ref(),
            "run".as_ref(),
            folder.join("pods").as_os_str(),
            "--state".as_ref(),
            folder.join("state").as_os_str(),
        ]
        .map(OsString::from)
        .into();
        let log = folder.join("qos.log");
        let mut agent = Child::start("heddle qos", &Confinement::default(), &command, &log, false)?;
        agent.wait_until(Duration::from_secs(10), || {
            self.batch.is_idle().then_some(())
        })?;
        Ok(agent)
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
        let log = self.folder.path().join("stress.log");
        Child::start("stress-ng", &place, &command, &log, false)
    }
}

fn settle() {
    let end = std::time::Instant::now() + SETTLE;
    while let Some(left) = end.checked_duration_since(std::time::Instant::now()) {
        thread::park_timeout(left);
    }
}

/// Use of the processors up to a moment, or between two.
#[derive(Debug, Clone, Copy)]
struct Use {
    at: std::time::Instant,
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
            at: std::time::Instant::now(),
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

fn report(experiment: &mut NodeExperiment, rounds: &[[Seen; 3]]) {
    let findings = &mut experiment.runner.findings;
    for (number, condition) in Condition::ALL.into_iter().enumerate() {
        let of = |figure: fn(&Seen) -> f64| {
            let all: Vec<f64> = rounds.iter().map(|round| figure(&round[number])).collect();
            Spread::of(&all)
        };
        let shown = |figure: fn(&Seen) -> f64| {
            of(figure).map_or_else(
                || "-".to_owned(),
                |spread| format!("{:.0} [{:.0}–{:.0}]", spread.median, spread.min, spread.max),
            )
        };
        findings.say(format!(
            "{:6} p50 {} µs, p99 {} µs, maximum {} µs, {} requests/s, batch {:.2} processors, idle {:.2}",
            condition.name(),
            shown(|seen| seen.p50_us),
            shown(|seen| seen.p99_us),
            shown(|seen| seen.max_us),
            shown(|seen| seen.per_s),
            of(|seen| seen.batch).map_or(0.0, |spread| spread.median),
            of(|seen| seen.idle).map_or(0.0, |spread| spread.median),
        ));
        findings.value(
            format!("p99_us_{}", condition.name()),
            of(|seen| seen.p99_us),
        );
    }
    // Where the batch work does not disturb, there is nothing to protect from.
    let counted: Vec<&[Seen; 3]> = rounds
        .iter()
        .filter(|[alone, off, _]| off.p99_us >= DISTURBED * alone.p99_us)
        .collect();
    if counted.len() < rounds.len() {
        findings.problem(format!(
            "{} of {} rounds do not count: without QoS their p99 is below {DISTURBED} times that alone",
            rounds.len() - counted.len(),
            rounds.len()
        ));
    }
    let p99 = |number: usize| -> Vec<Option<f64>> {
        counted
            .iter()
            .map(|round| Some(round[number].p99_us))
            .collect()
    };
    let [alone, off, on] = [p99(0), p99(1), p99(2)];
    findings.ratio("cpu_p99_off_vs_alone", ratio(&off, &alone));
    findings.ratio("cpu_p99_on_vs_alone", ratio(&on, &alone));
    let share = counted
        .iter()
        .map(|[_, _, on]| on.batch / (on.batch + on.idle));
    let share: Vec<f64> = share.collect();
    findings.ratio("batch_share_of_idle", Spread::of(&share));
    for round in rounds {
        for (condition, seen) in Condition::ALL.into_iter().zip(round) {
            findings.rows.push(json!({
                "condition": condition.name(),
                "p50_us": seen.p50_us,
                "p99_us": seen.p99_us,
                "max_us": seen.max_us,
                "requests_per_s": seen.per_s,
                "batch_processors": seen.batch,
                "idle_processors": seen.idle,
            }));
        }
    }
}
