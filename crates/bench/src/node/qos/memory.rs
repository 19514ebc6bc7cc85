//! `qos-memory`: downloads from nginx beside batch work that takes memory and reads more files than fit into it.
//!
//! The node is a control group: all pods are in one whose memory is limited, as in the kubelet's `kubepods`, and
//! `qos.root` names it. So the experiment fills that group and not the machine. Half of the node's memory is enough for
//! all files of nginx. Without node QoS the kernel takes pages from whichever group has some, and nginx reads its files
//! from the disk again.
//!
//! A fourth measurement says what is left to an agent: the same batch work in an idle group with a fixed limit. Its system
//! calls, its disk reads and its share of the memory's bandwidth take time from nginx that no control group gives back.

mod stage;

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use self::stage::{MIB, Stage};
use super::over_time::{self, ALONE, OFF, ON, OTHER, Samples};
use super::{Condition, rounds};
use crate::child::{Child, words};
use crate::downloads::Downloaded;
use crate::findings::Findings;
use crate::install;
use crate::node::chart::Panel;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::{Spread, median, ratio};

/// Rounds, quick and full.
const ROUNDS: (usize, usize) = (1, 6);
/// A round counts when the batch work makes downloads take at least so many times as long.
const DISTURBED: f64 = 1.5;
/// Memory that a worker of `stress-ng` writes over and over.
const VM: &str = "384m";
/// Processes that read files over and over, and what each does.
const READERS: usize = 2;
const READ: &str = "while cat \"$0\"/* > /dev/null; do :; done";
/// Pause of the visitor between two downloads.
const PAUSE_MS: &str = "2";
/// How much longer than its downloads the visitor may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What runs beside nginx.
#[derive(Debug, Clone, Copy)]
enum Beside {
    Condition(Condition),
    /// The batch work in an idle group whose limit leaves nginx all the memory that it wants.
    Fixed,
}

impl Beside {
    /// Time until memory has settled. FSSR goes from its ceiling to its floor in five steps of 5 s, and then the files
    /// have to be read once more.
    fn settles_in(self) -> Duration {
        Duration::from_secs(match self {
            Beside::Condition(Condition::Alone) => 8,
            Beside::Condition(Condition::Off) | Beside::Fixed => 25,
            Beside::Condition(Condition::On) => 45,
        })
    }
}

/// Every condition of every round, and the batch work in its fixed group, once a round.
#[derive(Debug, Default)]
struct Seen {
    rounds: Vec<[BesideEater; 3]>,
    fixed: Vec<BesideEater>,
}

/// What was measured of one condition in one round.
#[derive(Debug, Clone)]
struct BesideEater {
    /// Time of a download, in milliseconds.
    p50_ms: f64,
    mean_ms: f64,
    /// Part of what was downloaded that nginx had to read from the disk.
    missed: f64,
    /// Processes that the kernel killed for want of memory: of nginx, of the batch work.
    kills: [u64; 2],
    downloads: Vec<Downloaded>,
    samples: Vec<(f64, Sample)>,
}

/// Memory of the pods at a moment, in bytes.
#[derive(Debug, Clone, Copy)]
struct Sample {
    shop: u64,
    batch: u64,
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, the machine has too little memory to spare, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let stress = install::tool("stress-ng", "stress-ng")?;
    let nginx = install::tool("nginx", "nginx-light")?;
    let mut experiment = NodeExperiment::new(options, "qos-memory", &[Kind::Direct])?;
    let mut seen = Seen::default();
    let measured = measure(&experiment, [&stress, &nginx], &mut seen);
    report(&mut experiment, &seen);
    let panels = seen.rounds.last().map(panels).unwrap_or_default();
    experiment.conclude(measured, &panels)
}

fn measure(
    experiment: &NodeExperiment,
    [stress, nginx]: [&Path; 2],
    Seen {
        rounds: seen,
        fixed,
    }: &mut Seen,
) -> anyhow::Result<()> {
    let scene = Scene::up(Kind::Direct, SceneShape::default(), &experiment.tools)?;
    let stage = Stage::new(&scene, &experiment.tools.heddle, nginx)?;
    let window = Duration::from_secs(if experiment.runner.quick { 5 } else { 10 });
    rounds(experiment, ROUNDS, seen, |condition| {
        if condition == Condition::Alone {
            fixed.push(measure_one(&stage, stress, Beside::Fixed, window)?);
        }
        measure_one(&stage, stress, Beside::Condition(condition), window)
    })
}

