//! The report: a table for each room, ratios by name, and whether the result is valid.

use std::collections::BTreeMap;

use serde_json::json;

use super::figures::{
    COMPARED, ConcurrencyRun, SystemRatios, compared, deviation, least_left, summary,
};
use super::plan::{ConcurrencyPlan, MOST_OF_A_CORE, Room, SIZES, WAIT_MS};
use super::setups::{BestSetups, EnvoySetup};
use crate::findings::{Findings, shown};
use screened::screened;

pub(super) use screened::Screened;

mod screened;

/// The name that runs without a proxy have in place of a system.
pub(super) const CEILING: &str = "no proxy";
const HEDDLE: &str = "heddle";

/// The wait of the providers, and the CPU time of their answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Scale {
    pub(super) wait_ms: u64,
    /// Use of the busier core with the most connections when the wait was chosen, 0 to 1.
    pub(super) busiest: f64,
    /// CPU time that answering a request takes a provider, in microseconds.
    pub(super) answer_us: f64,
    /// CPU time that answering a third of all requests takes with the most connections, in cores.
    pub(super) third_cores: f64,
}

/// The results with the providers of one room.
pub(super) struct RoomReport {
    pub(super) room: Room,
    /// Quotas of the providers, in cores; empty where they have none.
    pub(super) quotas: Vec<f64>,
    /// CPU time that answering a third of all requests takes with the most connections, in cores.
    pub(super) third_cores: f64,
    /// The window of each run, in seconds.
    pub(super) window_s: f64,
    /// The window of each screening run, in seconds.
    pub(super) screening_s: f64,
    /// Why providers have no quotas.
    pub(super) no_quotas: Option<String>,
    pub(super) screened: Vec<Screened>,
    /// The best configurations of Envoy by number of connections.
    pub(super) best: BTreeMap<u32, BestSetups>,
    /// By number of connections, system, and configuration of Envoy.
    pub(super) runs: BTreeMap<(u32, String, Option<EnvoySetup>), Vec<ConcurrencyRun>>,
}

impl RoomReport {
    /// Use of the busier core in the run where it was highest, 0 to 1.
    pub(super) fn busiest_core(&self) -> f64 {
        let runs = self.runs.values().flatten();
        runs.map(ConcurrencyRun::busiest_core).fold(0.0, f64::max)
    }

    /// The runs of a system that has one configuration.
    fn runs_of(&self, connections: u32, system: &str) -> &[ConcurrencyRun] {
        let runs = self.runs.get(&(connections, system.to_owned(), None));
        runs.map_or(&[], Vec::as_slice)
    }

    /// The runs of each Envoy configuration that ran in full.
    fn envoys(&self, connections: u32) -> Vec<(&EnvoySetup, &[ConcurrencyRun])> {
        let here = self.runs.iter().filter(|((at, ..), _)| *at == connections);
        here.filter_map(|((.., setup), runs)| Some((setup.as_ref()?, runs.as_slice())))
            .collect()
    }

    /// Heddle's figures divided by those of Envoy; each figure with the configuration that is least favourable to
    /// Heddle.
    fn beside_envoy(
        &self,
        connections: u32,
    ) -> BTreeMap<&'static str, (&EnvoySetup, SystemRatios)> {
        let envoys = self.envoys(connections);
        let runs: Vec<_> = envoys.iter().map(|(_, runs)| *runs).collect();
        let least = least_left(self.runs_of(connections, HEDDLE), &runs);
        let named = least.into_iter();
        named
            .map(|(name, (index, found))| (name, (envoys[index].0, found)))
            .collect()
    }

    /// The figures in which a configuration of Envoy was the best when it was screened.
    fn best_in(&self, connections: u32, setup: &EnvoySetup) -> Vec<&'static str> {
        let best = self.best.get(&connections);
        best.map(|best| best.figures_of(setup)).unwrap_or_default()
    }

    /// Suffix of the names of this room's figures.
    fn suffix(&self) -> &'static str {
        if self.room.told { "_room" } else { "" }
    }
}

