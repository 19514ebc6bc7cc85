//! The results of an experiment, and how they are presented; `proxy`, `mtls` and `grpc` have a report of their own.

use std::collections::BTreeMap;

use serde::Serialize;

use super::machine::Machine;
use super::statistics::Spread;

/// The results of an experiment: lines for a person, JSON for scripts.
#[derive(Serialize)]
pub(super) struct Findings {
    scenario: &'static str,
    quick: bool,
    machine: Machine,
    pub(super) rows: Vec<serde_json::Value>,
    ratios: BTreeMap<String, f64>,
    values: BTreeMap<String, f64>,
    /// The rounds behind `ratios` and `values`, where there are several.
    ratio_spreads: BTreeMap<String, Spread>,
    value_spreads: BTreeMap<String, Spread>,
    /// Rounds that were left out, and why: the figures are those of the other rounds.
    problems: Vec<String>,
    /// Why the whole result is invalid; empty if it is valid.
    invalid: Vec<String>,
    /// The same for a person. Printed when everything is measured, because progress goes to the terminal until then.
    #[serde(skip)]
    text: String,
}

impl Findings {
    /// Findings without any results yet.
    pub(super) fn new(scenario: &'static str, quick: bool, machine: Machine) -> Findings {
        Findings {
            scenario,
            quick,
            machine,
            rows: Vec::new(),
            ratios: BTreeMap::new(),
            values: BTreeMap::new(),
            ratio_spreads: BTreeMap::new(),
            value_spreads: BTreeMap::new(),
            problems: Vec::new(),
            invalid: Vec::new(),
            text: String::new(),
        }
    }

    /// Adds a line for a person.
    pub(super) fn say(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Notes a figure; one that could not be measured is left out.
    pub(super) fn value(&mut self, name: impl AsRef<str>, value: impl Into<Measured>) {
        let value = value.into();
        note(
            name.as_ref(),
            value,
            &mut self.values,
            &mut self.value_spreads,
        );
    }

    /// Reports that a round is left out.
    pub(super) fn problem(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        self.say(&problem);
        self.problems.push(problem);
    }

    /// Reports that the whole result is invalid: an answer was wrong, or the setup was not what it should have been.
    pub(super) fn invalid(&mut self, why: impl Into<String>) {
        let why = why.into();
        self.say(format!("  INVALID: {why}"));
        self.invalid.push(why);
    }

    /// Prints the lines for a person.
    pub(super) fn print(&self) {
        print!("{}", self.text);
    }

    /// Prints the figures by name.
    pub(super) fn print_figures(&self) {
        println!("\nBy the names that docs/benchmarks.md explains:");
        for (name, value) in self.ratios.iter().chain(&self.values) {
            println!("  {name:34} {value:10.2}");
        }
    }

    /// Notes a ratio, likewise.
    pub(super) fn ratio(&mut self, name: impl Into<String>, ratio: impl Into<Measured>) {
        let (name, ratio) = (name.into(), ratio.into());
        note(&name, ratio, &mut self.ratios, &mut self.ratio_spreads);
    }
}

/// A figure that may be missing, with the rounds behind it if there are several.
#[derive(Debug, Default)]
pub(super) struct Measured {
    figure: Option<f64>,
    spread: Option<Spread>,
}

impl From<Option<f64>> for Measured {
    fn from(figure: Option<f64>) -> Measured {
        Measured {
            figure,
            spread: None,
        }
    }
}

impl From<Option<Spread>> for Measured {
    fn from(spread: Option<Spread>) -> Measured {
        Measured {
            figure: spread.as_ref().map(|spread| spread.median),
            spread: spread.filter(|spread| spread.rounds.len() > 1),
        }
    }
}

fn note(
    name: &str,
    measured: Measured,
    figures: &mut BTreeMap<String, f64>,
    spreads: &mut BTreeMap<String, Spread>,
) {
    figures.extend(measured.figure.map(|figure| (name.to_owned(), figure)));
    spreads.extend(measured.spread.map(|spread| (name.to_owned(), spread)));
}

/// A figure with `decimals` decimals, or `none`.
pub(super) fn shown(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("none".to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// The number of failures, in all and by kind: `3 failed (2 reset, 1 status)`.
pub(super) fn failures<'a>(errors: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
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

#[cfg(test)]
mod tests;
