//! The figures of an experiment: by system, by place on the axis, by round.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::chart::{Line, Panel};
use super::kind::Kind;
use crate::findings::Findings;
use crate::sheet::Column;
use crate::statistics::Spread;

/// Figures by name, system and place on the axis; round after round.
#[derive(Debug, Default)]
pub(super) struct Figures {
    found: BTreeMap<(&'static str, Kind, u32), BTreeMap<usize, f64>>,
    /// Why rounds are left out.
    problems: Vec<String>,
}

impl Figures {
    pub(super) fn add(
        &mut self,
        name: &'static str,
        kind: Kind,
        at: u32,
        round: usize,
        value: f64,
    ) {
        let rounds = self.found.entry((name, kind, at)).or_default();
        rounds.insert(round, value);
    }

    /// Notes that a round does not count, and why.
    pub(super) fn problem(&mut self, kind: Kind, round: usize, why: &anyhow::Error) {
        let number = round + 1;
        self.problems
            .push(format!("left out: {kind}, round {number}: {why:#}"));
    }

    pub(super) fn spread(&self, name: &'static str, kind: Kind, at: u32) -> Option<Spread> {
        let rounds = self.found.get(&(name, kind, at))?;
        Spread::of(&rounds.values().copied().collect::<Vec<_>>())
    }

    pub(super) fn median(&self, name: &'static str, kind: Kind, at: u32) -> Option<f64> {
        self.spread(name, kind, at).map(|spread| spread.median)
    }

    /// The places at which any system has that figure.
    pub(super) fn places(&self, name: &'static str) -> Vec<u32> {
        let keys = self.found.keys().filter(|(found, ..)| *found == name);
        let places: BTreeSet<u32> = keys.map(|(_, _, at)| *at).collect();
        places.into_iter().collect()
    }

    /// The ratio of two systems in each round: the median over the places where both were measured in that round.
    pub(super) fn ratio(
        &self,
        name: &'static str,
        (ours, theirs): (Kind, Kind),
        places: &[u32],
    ) -> Option<Spread> {
        let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for at in places {
            let of = |kind| self.found.get(&(name, kind, *at));
            let (Some(own), Some(others)) = (of(ours), of(theirs)) else {
                continue;
            };
            for (round, value) in own {
                if let Some(other) = others.get(round) {
                    rounds.entry(*round).or_default().push(value / other);
                }
            }
        }
        let medians = rounds.values().filter_map(|all| Spread::of(all));
        let medians: Vec<f64> = medians.map(|spread| spread.median).collect();
        Spread::of(&medians)
    }

    /// A table with a row for each system at each place.
    pub(super) fn table(&self, axis: &str, places: &[u32], columns: &[Column]) -> String {
        let mut text = format!("  {:8}{axis:>13}", "system");
        for (title, _, _) in columns {
            text.push_str(&format!("  {title:>24}"));
        }
        text.push('\n');
        for at in places {
            for kind in Kind::ALL {
                let found = columns
                    .iter()
                    .any(|(_, name, _)| self.found.contains_key(&(*name, kind, *at)));
                if !found {
                    continue;
                }
                text.push_str(&format!("  {kind:8}{at:>13}"));
                for (_, name, decimals) in columns {
                    let shown = self.spread(name, kind, *at);
                    let shown =
                        shown.map_or("–".to_owned(), |spread| shown_spread(&spread, *decimals));
                    text.push_str(&format!("  {shown:>24}"));
                }
                text.push('\n');
            }
        }
        text
    }

    /// A panel with a line for each system.
    pub(super) fn panel(
        &self,
        title: &str,
        axis: &str,
        name: &'static str,
        places: &[u32],
    ) -> Panel {
        let line = |kind: Kind| {
            let point = |at: &u32| Some((f64::from(*at), self.median(name, kind, *at)?));
            let points: Vec<(f64, f64)> = places.iter().filter_map(point).collect();
            (!points.is_empty()).then(|| Line::of(kind, points))
        };
        Panel {
            title: title.to_owned(),
            axis: axis.to_owned(),
            lines: Kind::ALL.into_iter().filter_map(line).collect(),
        }
    }

    /// Every figure of every round, for scripts.
    pub(super) fn rows(&self, axis: &str) -> Vec<serde_json::Value> {
        let row =
            |((name, kind, at), rounds): (&(&'static str, Kind, u32), &BTreeMap<usize, f64>)| {
                let spread = Spread::of(&rounds.values().copied().collect::<Vec<_>>());
                json!({"system": kind.name(), axis: at, "figure": name, "found": spread})
            };
        self.found.iter().map(row).collect()
    }
}

impl Findings {
    /// Reports which rounds do not count.
    pub(super) fn tell(&mut self, figures: &Figures) {
        for problem in &figures.problems {
            self.problem(problem);
        }
    }
}

fn shown_spread(spread: &Spread, decimals: usize) -> String {
    let Spread {
        median, min, max, ..
    } = spread;
    match spread.rounds.len() {
        1 => format!("{median:.decimals$}"),
        _ => format!("{median:.decimals$} [{min:.decimals$}–{max:.decimals$}]"),
    }
}

#[cfg(test)]
mod tests;