/// Reports how the experiment was scaled to the machine.
pub(super) fn scale(scale: &Scale, busiest: f64, findings: &mut Findings) {
    let kept = if busiest > MOST_OF_A_CORE {
        ": more than it should be"
    } else {
        ""
    };
    findings.say(format!(
        "Providers wait {} ms ({WAIT_MS} as published, lengthened until no core is in use for more than {:.0} %; in \
         the busiest run it was {:.0} %{kept})",
        scale.wait_ms,
        MOST_OF_A_CORE * 100.0,
        busiest * 100.0
    ));
    findings.say(format!(
        "An answer takes a provider {:.0} µs of a processor",
        scale.answer_us
    ));
    findings.value("wait_ms", Some(scale.wait_ms as f64));
    findings.value("busiest_core", Some(busiest));
}

/// Reports the results of all rooms. Returns how many requests failed or had a wrong hash.
pub(super) fn rooms(plan: &ConcurrencyPlan, rooms: &[RoomReport], findings: &mut Findings) -> u64 {
    let mut wrong = 0;
    for report in rooms {
        findings.say(format!(
            "\n{}: {} at once",
            report.room.name,
            report
                .room
                .at_once
                .map(|at_once| at_once.to_string())
                .join(", ")
        ));
        quotas(report, plan.most_connections(), findings);
        screened(plan, report, findings);
        table(plan, report, findings);
        named(plan, report, findings);
        wrong += failures(report, findings);
    }
    if wrong == 0 {
        findings.say("\nEvery request was answered, every hash is right");
    } else {
        findings.invalid(format!("{wrong} requests failed or had a wrong hash"));
    }
    wrong
}

/// The name of a system in the report, with its configuration where it has several.
fn called(system: &str, setup: Option<&EnvoySetup>) -> String {
    match setup {
        Some(setup) => format!("{system} ({})", setup.name()),
        None => system.to_owned(),
    }
}

fn quotas(report: &RoomReport, most: u32, findings: &mut Findings) {
    if let Some(reason) = &report.no_quotas {
        findings.say(format!("  Providers are all of one size: {reason}"));
        return;
    }
    let quota = |(quota, size): (&f64, &super::plan::Size)| format!("{} {quota:.3}", size.name);
    let quotas: Vec<String> = report.quotas.iter().zip(&SIZES).map(quota).collect();
    let used_up = |name: String, runs: &[ConcurrencyRun]| {
        let found = summary(runs)?;
        let parts = found.throttled.map(|part| format!("{:.0}", part * 100.0));
        Some(format!("{name} {} %", parts.join("/")))
    };
    let used_up: Vec<String> = report
        .runs
        .iter()
        .filter(|((connections, ..), _)| *connections == most)
        .filter_map(|((_, system, setup), runs)| used_up(called(system, setup.as_ref()), runs))
        .collect();
    let of_need = report.quotas.first().unwrap_or(&0.0) / report.third_cores;
    findings.say(format!(
        "  Quotas in cores: {} (the small one's is {:.0} % of what a third of all answers takes). Used up with {most} \
         connections in these parts of the periods of 100 ms: {}",
        quotas.join(", "),
        of_need * 100.0,
        used_up.join("; ")
    ));
    let name = format!("small_quota_in_its_need{}", report.suffix());
    findings.value(name, Some(of_need));
    if of_need >= 1.0 {
        findings.invalid(
            "no quota binds: a third of all answers takes less than the small provider has",
        );
    }
}

