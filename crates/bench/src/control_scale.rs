//! `heddle-lab bench control-scale`: what a control plane costs as its mesh grows, and how soon nodes hear of a change.
//!
//! ```text
//! writer ── 200 changes/s ──▶ etcd ──▶ heddle control ══ a TLS connection each ══▶ simulated nodes, 30 pods each
//!    └────────────── when each change was due ──────────── compared ───────────── when its last node has marked it
//! ```
//!
//! Control plane and etcd are real processes. The nodes are in this process: they have certificates of their own and
//! speak as nodes do, but have no pods. A change replaces a pod: it writes a provider's key again, with an address that
//! no pod had before. Four scenarios:
//!
//! - *On demand*: meshes of 100 to 100,000 pods, whose nodes name ten Services beside those of their own pods.
//! - *Eager*: the same up to 10,000 pods, with nodes that want everything, for the ratio of bytes; with 10,000, 20 changes/s.
//! - *Istiod*: the same meshes with Istio's control plane, on demand and eager, where Go is there to build it with.
//! - *Faults*: one node of 300 reads nothing any more and another one answers late, beside a run without.
//!
//! | module | is |
//! |---|---|
//! | [`shape`] | which pod is where, and which node uses which Service |
//! | [`schedule`] | when each change is due, and which pod it replaces |
//! | [`ledger`] | which changes have come to which nodes |
//! | [`machine`], [`has`] | what a node says, and what it has |
//! | [`link`], [`node`], [`fleet`] | a node's connection, its calls, and all nodes |
//! | [`registry`] | writes providers into etcd |
//! | [`stage`], [`usage`] | the processes, and what they use |
//! | [`istio`] | the processes of Istio, and its nodes |
//! | [`run`], [`faults`] | one run, and the scenario of faults |
//! | [`report`], [`picture`] | how results are presented |
//!
//! `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::task::LocalSet;

use super::install;
use super::runner::{Network, RunOptions, Subject};
use ledger::Told;
use report::Scales;
use run::Found;
use schedule::RATE;
use stage::{Programs, Stage};

mod common;
mod faults;
mod fleet;
mod has;
mod istio;
mod ledger;
pub(super) mod link;
mod machine;
mod node;
mod picture;
mod registry;
mod report;
mod run;
mod schedule;
mod shape;
mod stage;
mod usage;

/// The largest mesh with nodes that want everything, and with istiod, which two cores do not suffice for from there on.
const MAX_EAGER: usize = 10_000;
const MAX_ISTIOD: usize = 10_000;

/// Times a second that all nodes together are told of a change, at most: they share one thread, and where that is behind, times
/// are its own. Istiod tells of many changes at once.
const MAX_TOLD: u32 = 7_000;

/// Options of `bench control-scale`.
#[derive(Args, Clone)]
pub struct ControlScale {
    /// Pods of the meshes [default: 100,1000,10000,100000; with --quick 100,1000].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=shape::MAX_PODS as i64))]
    pods: Vec<u32>,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    only: Vec<Scenario>,
    /// Draw time and bytes of a change by the number of pods into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    OnDemand,
    Eager,
    Istiod,
    Faults,
}

/// Whose control plane it is, and what its nodes want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    OnDemand,
    Eager,
    IstiodOnDemand,
    IstiodEager,
}

impl Mode {
    const ALL: [Mode; 4] = [
        Mode::OnDemand,
        Mode::Eager,
        Mode::IstiodOnDemand,
        Mode::IstiodEager,
    ];

    fn is_istio(self) -> bool {
        matches!(self, Mode::IstiodOnDemand | Mode::IstiodEager)
    }

    /// Which nodes are told of a change.
    fn told(self) -> Told {
        match self {
            Mode::OnDemand | Mode::IstiodOnDemand => Told::Users,
            Mode::Eager | Mode::IstiodEager => Told::All,
        }
    }

    /// Changes a second, in a mesh of so many nodes.
    fn rate(self, nodes: usize) -> u32 {
        match self {
            Mode::Eager => RATE
                .min(MAX_TOLD / u32::try_from(nodes).unwrap_or(MAX_TOLD))
                .max(1),
            _ => RATE,
        }
    }

    fn scenario(self) -> Scenario {
        match self {
            Mode::OnDemand => Scenario::OnDemand,
            Mode::Eager => Scenario::Eager,
            Mode::IstiodOnDemand | Mode::IstiodEager => Scenario::Istiod,
        }
    }

    /// The largest mesh that is measured.
    fn most(self) -> usize {
        match self {
            Mode::OnDemand => shape::MAX_PODS,
            Mode::Eager => MAX_EAGER,
            Mode::IstiodOnDemand | Mode::IstiodEager => MAX_ISTIOD,
        }
    }

