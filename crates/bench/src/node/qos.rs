//! `heddle-lab bench qos-…`: latency-sensitive pods beside batch work, with and without node QoS.
//!
//! Three conditions, in every round one after another in an order that rotates: the web service alone; beside batch
//! work that nothing holds back; and beside batch work whose class is known. A round counts when the batch work
//! disturbs without QoS: else there is nothing to protect from.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::NodeExperiment;
use super::group::LabGroup;
use super::scene::Scene;
use crate::child::{Child, Confinement};
use crate::findings::Findings;
use crate::statistics::{Spread, ratio};

mod cpu;
mod network;
mod proxy;

pub(crate) use cpu::run as cpu;
pub(crate) use network::run as network;
pub(crate) use proxy::run as proxy;

/// Requests per second to the web service, over this number of connections.
const RATE: u32 = 600;
const CONNECTIONS: &str = "32";
/// Time for everything to settle before a measurement.
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

/// Latency of the web service in one condition of one round, in microseconds, and its requests per second.
#[derive(Debug, Clone, Copy)]
struct Latency {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    per_s: f64,
}

/// Lets the client call the web service at a fixed rate.
///
/// # Errors
/// When a request fails, or the service is so late that it does not carry the rate.
fn web_service(scene: &Scene, seconds: u32) -> anyhow::Result<Latency> {
    settle();
    let seconds = seconds.to_string();
    let rate = RATE.to_string();
    let arguments = [
        "--connections",
        CONNECTIONS,
        "--rate",
        &rate,
        "--seconds",
        &seconds,
    ];
    let outcome = scene.load(&[scene.target("near0")?], &arguments)?;
    outcome.check(Some(f64::from(RATE)))?;
    Ok(Latency {
        p50_us: outcome.p50_us,
        p99_us: outcome.p99_us,
        max_us: outcome.max_us,
        per_s: outcome.per_s(),
    })
}

/// Seconds of a measurement.
fn seconds(experiment: &NodeExperiment) -> u32 {
    if experiment.runner.quick { 2 } else { 6 }
}

/// Measures all conditions in all rounds.
///
/// # Errors
/// When one cannot be measured; the rounds before are kept.
fn rounds<T: Copy>(
    experiment: &NodeExperiment,
    rounds: &mut Vec<[T; 3]>,
    mut measure: impl FnMut(Condition) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let count = experiment.rounds(3, 12);
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        let mut seen = [None; 3];
        for turn in 0..3 {
            let number = (turn + round) % 3;
            seen[number] = Some(measure(Condition::ALL[number])?);
        }
        if let [Some(alone), Some(off), Some(on)] = seen {
            rounds.push([alone, off, on]);
        }
    }
    Ok(())
}

/// Reports latencies, and their ratios to those alone. Returns the rounds that count: those in which the batch work
/// without QoS made the p99 at least `disturbed` times that alone.
fn report_latency<'r, T>(
    findings: &mut Findings,
    rounds: &'r [[T; 3]],
    latency: impl Fn(&T) -> Latency,
    (prefix, disturbed): (&str, f64),
) -> Vec<&'r [T; 3]> {
    for (number, condition) in Condition::ALL.into_iter().enumerate() {
        let of = |figure: fn(&Latency) -> f64| {
            let all = rounds.iter().map(|round| figure(&latency(&round[number])));
            Spread::of(&all.collect::<Vec<_>>())
        };
        let shown = |figure: fn(&Latency) -> f64| match of(figure) {
            None => "-".to_owned(),
            Some(spread) => format!("{:.0} [{:.0}–{:.0}]", spread.median, spread.min, spread.max),
        };
        findings.say(format!(
            "{prefix} {:6} p50 {} µs, p99 {} µs, maximum {} µs",
            condition.name(),
            shown(|seen| seen.p50_us),
            shown(|seen| seen.p99_us),
            shown(|seen| seen.max_us),
        ));
        let name = format!("{prefix}_p99_us_{}", condition.name());
        findings.value(name, of(|seen| seen.p99_us));
    }
    let p99 = |round: &[T; 3], number: usize| latency(&round[number]).p99_us;
    let counts = |round: &&[T; 3]| p99(round, 1) >= disturbed * p99(round, 0);
    let counted: Vec<&[T; 3]> = rounds.iter().filter(counts).collect();
    if counted.len() < rounds.len() {
        findings.problem(format!(
            "{prefix}: {} of {} rounds do not count, because without QoS their p99 is below {disturbed} times that alone",
            rounds.len() - counted.len(),
            rounds.len()
        ));
    }
    let of = |number: usize| -> Vec<Option<f64>> {
        counted
            .iter()
            .map(|round| Some(p99(round, number)))
            .collect()
    };
    findings.ratio(format!("{prefix}_p99_off_vs_alone"), ratio(&of(1), &of(0)));
    findings.ratio(format!("{prefix}_p99_on_vs_alone"), ratio(&of(2), &of(0)));
    counted
}

/// `heddle qos run` for offline pods, which are control groups of the lab.
struct Agent {
    heddle: PathBuf,
    folder: tempfile::TempDir,
    groups: Vec<LabGroup>,
}

impl Agent {
    fn new(heddle: &Path, groups: Vec<LabGroup>) -> anyhow::Result<Agent> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let manifests = folder.path().join("pods");
        fs::create_dir(&manifests)?;
        for (number, group) in groups.iter().enumerate() {
            let manifest = format!(
                "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: batch{number}\n  labels: \
                 {{volcano.sh/preemptable: \"true\"}}\n  annotations: {{heddle.dev/cgroup: {}}}\nspec: {{}}\n",
                group.path().display()
            );
            fs::write(manifests.join(format!("{number}.yaml")), manifest)?;
        }
        Ok(Agent {
            heddle: heddle.to_owned(),
            folder,
            groups,
        })
    }

    /// Starts it, and waits until the pods yield.
    fn start(&self) -> anyhow::Result<Child> {
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
        let all_yield = || self.groups.iter().all(LabGroup::is_idle).then_some(());
        agent.wait_until(Duration::from_secs(10), all_yield)?;
        Ok(agent)
    }
}

fn settle() {
    let end = Instant::now() + SETTLE;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
