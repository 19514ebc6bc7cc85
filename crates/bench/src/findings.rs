//! What an experiment of Heddle alone has found, and how it is told.

use std::collections::BTreeMap;

use serde::Serialize;

use super::machine::Machine;

/// What an experiment of Heddle alone has found: for a person in words, for scripts as JSON.
#[derive(Serialize)]
pub(super) struct Findings {
    scenario: &'static str,
    quick: bool,
    machine: Machine,
    pub(super) rows: Vec<serde_json::Value>,
    ratios: BTreeMap<String, f64>,
    values: BTreeMap<String, f64>,
    /// The same for a person, printed when everything is measured: progress goes to the terminal
    /// meanwhile.
    #[serde(skip)]
    text: String,
}

impl Findings {
    /// Nothing yet.
    pub(super) fn new(scenario: &'static str, quick: bool, machine: Machine) -> Findings {
        Findings {
            scenario,
            quick,
            machine,
            rows: Vec::new(),
            ratios: BTreeMap::new(),
            values: BTreeMap::new(),
            text: String::new(),
        }
    }

    /// Adds a line for a person.
    pub(super) fn say(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Notes a figure; what could not be measured is left out.
    pub(super) fn value(&mut self, name: &'static str, value: Option<f64>) {
        self.values
            .extend(value.map(|value| (name.to_owned(), value)));
    }

    /// Shows what was said.
    pub(super) fn print(&self) {
        print!("{}", self.text);
    }

    /// Shows the figures by name.
    pub(super) fn print_figures(&self) {
        println!("\nBy the names that docs/benchmarks.md explains:");
        for (name, value) in self.ratios.iter().chain(&self.values) {
            println!("  {name:34} {value:10.2}");
        }
    }

    /// Notes a ratio, likewise.
    pub(super) fn ratio(&mut self, name: impl Into<String>, ratio: Option<f64>) {
        self.ratios.extend(ratio.map(|ratio| (name.into(), ratio)));
    }
}

/// A figure with so many decimals, or that there is none.
pub(super) fn shown(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("none".to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// How many failed, and of what: `3 failed (2 reset, 1 status)`.
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
