//! The figures of an experiment: by name, system and cell, round after round.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::findings::Findings;
use super::statistics::{self, Spread};

/// A column of a table: its title, the figure, its decimals.
pub(super) type Column = (&'static str, &'static str, usize);

/// Figures of systems in cells. Both are shown in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    systems: Vec<String>,
    cells: Vec<String>,
    found: BTreeMap<FigureKey, BTreeMap<usize, f64>>,
    /// Why rounds are left out.
    problems: BTreeSet<String>,
}

/// The name of a figure, the index of its system, and the index of its cell.
type FigureKey = (&'static str, usize, usize);

impl Sheet {
    /// Adds the figure of a round; a value that is not a finite number is left out.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        system: &str,
        cell: &str,
        round: usize,
        value: f64,
    ) {
        if value.is_finite() {
            let system = place(&mut self.systems, system);
            let cell = place(&mut self.cells, cell);
            let rounds = self.found.entry((name, system, cell)).or_default();
            rounds.insert(round, value);
        }
    }

    /// Notes that a round does not count, and why.
    pub(super) fn problem(&mut self, system: &str, cell: &str, round: usize, why: &anyhow::Error) {
        let round = round + 1;
        let problem = format!("left out: {system}, {cell}, round {round}: {why:#}");
        self.problems.insert(problem);
    }

    /// Whether nothing was found at all.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn rounds(
        &self,
        name: &'static str,
        system: &str,
        cell: &str,
    ) -> Option<&BTreeMap<usize, f64>> {
        let system = self.systems.iter().position(|known| known == system)?;
        let cell = self.cells.iter().position(|known| known == cell)?;
        self.found.get(&(name, system, cell))
    }

    /// Every round of a figure.
    pub(super) fn spread(&self, name: &'static str, system: &str, cell: &str) -> Option<Spread> {
        let rounds = self.rounds(name, system, cell)?;
        Spread::of(&rounds.values().copied().collect::<Vec<_>>())
    }

    /// The ratio of two systems in a cell, taken in each round that both have, with the median of these.
    pub(super) fn ratio(
        &self,
        name: &'static str,
        (ours, theirs): (&str, &str),
        cell: &str,
    ) -> Option<Spread> {
        let own = self.rounds(name, ours, cell)?;
        let others = self.rounds(name, theirs, cell)?;
        let ours: Vec<_> = own.values().copied().map(Some).collect();
        let theirs: Vec<_> = own.keys().map(|round| others.get(round).copied()).collect();
        statistics::ratio(&ours, &theirs)
    }

    /// A table with a row for each system in each cell that has one of these figures.
    pub(super) fn table(&self, columns: &[Column]) -> String {
        let mut lines = vec![vec!["cell".to_owned(), "system".to_owned()]];
        lines[0].extend(columns.iter().map(|(title, _, _)| (*title).to_owned()));
        for (cell, cell_name) in self.cells.iter().enumerate() {
            for (system, system_name) in self.systems.iter().enumerate() {
                let rounds = |name| self.found.get(&(name, system, cell));
                if columns.iter().all(|(_, name, _)| rounds(*name).is_none()) {
                    continue;
                }
                let mut line = vec![cell_name.clone(), system_name.clone()];
                line.extend(columns.iter().map(|(_, name, decimals)| {
                    let spread = rounds(*name).and_then(|rounds| {
                        Spread::of(&rounds.values().copied().collect::<Vec<_>>())
                    });
                    spread.map_or("–".to_owned(), |spread| shown(&spread, *decimals))
                }));
                lines.push(line);
            }
        }
        layout(&lines)
    }

    /// Every figure of every round, for scripts.
    pub(super) fn rows(&self) -> Vec<serde_json::Value> {
        let row = |(key, rounds): (&FigureKey, &BTreeMap<usize, f64>)| {
            let (name, system, cell) = *key;
            json!({
                "system": self.systems[system],
                "cell": self.cells[cell],
                "figure": name,
                "found": Spread::of(&rounds.values().copied().collect::<Vec<_>>()),
            })
        };
        self.found.iter().map(row).collect()
    }

    /// Reports which rounds do not count.
    pub(super) fn tell_problems(&self, findings: &mut Findings) {
        for problem in &self.problems {
            findings.problem(problem);
        }
    }
}

fn place(names: &mut Vec<String>, name: &str) -> usize {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

/// The median, and the spread where there are several rounds.
fn shown(spread: &Spread, decimals: usize) -> String {
    let Spread {
        median, min, max, ..
    } = spread;
    match spread.rounds.len() {
        1 => format!("{median:.decimals$}"),
        _ => format!("{median:.decimals$} [{min:.decimals$}–{max:.decimals$}]"),
    }
}

/// Lines as a table: names to the left, figures to the right.
fn layout(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let padding = " ".repeat(width(column) - cell.chars().count());
            match column {
                0 | 1 => text.extend(["  ", cell, &padding]),
                _ => text.extend(["  ", &padding, cell]),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
