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
use super::runner::{Network, RunOptions, Subject};
use stage::ElasticStage;

/// Options of `bench elastic`.
#[derive(Args, Clone)]
pub struct Elastic {
    /// Draw the workers over time into FILE.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    subject: Subject,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Elastic) -> anyhow::Result<()> {
    let mut runner = options.run.begin("elastic", Network::Own)?;
    let stage = ElasticStage::set(&options.subject.heddle()?)?;
    let cycles_and_rounds = if runner.quick { (3, 3) } else { (20, 5) };
    let measured = measure(&stage, cycles_and_rounds, &mut runner.findings);
    let timeline = runner.end(measured)?;
    if let Some(file) = &options.svg {
        timeline.draw(file, options.run.quick)?;
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
