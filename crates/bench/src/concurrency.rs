//! `heddle-lab bench concurrency`: many requests at once, and providers of unequal size.
//!
//! ```text
//! load generator ── 128, 256, 512 connections ──▶ consumer ──▶ consumer's proxy ══ mutual TLS ══▶ provider's proxy ──▶ provider, small
//!                                                                               ══▶ provider's proxy ──▶ provider, medium
//!                                                                               ══▶ provider's proxy ──▶ provider, large
//! ```
//!
//! Each provider waits before it answers, so that the figures depend on how many requests are in flight, at which
//! provider they are, and where the others wait. Measured twice: *as published*, where each provider takes 200 requests
//! at once, and *with room* for 67, 133 and 200, which together are fewer than the largest number of connections.
//! `docs/benchmarks.md` explains every choice.

use clap::Args;
use clap::builder::FalseyValueParser;

use super::install;
use super::runner::{Network, RunOptions, Subject};
use super::systems::{ProxyKind, System};
use plan::ConcurrencyPlan;
use registry::Abilities;
use runs::ConcurrencyExperiment;

pub use consumer::{Consumer, run as consume};

mod consumer;
mod envoy;
mod figures;
mod mesh;
mod plan;
mod provider;
mod quota;
mod registry;
mod report;
mod runs;
mod setups;
mod stage;

/// Options of `bench concurrency`.
#[derive(Args, Clone)]
pub struct Concurrency {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
    /// Ten runs of 60 s, as published, which take about six and a half hours; ignored with `--quick`.
    #[arg(long, env = "PUBLISHED", value_parser = FalseyValueParser::new())]
    published: bool,
    /// Only these systems: heddle, envoy (ratios need both).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// Measures and reports.
///
/// # Errors
/// When a peer is missing, something does not start, or a file cannot be written; when a request failed or had a
/// wrong hash, after all is reported.
pub(super) fn run(options: &Concurrency) -> anyhow::Result<()> {
    let peers = install::peers()?;
    let mut runner = options.run.begin("concurrency", Network::Own)?;
    let heddle = options.subject.heddle()?;
    let mut systems = vec![
        System::new("heddle", ProxyKind::Heddle, &heddle)?,
        System::new("envoy", ProxyKind::Envoy, &peers.envoy)?,
    ];
    if !options.only.is_empty() {
        systems.retain(|system| options.only.contains(&system.name));
    }
    anyhow::ensure!(!systems.is_empty(), "nothing to measure");
    let plan = if runner.quick {
        ConcurrencyPlan::quick()
    } else if options.published {
        ConcurrencyPlan::published()
    } else {
        ConcurrencyPlan::full()
    };
    let abilities = Abilities::of(&heddle)?;
    let experiment = ConcurrencyExperiment {
        plan: &plan,
        systems: &systems,
        abilities: &abilities,
    };
    let measured = runs::run(&experiment, &mut runner.findings);
    let wrong = runner.end(measured)?;
    anyhow::ensure!(wrong == 0, "{wrong} requests failed or had a wrong hash");
    Ok(())
}
