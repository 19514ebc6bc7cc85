//! From runs to figures: tables, values, and whether they are within their bars.

use serde_json::json;

use super::Mode;
use super::faults::FaultRuns;
use super::run::Found;
use crate::findings::{Findings, shown};
use crate::sheet::{Column, Sheet};
use crate::statistics;

/// The mesh whose ratio of bytes is the published one.
const RATIO_OF: usize = 10_000;

/// Takes a figure of a run.
pub(super) type Figure = fn(&Found) -> Option<f64>;

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Scales {
    /// By the number of pods and what nodes are told, in the order in which they were measured.
    pub(super) runs: Vec<(usize, Mode, Found)>,
    pub(super) faults: Option<FaultRuns>,
    /// Runs of what is there for comparison that have failed, and why.
    pub(super) not_measured: Vec<String>,
}

/// What a figure of a mesh of so many pods should be at most.
const BARS: [(&str, f64); 9] = [
    ("bytes_per_node_change", 500.0),
    ("bytes_to_other_nodes", 0.0),
    ("push_p99_ms_10000", 100.0),
    ("push_p99_ms_100000", 500.0),
    ("control_memory_mib_10000", 150.0),
    ("control_memory_mib_100000", 1024.0),
    ("control_cores_10000", 0.5),
    ("control_cores_100000", 0.5),
    ("push_p99_dead_and_slow_vs_healthy", 1.1),
];

const TIMES: [Column; 8] = [
    ("changes/s", "rate", 0),
    ("nodes told", "nodes", 1),
    ("p50 ms", "p50", 1),
    ("p99 ms", "p99", 1),
    ("max ms", "max", 1),
    ("missed", "missed", 0),
    ("merged", "merged", 0),
    ("etcd p99 ms", "written", 1),
];
const COSTS: [Column; 9] = [
    ("bytes", "bytes", 0),
    ("to others", "stray", 0),
    ("marks/s", "marks", 0),
    ("MiB at rest", "rest", 1),
    ("MiB", "private", 1),
    ("high water", "high", 1),
    ("cores", "control", 2),
    ("store", "store", 2),
    ("nodes and writer", "bench", 2),
];

impl Scales {
    pub(super) fn add(&mut self, pods: usize, mode: Mode, found: Found) {
        self.runs.push((pods, mode, found));
    }

    pub(super) fn of(&self, pods: usize, mode: Mode) -> Option<&Found> {
        let found = |run: &&(usize, Mode, Found)| (run.0, run.1) == (pods, mode);
        self.runs.iter().find(found).map(|(_, _, found)| found)
    }

    /// Reports everything.
    pub(super) fn tell(&self, findings: &mut Findings) {
        let mut figures = Vec::new();
        self.tell_tables(findings);
        for failed in &self.not_measured {
            findings.problem(format!("not measured: {failed}"));
        }
        for (pods, mode, found) in &self.runs {
            let of = format!("{pods} pods, {}", mode.name());
            match mode.is_istio() {
                true => tell_problems_of_peer(&of, found, findings),
                false => tell_problems(&of, found, findings),
            }
            findings.rows.push(row(*pods, mode.name(), found));
            figures.extend(of_run(*pods, *mode, found));
        }
        let largest = self
            .runs
            .iter()
            .rfind(|(_, mode, _)| *mode == Mode::OnDemand);
        if let Some((_, _, found)) = largest {
            figures.extend(named(
                "bytes_per_node_change",
                found.bytes_per_node_change(),
            ));
            let stray = found.traffic.stray_bytes as f64;
            figures.push(("bytes_to_other_nodes".to_owned(), stray));
        }
        let sizes = self.runs.iter().map(|(pods, _, _)| *pods);
        let compared = sizes.filter_map(|pods| {
            let lazy = bytes_of_change(self.of(pods, Mode::OnDemand)?);
            Some((pods, lazy / bytes_of_change(self.of(pods, Mode::Eager)?)))
        });
        let compared: std::collections::BTreeMap<usize, f64> = compared.collect();
        for (pods, ratio) in &compared {
            findings.say(format!(
                "  bytes of a change to all nodes of {pods} pods, on demand divided by eager: {ratio:.4}"
            ));
        }
        if let Some((pods, ratio)) = compared.last_key_value() {
            let name = match *pods {
                RATIO_OF => "bytes_lazy_vs_eager_10000".to_owned(),
                pods => format!("bytes_lazy_vs_eager_{pods}"),
            };
            findings.ratio(name, Some(*ratio));
        }
        figures.extend(self.beside_istiod());
        if let Some(runs) = &self.faults {
            figures.extend(tell_faults(runs, findings));
        }
        tell_bars(&figures, findings);
        for (name, value) in figures {
            match name.contains("_vs_") {
                true => findings.ratio(name, Some(value)),
                false => findings.value(name, Some(value)),
            }
        }
    }

