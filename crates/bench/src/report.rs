//! From single runs to the report: rows with medians, ratios round by round, and values by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::account::Memory;
use super::load::Outcome;
use super::machine::Machine;
use super::statistics::Spread;
use super::systems::System;

mod ratios;

pub(super) use ratios::ENVOY_PAIRS;

/// The kind of measurement that a run was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    /// The same offered rate for all: CPU per request and latency.
    #[default]
    FixedRate,
    /// A lower rate for all, at which no proxy is busy: latency.
    QuietRate,
    /// At full speed, the proxy held to half a core.
    HalfCore,
    /// At full speed with a whole core; the load generator or upstream may be the limit.
    WholeCore,
    /// System calls per request, at full speed.
    SystemCallsBusy,
    /// System calls per request at the fixed rate.
    SystemCallsFixedRate,
    /// User instructions per request.
    Instructions,
    /// Memory after start, one service.
    MemoryIdle,
    /// Memory after start, 1,000 endpoints.
    MemoryConfigured,
    /// Memory with 1,000 endpoints and 500 connections in use.
    MemoryLoaded,
}

/// A number of connections and the length of the bodies on them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Cell {
    pub(super) connections: u32,
    pub(super) body_bytes: u64,
}

impl Cell {
    /// Without load.
    pub(super) const NONE: Cell = Cell {
        connections: 0,
        body_bytes: 0,
    };
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell {
            connections,
            body_bytes,
        } = self;
        match body_bytes {
            0 => write!(f, "no load"),
            bytes if bytes % (1 << 20) == 0 => write!(f, "{connections} × {} MiB", bytes >> 20),
            bytes if bytes % (1 << 10) == 0 => write!(f, "{connections} × {} KiB", bytes >> 10),
            bytes => write!(f, "{connections} × {bytes} B"),
        }
    }
}

/// One measurement of one system in one round.
#[derive(Debug, Default, Clone)]
pub(super) struct Run {
    pub(super) round: usize,
    pub(super) system: String,
    pub(super) measure: Measure,
    pub(super) cell: Cell,
    pub(super) offered_per_s: Option<f64>,
    pub(super) figures: BTreeMap<&'static str, f64>,
    /// Why the run does not count, if it does not.
    pub(super) problem: Option<String>,
}

impl Run {
    /// Adds the figures of a run of the load generator.
    pub(super) fn add_load(&mut self, outcome: &Outcome) {
        let requests = outcome.requests as f64;
        let cpu = |name: &str| outcome.cpu.get(name).copied().unwrap_or_default();
        let mut add = |name, figure: f64| {
            self.figures.insert(name, figure);
        };
        let per_request_us = |name: &str| cpu(name).cpu_ns as f64 / 1e3 / requests;
        let of_a_core = |name: &str| cpu(name).cpu_ns as f64 / 1e9 / outcome.seconds;
        add("requests_per_s", requests / outcome.seconds);
        add("cpu_us_per_request", per_request_us("proxy"));
        add(
            "cpu_user_us_per_request",
            per_request_us("proxy") * cpu("proxy").user_share,
        );
        add("p50_us", outcome.p50_us);
        add("p90_us", outcome.p90_us);
        add("p99_us", outcome.p99_us);
        add("p999_us", outcome.p999_us);
        add("max_us", outcome.max_us);
        add("proxy_cores", of_a_core("proxy"));
        add("client_cores", of_a_core("client"));
        add("upstream_cores", of_a_core("upstream"));
        add("core_0_busy", outcome.cores.first().copied().unwrap_or(0.0));
        add("core_1_busy", outcome.cores.get(1).copied().unwrap_or(0.0));
        if let Some(memory) = outcome.memory.get("proxy") {
            self.add_memory(memory);
        }
    }

    /// Adds the figures of a reading of memory.
    pub(super) fn add_memory(&mut self, memory: &Memory) {
        for (name, kib) in [
            ("rss_mib", memory.rss_kib),
            ("pss_mib", memory.pss_kib),
            ("private_mib", memory.private_kib),
        ] {
            self.figures.insert(name, kib as f64 / 1024.0);
        }
    }

    /// Removes the figures of memory where they are those of an earlier load.
    pub(super) fn drop_memory(&mut self) {
        for name in ["rss_mib", "pss_mib", "private_mib"] {
            self.figures.remove(name);
        }
    }
}

/// All rounds of one system, measure and cell.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) system: String,
    pub(super) measure: Measure,
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) offered_per_s: Option<f64>,
    /// False when every round was invalid.
    pub(super) valid: bool,
    /// How many rounds were invalid; the figures leave them out as long as one is valid.
    pub(super) invalid_rounds: usize,
    /// Why the first invalid round is invalid.
    pub(super) problem: Option<String>,
    pub(super) figures: BTreeMap<&'static str, Spread>,
}

