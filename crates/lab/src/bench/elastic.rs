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
    /// The same for a person, printed when everything is measured: progress goes to the terminal
    /// meanwhile.
    #[serde(skip)]
    text: String,
}

impl Report {
    /// Adds a line for a person.
    fn say(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Notes a figure; what could not be measured is left out.
    fn value(&mut self, name: &'static str, value: Option<f64>) {
        self.values.extend(value.map(|value| (name, value)));
    }

    /// Notes a ratio, likewise.
    fn ratio(&mut self, name: &'static str, ratio: Option<f64>) {
        self.ratios.extend(ratio.map(|ratio| (name, ratio)));
    }
}

/// A figure with so many decimals, or that there is none.
fn shown(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("none".to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// How many failed, and of what: `3 failed (2 reset, 1 status)`.
fn failures<'a>(errors: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, count) in errors {
        *kinds.entry(kind).or_default() += count;
    }
    let all: u64 = kinds.values().sum();
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    match all {
        0 => "0 failed".to_owned(),
        all => format!("{all} failed ({})", kinds.join(", ")),
    }
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
        text: String::new(),
    };
    let measured = measure(&stage, (cycles, rounds), &mut report);
    // What was measured before something failed is still worth reading.
    print!("{}", report.text);
    let timeline = measured?;
    println!("\nBy the names that docs/benchmarks.md explains:");
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

fn measure(
    stage: &Stage,
    (cycles, rounds): (u32, u32),
    report: &mut Report,
) -> anyhow::Result<timeline::Timeline> {
    let timeline = steps::run(stage, cycles, report)?;
    skew::run(stage, rounds, report)?;
    moves::run(stage, rounds, report)?;
    Ok(timeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_kind() {
        let errors = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
            all.iter()
                .map(|(kind, n)| ((*kind).to_owned(), *n))
                .collect()
        };
        assert_eq!(failures(&errors(&[])), "0 failed");
        let two = [
            errors(&[("reset", 2)]),
            errors(&[("reset", 1), ("status", 4)]),
        ];
        assert_eq!(
            failures(two.iter().flatten()),
            "7 failed (3 reset, 4 status)"
        );
    }

    #[test]
    fn what_was_not_measured_is_said_and_left_out() {
        assert_eq!(shown(Some(1.257), 2), "1.26");
        assert_eq!(shown(None, 2), "none");
    }
}