    /// Heddle's figures divided by istiod's, in each mesh that both have. Times only where all changes have come.
    fn beside_istiod(&self) -> Vec<(String, f64)> {
        let figures: [(&str, Figure); 3] = [
            ("push_p99", |found| {
                found.p99_ms.filter(|_| found.missed == 0)
            }),
            ("control_cores", |found| Some(found.usage.control_cores)),
            ("control_memory", |found| Some(found.usage.private_mib)),
        ];
        let mut ratios = Vec::new();
        for (pods, mode, istiod) in &self.runs {
            let heddle = self.of(*pods, Mode::OnDemand);
            let is_valid = *mode == Mode::IstiodOnDemand && faults("", istiod).is_empty();
            let Some(heddle) = heddle.filter(|_| is_valid) else {
                continue;
            };
            for (name, of) in figures {
                let ratio = of(heddle).zip(of(istiod)).map(|(one, other)| one / other);
                ratios.extend(named(&format!("{name}_heddle_vs_istiod_{pods}"), ratio));
            }
        }
        ratios
    }

    fn tell_tables(&self, findings: &mut Findings) {
        if self.runs.is_empty() {
            return;
        }
        let mut sheet = Sheet::default();
        for (pods, mode, found) in &self.runs {
            let cell = format!("{pods} pods");
            for (name, value) in in_table(found) {
                sheet.add(name, mode.name(), &cell, 0, value);
            }
        }
        findings.say(
            "\nFrom when a pod is replaced until the last node that is told of it has marked it",
        );
        findings.say(sheet.table(&TIMES).trim_end());
        findings.say(
            "\nBytes of a change to a node that uses the Service, bytes to all others, and the control plane",
        );
        findings.say(sheet.table(&COSTS).trim_end());
    }
}

fn in_table(found: &Found) -> Vec<(&'static str, f64)> {
    let or_none = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let seconds = found.changes as f64 / f64::from(found.rate);
    vec![
        ("rate", f64::from(found.rate)),
        ("nodes", found.nodes),
        ("p50", or_none(found.p50_ms)),
        ("p99", or_none(found.p99_ms)),
        ("max", or_none(found.max_ms)),
        ("missed", found.missed as f64),
        ("merged", found.merged as f64),
        ("written", or_none(found.written_p99_ms)),
        ("bytes", or_none(found.bytes_per_node_change())),
        ("stray", found.traffic.stray_bytes as f64),
        ("marks", found.traffic.marks as f64 / seconds),
        ("rest", found.rest_mib),
        ("private", found.usage.private_mib),
        ("high", found.usage.high_water_mib),
        ("control", found.usage.control_cores),
        ("store", found.usage.store_cores),
        ("bench", found.usage.bench_cores),
    ]
}

/// The figures of a run, by the names that the documents explain.
fn of_run(pods: usize, mode: Mode, found: &Found) -> Vec<(String, f64)> {
    let suffix = format!("{}{pods}", mode.prefix());
    let usage = &found.usage;
    let all = [
        ("push_p50_ms", found.p50_ms),
        ("push_p99_ms", found.p99_ms),
        ("push_max_ms", found.max_ms),
        ("push_missed", Some(found.missed as f64)),
        ("push_bytes", found.bytes_per_node_change()),
        ("control_memory_mib", Some(usage.private_mib)),
        ("control_memory_rest_mib", Some(found.rest_mib)),
        ("control_memory_high_water_mib", Some(usage.high_water_mib)),
        ("control_cores", Some(usage.control_cores)),
        ("store_cores", Some(usage.store_cores)),
        ("load_cores", Some(usage.bench_cores)),
    ];
    let all = all.into_iter();
    all.flat_map(|(name, value)| named(&format!("{name}_{suffix}"), value))
        .collect()
}

fn named(name: &str, value: Option<f64>) -> Option<(String, f64)> {
    let value = value.filter(|value| value.is_finite())?;
    Some((name.to_owned(), value))
}

