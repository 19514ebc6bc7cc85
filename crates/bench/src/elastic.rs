//! `heddle-lab bench elastic`: Workers that come and go with the load, and connections that move.
//!
//! Three scenarios. *Steps*: load rises and falls over connections that stay open; how long until a
//! Worker comes, how long until it has gone, what failed. *Skew*: all busy connections begin on one of
//! two Workers; how even the Workers are after two seconds, with and without stealing, beside
//! connections that were placed evenly. *Moves*: what moving a connection costs.
//! `docs/benchmarks.md` explains every choice.

mod moves;
mod skew;
mod stage;
mod steps;
mod timeline;

use std::path::PathBuf;

use clap::Args;

use super::findings::Findings;
use super::machine::Machine;
use stage::ElasticStage;

/// What the user may say to `bench elastic`.
#[derive(Args, Clone)]
pub struct Elastic {
    /// Three cycles and rounds instead of twenty and five.
    #[arg(long)]
    quick: bool,
    /// Write every figure to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the workers over time into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The Heddle to measure; the one beside this program unless said.
    #[arg(long, value_name = "PATH")]
    heddle: Option<PathBuf>,
    /// Set once the process has a network namespace of its own.
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Elastic) -> anyhow::Result<()> {
    let machine = Machine::prepare(options.isolated)?;
    let heddle = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    let stage = ElasticStage::set(&heddle)?;
    let (cycles, rounds) = if options.quick { (3, 3) } else { (20, 5) };
    let mut findings = Findings::new("elastic", options.quick, machine);
    let measured = measure(&stage, (cycles, rounds), &mut findings);
    // What was measured before something failed is still worth reading.
    findings.print();
    let timeline = measured?;
    findings.conclude(options.json.as_deref())?;
    if let Some(file) = &options.svg {
        timeline.draw(file)?;
    }
    Ok(())
}

fn measure(
    stage: &ElasticStage,
    (cycles, rounds): (u32, u32),
    findings: &mut Findings,
) -> anyhow::Result<timeline::Timeline> {
    let timeline = steps::run(stage, cycles, findings)?;
    skew::run(stage, rounds, findings)?;
    moves::run(stage, rounds, findings)?;
    Ok(timeline)
}
