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

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::machine::{self, Machine};
use stage::Stage;

/// What the user may say to `bench elastic`.
#[derive(Args, Clone)]
pub(crate) struct Elastic {
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

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    scenario: &'static str,
    quick: bool,
    machine: Machine,
    rows: Vec<serde_json::Value>,
    ratios: BTreeMap<&'static str, f64>,
    values: BTreeMap<&'static str, f64>,
}

/// Measures and reports.
///
/// # Errors
/// When something does not start, or a file cannot be written.
pub(super) fn run(options: &Elastic) -> anyhow::Result<()> {
    if !options.isolated {
        machine::enter_own_network()?;
    }
    let mut machine = Machine::describe()?;
    if options.isolated {
        machine.congestion_control = machine::use_plain_congestion_control()?;
    }
    let heddle = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    let stage = Stage::set(&heddle)?;
    let (cycles, rounds) = if options.quick { (3, 3) } else { (20, 5) };
    let mut report = Report {
        scenario: "elastic",
        quick: options.quick,
        machine,
        rows: Vec::new(),
        ratios: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    let timeline = steps::run(&stage, cycles, &mut report)?;
    skew::run(&stage, rounds, &mut report)?;
    moves::run(&stage, rounds, &mut report)?;
    println!();
    for (name, value) in report.ratios.iter().chain(&report.values) {
        println!("  {name:34} {value:10.2}");
    }
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &options.svg {
        timeline.draw(file)?;
    }
    Ok(())
}