/// Bytes of a change to all nodes together.
fn bytes_of_change(found: &Found) -> f64 {
    let bytes = found.traffic.owed_bytes + found.traffic.stray_bytes;
    bytes as f64 / (found.delivered as f64 / found.nodes)
}

/// What makes a run invalid.
fn faults(of: &str, found: &Found) -> Vec<String> {
    let mut faults = Vec::new();
    if found.strangers > 0 {
        faults.push(format!(
            "{of}: {} times a change came to a node that does not use the service",
            found.strangers
        ));
    }
    if found.wrong > 0 && found.missed == 0 {
        faults.push(format!(
            "{of}: {} nodes do not have exactly what they use",
            found.wrong
        ));
    }
    faults
}

fn missed(of: &str, found: &Found) -> Option<String> {
    (found.missed > 0).then(|| {
        format!(
            "  {of}: {} of {} changes had not come to every node when the run ended",
            found.missed, found.changes
        )
    })
}

fn tell_problems(of: &str, found: &Found, findings: &mut Findings) {
    missed(of, found)
        .into_iter()
        .for_each(|one| findings.say(one));
    faults(of, found)
        .into_iter()
        .for_each(|one| findings.invalid(one));
}

/// A peer's problems keep no figure of Heddle's from counting.
fn tell_problems_of_peer(of: &str, found: &Found, findings: &mut Findings) {
    let problems = missed(of, found).into_iter().chain(faults(of, found));
    problems.for_each(|one| findings.problem(one));
}

fn tell_faults(runs: &FaultRuns, findings: &mut Findings) -> Option<(String, f64)> {
    let p99 = |runs: &[Found]| runs.iter().map(|found| found.p99_ms).collect::<Vec<_>>();
    let median = |all: &[Option<f64>]| {
        let all: Vec<f64> = all.iter().copied().flatten().collect();
        shown(statistics::median(&all), 1)
    };
    let (healthy, faulty) = (p99(&runs.healthy), p99(&runs.faulty));
    let ratio = statistics::ratio(&faulty, &healthy);
    findings.say(format!(
        "\nOne dead and one slow node among {}, {} rounds: p99 of the others {} ms, without these faults {} ms",
        runs.nodes,
        runs.healthy.len(),
        median(&faulty),
        median(&healthy)
    ));
    for (name, all) in [("healthy", &runs.healthy), ("faulty", &runs.faulty)] {
        for found in all {
            tell_problems(&format!("faults, {name}"), found, findings);
            findings.rows.push(row(runs.nodes * 30, name, found));
        }
    }
    let middle = ratio.as_ref().map(|ratio| ratio.median);
    named("push_p99_dead_and_slow_vs_healthy", middle)
}

fn tell_bars(figures: &[(String, f64)], findings: &mut Findings) {
    let lines = BARS.iter().filter_map(|(name, bar)| {
        let (_, value) = figures.iter().find(|(known, _)| known == name)?;
        let verdict = if value <= bar { "kept" } else { "MISSED" };
        Some(format!(
            "  {name:34} {value:>10.2}  of {bar:>7.2}  {verdict}"
        ))
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        findings.say("\nAgainst what they should be at most");
        findings.say(lines.join("\n"));
    }
}

fn row(pods: usize, mode: &str, found: &Found) -> serde_json::Value {
    let (traffic, usage) = (&found.traffic, &found.usage);
    json!({
        "scenario": mode,
        "pods": pods,
        "changes_per_second": found.rate,
        "push_ms": {"p50": found.p50_ms, "p99": found.p99_ms, "max": found.max_ms},
        "etcd_ms": {"p50": found.written_p50_ms, "p99": found.written_p99_ms},
        "changes": found.changes, "missed": found.missed, "nodes_of_change": found.nodes,
        "delivered": found.delivered, "merged": found.merged, "strangers": found.strangers,
        "messages": traffic.messages, "marks": traffic.marks,
        "bytes": traffic.owed_bytes,
        "other_messages": traffic.stray_messages, "other_bytes": traffic.stray_bytes,
        "memory_mib": {
            "rest": found.rest_mib, "private": usage.private_mib, "pss": usage.pss_mib,
            "high_water": usage.high_water_mib,
        },
        "cores": {
            "control": usage.control_cores, "store": usage.store_cores, "load": usage.bench_cores,
        },
        "wrong_nodes": found.wrong,
    })
}