fn table(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    findings.say(format!(
        "  {} runs of {} s, less the best and the worst:",
        plan.runs, report.window_s
    ));
    findings.say(format!(
        "  {:>11}  {:8} {:>7} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6}  {:>13}  {:11}  {}",
        "connections",
        "system",
        "QPS",
        "±",
        "ceiling",
        "mean ms",
        "p50",
        "p99",
        "max",
        "errors",
        "hashes",
        "most at each",
        "cores",
        "configuration"
    ));
    for ((connections, system, setup), runs) in &report.runs {
        let Some(run) = summary(runs) else { continue };
        let ceiling = summary(report.runs_of(*connections, CEILING));
        let of_ceiling = ceiling.map(|ceiling| run.qps / ceiling.qps);
        findings.say(format!(
            "  {connections:>11}  {system:8} {:>7.0} {:>5.0} {:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>7} {:>6}  {:>13}  \
             {:.2} + {:.2}  {}",
            run.qps,
            deviation(runs, |run| run.qps),
            shown(of_ceiling, 2),
            run.mean_ms,
            run.p50_ms,
            run.p99_ms,
            run.max_ms,
            run.errors,
            run.wrong_hashes,
            run.most_at_each.map(|most| most.to_string()).join("/"),
            run.proxy_cores,
            run.other_cores,
            setup.as_ref().map_or_else(String::new, EnvoySetup::name),
        ));
        let best_in = setup.as_ref();
        let best_in = best_in.map(|setup| report.best_in(*connections, setup));
        findings.rows.push(json!({
            "room": report.room,
            "connections": connections,
            "system": system,
            "setup": setup.as_ref().map(EnvoySetup::name),
            "best_in": best_in,
            "qps_vs_ceiling": of_ceiling,
            "vs_envoy_best": (system == HEDDLE).then(|| beside(report, *connections)),
            "found": run,
            "runs": runs,
        }));
    }
    for &connections in plan.connections {
        let found = report.beside_envoy(connections);
        let said = COMPARED.into_iter().filter_map(|(name, _)| {
            let (setup, SystemRatios { ratio, verdict, .. }) = found.get(name)?;
            Some(format!(
                "{name} {ratio:.2}, {} ({})",
                verdict.word(),
                setup.name()
            ))
        });
        let said: Vec<String> = said.collect();
        if !said.is_empty() {
            findings.say(format!(
                "  {connections:>11}  heddle divided by the Envoy least favourable to it: {}",
                said.join("; ")
            ));
        }
    }
}

/// Heddle compared with the best Envoys, figure by figure, as JSON.
fn beside(report: &RoomReport, connections: u32) -> serde_json::Value {
    let found = report.beside_envoy(connections).into_iter();
    let rows = found.map(|(name, (setup, found))| {
        let SystemRatios {
            ratio,
            verdict,
            rounds,
        } = found;
        let row = json!({
            "setup": setup.name(),
            "ratio": ratio,
            "verdict": verdict,
            "rounds": rounds,
        });
        (name.to_owned(), row)
    });
    serde_json::Value::Object(rows.collect())
}

/// Records the ratios by name: those with the most connections, which the thresholds are for, and those with fewer.
fn named(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    let suffix = report.suffix();
    for &connections in plan.connections {
        for (name, (_, found)) in report.beside_envoy(connections) {
            let name = format!("{name}_vs_envoy_best_{connections}{suffix}");
            findings.ratio(name, found.spread());
        }
        let ceiling = report.runs_of(connections, CEILING);
        let of_ceiling = |runs: &[ConcurrencyRun]| compared(runs, ceiling).remove("qps");
        let envoys = report.envoys(connections).into_iter();
        let envoys = envoys.filter_map(|(_, runs)| of_ceiling(runs));
        let best = envoys.max_by(|one, other| one.ratio.total_cmp(&other.ratio));
        let heddle = of_ceiling(report.runs_of(connections, HEDDLE));
        let at = if connections == plan.most_connections() {
            String::new()
        } else {
            format!("_{connections}")
        };
        for (name, found) in [("qps", heddle), ("envoy_best_qps", best)] {
            let name = format!("{name}_vs_ceiling{at}{suffix}");
            findings.ratio(name, found.as_ref().and_then(SystemRatios::spread));
        }
    }
}

/// Reports the failures of all systems together; returns their number.
fn failures(report: &RoomReport, findings: &mut Findings) -> u64 {
    let sum = |figure: fn(&ConcurrencyRun) -> u64| {
        let runs = report.runs.values().flatten();
        runs.map(figure).sum::<u64>()
    };
    let (errors, hashes) = (sum(|run| run.errors), sum(|run| run.wrong_hashes));
    let (failed, wrong) = if report.room.told {
        ("failed_room", "wrong_hashes_room")
    } else {
        ("failed", "wrong_hashes")
    };
    findings.value(failed, Some(errors as f64));
    findings.value(wrong, Some(hashes as f64));
    errors.max(hashes)
}

#[cfg(test)]
mod tests;