/// The report of an experiment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) scenario: &'static str,
    pub(super) quick: bool,
    pub(super) machine: Machine,
    pub(super) versions: BTreeMap<String, String>,
    pub(super) rows: Vec<Row>,
    /// Medians of ratios taken round by round, in the main cell; below 1 is better except for `rps_…`.
    pub(super) ratios: BTreeMap<String, f64>,
    /// The rounds behind `ratios`.
    pub(super) ratio_spreads: BTreeMap<String, Spread>,
    /// Medians by name, for a comparison of two reports.
    pub(super) values: BTreeMap<String, f64>,
    /// The rounds behind `values`.
    pub(super) value_spreads: BTreeMap<String, Spread>,
    pub(super) notes: Vec<String>,
    #[serde(skip)]
    pub(super) main: Cell,
}

impl Report {
    /// Summarizes the runs. `main` is the cell of ratios and values.
    pub(super) fn new(
        machine: Machine,
        systems: &[System],
        runs: &[Run],
        main: Cell,
        quick: bool,
        mut notes: Vec<String>,
    ) -> Report {
        let rows = rows(systems, runs);
        notes.extend(disturbance(&rows));
        let (ratio_spreads, left_out) = ratios::of(systems, runs, main);
        notes.extend(left_out);
        let value_spreads = ratios::values(&rows, main);
        let offered = rows
            .iter()
            .find(|row| row.valid && row.cell == main && row.measure == Measure::FixedRate);
        let mut values: BTreeMap<String, f64> = value_spreads
            .iter()
            .map(|(name, spread)| (name.clone(), spread.median))
            .collect();
        values.extend(
            offered
                .and_then(|row| row.offered_per_s)
                .map(|rate| ("offered_per_s".to_owned(), rate)),
        );
        Report {
            scenario: "proxy",
            quick,
            machine,
            versions: systems
                .iter()
                .map(|s| (s.name.clone(), s.version.clone()))
                .collect(),
            rows,
            ratios: ratio_spreads
                .iter()
                .map(|(name, s)| (name.clone(), s.median))
                .collect(),
            ratio_spreads,
            values,
            value_spreads,
            notes,
            main,
        }
    }
}

impl Report {
    /// The same for another scenario, with a word for it in the names of ratios: `cpu_vs_envoy` becomes
    /// `cpu_mtls_vs_envoy`.
    pub(super) fn about(mut self, scenario: &'static str, word: &str) -> Report {
        let renamed = |name: String| name.replacen("_vs_", &format!("_{word}_vs_"), 1);
        let spreads = std::mem::take(&mut self.ratio_spreads).into_iter();
        self.ratio_spreads = spreads.map(|(name, s)| (renamed(name), s)).collect();
        let ratios = std::mem::take(&mut self.ratios).into_iter();
        self.ratios = ratios.map(|(name, ratio)| (renamed(name), ratio)).collect();
        self.scenario = scenario;
        self
    }
}

fn rows(systems: &[System], runs: &[Run]) -> Vec<Row> {
    let mut keys: Vec<(Measure, Cell)> = Vec::new();
    for run in runs {
        if !keys.contains(&(run.measure, run.cell)) {
            keys.push((run.measure, run.cell));
        }
    }
    keys.sort_by_key(|(measure, _)| *measure);
    let pairs = keys
        .iter()
        .flat_map(|key| systems.iter().map(move |system| (key, system)));
    let row = |(&(measure, cell), system): (&(Measure, Cell), &System)| {
        let runs: Vec<&Run> = runs
            .iter()
            .filter(|run| (run.measure, run.cell) == (measure, cell) && run.system == system.name)
            .collect();
        let first = runs.first()?;
        let problem = runs.iter().find_map(|run| run.problem.clone());
        // The rounds that count. If none does, the row shows the figures of the invalid ones.
        let mut counted: Vec<&&Run> = runs.iter().filter(|run| run.problem.is_none()).collect();
        let invalid_rounds = runs.len() - counted.len();
        let valid = !counted.is_empty();
        if !valid {
            counted = runs.iter().collect();
        }
        // Memory is a figure of some rounds only.
        let names: BTreeSet<&'static str> = counted
            .iter()
            .flat_map(|run| run.figures.keys().copied())
            .collect();
        let figures = names.into_iter().filter_map(|name| {
            let rounds: Vec<f64> = counted
                .iter()
                .filter_map(|run| run.figures.get(name).copied())
                .collect();
            Some((name, Spread::of(&rounds)?))
        });
        Some(Row {
            system: system.name.clone(),
            measure,
            cell,
            offered_per_s: first.offered_per_s,
            valid,
            invalid_rounds,
            problem,
            figures: figures.collect(),
        })
    };
    pairs.filter_map(row).collect()
}

/// A note when something else used the proxy's core: that takes caches and, on hyperthreads, execution units, so that
/// CPU per request looks higher for all systems.
fn disturbance(rows: &[Row]) -> Option<String> {
    let others = |row: &&Row| {
        let median = |name: &str| row.figures.get(name).map(|spread| spread.median);
        Some(median("core_0_busy")? - median("proxy_cores")?)
    };
    let rows = rows.iter().filter(|row| row.measure == Measure::FixedRate);
    let shares: Vec<f64> = rows.filter_map(|row| others(&row)).collect();
    let share = Spread::of(&shares)?.median;
    (share > 0.1).then(|| {
        format!(
            "The machine was not quiet: other work took {:.0} % of the proxy's core, which inflates \
             every figure",
            share * 100.0
        )
    })
}

#[cfg(test)]
mod tests;