fn measure_one(
    stage: &Stage,
    stress: &Path,
    beside: Beside,
    window: Duration,
) -> anyhow::Result<BesideEater> {
    let kills = stage.kills()?;
    stage.forget_batch_files()?;
    let agent = match beside {
        Beside::Condition(Condition::On) => Some(stage.agent.start()?),
        Beside::Condition(Condition::Alone | Condition::Off) | Beside::Fixed => None,
    };
    let work = match beside {
        // Processors are awake in every condition.
        Beside::Condition(Condition::Alone) => vec![stage.start(
            "stress-ng",
            &stage.filler,
            &words([
                stress.as_os_str(),
                "--cpu".as_ref(),
                "2".as_ref(),
                "--quiet".as_ref(),
            ]),
        )?],
        Beside::Condition(Condition::Off | Condition::On) => eaters(stage, &stage.batch, stress)?,
        Beside::Fixed => eaters(stage, &stage.fixed, stress)?,
    };
    let settling = beside.settles_in();
    let visitor = stage.visit(settling + window, PAUSE_MS)?;
    let mut samples = Samples::begin();
    let now = || {
        Ok(Sample {
            shop: stage.shop.memory_bytes()?,
            batch: stage.batch.memory_bytes()?,
        })
    };
    samples.take_until(settling, now)?;
    let before = stage.read_by_nginx()?;
    samples.take_until(settling + window, now)?;
    let read = stage.read_by_nginx()?.saturating_sub(before);
    let printed = visitor.finish(PATIENCE)?;
    for mut one in work {
        one.stop(Signal::TERM);
    }
    drop(agent);
    let downloads: Vec<Downloaded> = serde_json::from_str(&printed)?;
    let settled_us = u64::try_from(settling.as_micros())?;
    let settled = downloads.iter().filter(|one| one.began_us >= settled_us);
    let took_ms: Vec<f64> = settled.map(|one| one.took_us as f64 / 1e3).collect();
    anyhow::ensure!(!took_ms.is_empty(), "nothing was downloaded");
    let kills_now = stage.kills()?;
    Ok(BesideEater {
        p50_ms: median(&took_ms).unwrap_or_default(),
        mean_ms: took_ms.iter().sum::<f64>() / took_ms.len() as f64,
        missed: read as f64 / (took_ms.len() as f64 * stage::FILE_BYTES as f64),
        kills: [0, 1].map(|of| kills_now[of] - kills[of]),
        downloads,
        samples: samples.into_inner(),
    })
}

/// Starts the batch work: a process that writes memory over and over, and others that read files, as a backup does.
fn eaters(stage: &Stage, group: &LabGroup, stress: &Path) -> anyhow::Result<Vec<Child>> {
    let mut memory = words([stress.as_os_str()]);
    memory.extend(words([
        "--vm",
        "1",
        "--vm-keep",
        "--vm-bytes",
        VM,
        "--quiet",
    ]));
    let mut work = vec![stage.start("stress-ng", group, &memory)?];
    for number in 0..READERS {
        let mut read = words(["sh", "-c", READ]);
        read.push(stage.batch_files().into());
        work.push(stage.start(&format!("reader{number}"), group, &read)?);
    }
    Ok(work)
}