    /// In words.
    fn name(self) -> &'static str {
        match self {
            Mode::OnDemand => "on demand",
            Mode::Eager => "eager",
            Mode::IstiodOnDemand => "istiod, on demand",
            Mode::IstiodEager => "istiod, eager",
        }
    }

    /// What names of figures have before the number of pods.
    fn prefix(self) -> &'static str {
        match self {
            Mode::OnDemand => "",
            Mode::Eager => "eager_",
            Mode::IstiodOnDemand => "istiod_",
            Mode::IstiodEager => "istiod_eager_",
        }
    }
}

/// How long a run takes.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Changes before those that count.
    warm_up: Duration,
    window: Duration,
    /// How long after the last change nodes may take to have it.
    drain: Duration,
}

impl Times {
    fn new(quick: bool) -> Times {
        let [warm_up, window, drain] = match quick {
            true => [2, 10, 20],
            false => [10, 60, 60],
        };
        Times {
            warm_up: Duration::from_secs(warm_up),
            window: Duration::from_secs(window),
            drain: Duration::from_secs(drain),
        }
    }
}

impl ControlScale {
    fn sizes(&self) -> Vec<usize> {
        let usual: &[u32] = match (self.pods.is_empty(), self.run.quick) {
            (false, _) => &self.pods,
            (true, true) => &[100, 1_000],
            (true, false) => &[100, 1_000, 10_000, 100_000],
        };
        let mut sizes: Vec<usize> = usual.iter().map(|pods| *pods as usize).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The programs of Istio, if they are measured. A peer that cannot be built keeps nothing else from being measured.
    ///
    /// # Errors
    /// When they cannot be built.
    fn istio(&self) -> anyhow::Result<Option<install::IstioPrograms>> {
        // They take long to build: a quick run has them only where it is told to.
        let is_wanted = match self.run.quick {
            true => self.only.contains(&Scenario::Istiod),
            false => self.has(Scenario::Istiod),
        };
        if !is_wanted || self.sizes().iter().all(|pods| *pods > MAX_ISTIOD) {
            return Ok(None);
        }
        install::istio(self.run.isolated).map(Some)
    }

    fn has(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}

/// Measures and reports.
///
/// # Errors
/// When etcd is missing, something does not start, or a file cannot be written.
pub(super) fn run(options: &ControlScale) -> anyhow::Result<()> {
    let mut programs = Programs {
        heddle: options.subject.heddle()?,
        etcd: install::etcd()?,
        istio: None,
    };
    // Before the experiment has a network of its own, in which nothing could be fetched.
    let istio = options.istio();
    let mut runner = options.run.begin("control-scale", Network::Own)?;
    match istio {
        Ok(istio) => programs.istio = istio,
        Err(error) if options.only == [Scenario::Istiod] => return Err(error),
        Err(error) => {
            let problem = format!("istiod is not measured: {error:#}");
            runner.findings.problem(problem);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut scales = Scales::default();
    let measuring = measure(options, &programs, &mut scales);
    let measured = LocalSet::new().block_on(&runtime, measuring);
    scales.tell(&mut runner.findings);
    runner.end(measured)?;
    if let Some(file) = &options.svg {
        picture::draw(&scales, file, options.run.quick)?;
    }
    Ok(())
}

/// Measures all scenarios, also after one has failed.
async fn measure(
    options: &ControlScale,
    programs: &Programs,
    scales: &mut Scales,
) -> anyhow::Result<()> {
    let times = Times::new(options.run.quick);
    let mut failed = Vec::new();
    for pods in options.sizes() {
        for mode in Mode::ALL {
            let is_there = !mode.is_istio() || programs.istio.is_some();
            if !options.has(mode.scenario()) || pods > mode.most() || !is_there {
                continue;
            }
            let name = mode.name();
            eprintln!("{pods} pods, {name}");
            match scale(programs, (pods, mode), &times).await {
                Ok(found) => scales.add(pods, mode, found),
                // What is there for comparison keeps no other figure from counting.
                Err(error) if mode != Mode::OnDemand && options.only != [mode.scenario()] => {
                    scales
                        .not_measured
                        .push(format!("{pods} pods, {name}: {error:#}"));
                }
                Err(error) => failed.push(format!("{pods} pods, {name}: {error:#}")),
            }
        }
    }
    if options.has(Scenario::Faults) {
        match faults::run(programs, &times, options.run.quick).await {
            Ok(found) => scales.faults = Some(found),
            Err(error) => failed.push(format!("faults: {error:#}")),
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn scale(
    programs: &Programs,
    (pods, mode): (usize, Mode),
    times: &Times,
) -> anyhow::Result<Found> {
    let mut stage = Stage::new(programs, pods, mode, &[]).await?;
    run::run(&mut stage, times, &[]).await
}
