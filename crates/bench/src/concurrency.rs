//! `heddle-lab bench concurrency`: many requests at once, and providers of unequal size.
//!
//! ```text
//! load generator ── 128, 256, 512 connections ──▶ consumer's proxy ══ mutual TLS ══▶ provider's proxy ──▶ provider, small
//!                                                                  ══▶ provider's proxy ──▶ provider, medium
//!                                                                  ══▶ provider's proxy ──▶ provider, large
//! ```
//!
//! Each provider waits before it answers, so that what counts is how many requests are under way, where
//! they are, and where the rest of them waits. Twice: *as published*, where each provider takes 200 at once,
//! and *with room* for 67, 133 and 200, which together are fewer than the most connections.
//! `docs/benchmarks.md` explains every choice.

use std::path::PathBuf;

use clap::Args;

use super::findings::Findings;
use super::install;
use super::machine::Machine;
use super::systems::{ProxyKind, System};
use plan::ConcurrencyPlan;
use registry::Abilities;

mod figures;
mod mesh;
mod plan;
mod provider;
mod registry;
mod runs;
mod stage;

/// What the user may say to `bench concurrency`.
#[derive(Args, Clone)]
pub struct Concurrency {
    /// Four short runs instead of ten.
    #[arg(long)]
    quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Heddle to measure; the one beside this program unless said.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
    /// Only these systems: heddle, envoy (ratios need both).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Measures and reports.
///
/// # Errors
/// When a peer is missing, something does not start, or a file cannot be written.
pub(super) fn run(options: &Concurrency) -> anyhow::Result<()> {
    let peers = install::peers()?;
    let machine = Machine::prepare(options.isolated)?;
    anyhow::ensure!(
        machine.cores >= 2,
        "this experiment needs two cores, one for the proxies alone"
    );
    let heddle = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    let mut systems = vec![
        System::new("heddle", ProxyKind::Heddle, &heddle)?,
        System::new("envoy", ProxyKind::Envoy, &peers.envoy)?,
    ];
    if !options.only.is_empty() {
        systems.retain(|system| options.only.contains(&system.name));
    }
    anyhow::ensure!(!systems.is_empty(), "nothing to measure");
    let plan = if options.quick {
        ConcurrencyPlan::quick()
    } else {
        ConcurrencyPlan::full()
    };
    let mut findings = Findings::new("concurrency", options.quick, machine);
    let abilities = Abilities::of(&heddle)?;
    let measured = runs::run(&plan, &systems, &abilities, &mut findings);
    // What was measured before something failed is still worth reading.
    findings.print();
    measured?;
    findings.conclude(options.json.as_deref())
}