fn report(experiment: &mut NodeExperiment, Seen { rounds, fixed }: &Seen) {
    let findings = &mut experiment.runner.findings;
    for (number, condition) in Condition::ALL.into_iter().enumerate() {
        let of: Vec<&BesideEater> = rounds.iter().map(|round| &round[number]).collect();
        report_one(findings, condition.name(), &of);
    }
    report_one(findings, "fixed", &fixed.iter().collect::<Vec<_>>());
    let counts = |round: &&[BesideEater; 3]| round[1].mean_ms >= DISTURBED * round[0].mean_ms;
    let counted: Vec<_> = rounds.iter().filter(counts).collect();
    if counted.len() < rounds.len() {
        findings.problem(format!(
            "{} of {} rounds do not count, because without QoS a download takes less than {DISTURBED} times that alone",
            rounds.len() - counted.len(),
            rounds.len()
        ));
    }
    let of = |number: usize| -> Vec<Option<f64>> {
        let all = counted.iter().map(|round| Some(round[number].mean_ms));
        all.collect()
    };
    findings.ratio("memory_time_off_vs_alone", ratio(&of(1), &of(0)));
    findings.ratio("memory_time_on_vs_alone", ratio(&of(2), &of(0)));
    // Of every round: these do not depend on what happens without node QoS.
    let all = |number: usize| -> Vec<Option<f64>> {
        let all = rounds.iter().map(|round| Some(round[number].mean_ms));
        all.collect()
    };
    let fixed: Vec<Option<f64>> = fixed.iter().map(|seen| Some(seen.mean_ms)).collect();
    let fixed = &fixed[..rounds.len().min(fixed.len())];
    findings.ratio("memory_time_fixed_vs_alone", ratio(fixed, &all(0)));
    findings.ratio("memory_time_on_vs_fixed", ratio(&all(2), fixed));
    let kills = |of: usize| {
        let all = rounds.iter().flatten().map(|seen| seen.kills[of]);
        Some(all.sum::<u64>() as f64).filter(|_| !rounds.is_empty())
    };
    findings.value("memory_oom_kills", kills(0));
    findings.value("memory_oom_kills_of_batch", kills(1));
}

fn report_one(findings: &mut Findings, name: &str, all: &[&BesideEater]) {
    let spread = |figure: fn(&BesideEater) -> f64| {
        let all = all.iter().map(|seen| figure(seen));
        Spread::of(&all.collect::<Vec<_>>())
    };
    let mean = spread(|seen| seen.mean_ms);
    let p50 = spread(|seen| seen.p50_ms);
    let missed = spread(|seen| seen.missed);
    if let (Some(mean), Some(p50), Some(missed)) = (&mean, &p50, &missed) {
        findings.say(format!(
            "{name:6} a download takes {:.1} [{:.1}–{:.1}] ms, its median {:.1} ms; {:.0} [{:.0}–{:.0}] % of it is read from \
             the disk",
            mean.median,
            mean.min,
            mean.max,
            p50.median,
            100.0 * missed.median,
            100.0 * missed.min,
            100.0 * missed.max
        ));
    }
    findings.value(format!("memory_time_ms_{name}"), mean);
    findings.ratio(format!("memory_missed_share_{name}"), missed);
    for seen in all {
        findings.rows.push(json!({
            "condition": name,
            "mean_ms": seen.mean_ms,
            "p50_ms": seen.p50_ms,
            "missed_share": seen.missed,
            "downloads": seen.downloads.len(),
            "oom_kills": seen.kills[0],
            "oom_kills_of_batch": seen.kills[1],
        }));
    }
}

/// One round over time.
fn panels(round: &[BesideEater; 3]) -> Vec<Panel> {
    let took = |seen: &BesideEater| {
        let second = |one: &Downloaded| one.began_us / 1_000_000;
        let chunks = seen
            .downloads
            .chunk_by(|one, next| second(one) == second(next));
        let points = chunks.map(|chunk| {
            let sum_us: u64 = chunk.iter().map(|one| one.took_us).sum();
            let at_s = chunk.first().map_or(0, second) as f64 + 0.5;
            (at_s, sum_us as f64 / chunk.len() as f64 / 1e3)
        });
        points.collect::<Vec<_>>()
    };
    let mib = |seen: &BesideEater, figure: fn(&Sample) -> u64| {
        let all = seen.samples.iter();
        all.map(|(at, sample)| (*at, figure(sample) as f64 / MIB as f64))
            .collect::<Vec<_>>()
    };
    let [alone, off, on] = round;
    vec![
        over_time::panel(
            "time of a download (ms)",
            vec![
                ("with node QoS", ON, took(on)),
                ("without", OFF, took(off)),
                ("alone", ALONE, took(alone)),
            ],
        ),
        over_time::panel(
            "memory, with node QoS (MiB)",
            vec![
                ("nginx", ON, mib(on, |sample| sample.shop)),
                ("batch work", OTHER, mib(on, |sample| sample.batch)),
            ],
        ),
        over_time::panel(
            "memory, without (MiB)",
            vec![
                ("nginx", ON, mib(off, |sample| sample.shop)),
                ("batch work", OTHER, mib(off, |sample| sample.batch)),
            ],
        ),
    ]
}
