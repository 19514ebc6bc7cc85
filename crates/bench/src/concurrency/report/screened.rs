//! Configurations of Envoy that were tried, and which of them run in full.

use serde_json::json;

use super::RoomReport;
use crate::concurrency::figures::{ConcurrencyRun, medians};
use crate::concurrency::plan::ConcurrencyPlan;
use crate::concurrency::setups::EnvoySetup;
use crate::findings::Findings;

/// A configuration of Envoy that was tried.
pub(in crate::concurrency) struct Screened {
    pub(in crate::concurrency) connections: u32,
    pub(in crate::concurrency) setup: EnvoySetup,
    pub(in crate::concurrency) runs: Vec<ConcurrencyRun>,
    /// Why a run could not be made.
    pub(in crate::concurrency) failure: Option<String>,
}

impl Screened {
    /// The medians of its runs; `None` if a run could not be made.
    pub(in crate::concurrency) fn shown(&self) -> Option<ConcurrencyRun> {
        match self.failure {
            Some(_) => None,
            None => medians(&self.runs),
        }
    }
}

/// Reports the result of each configuration.
pub(super) fn screened(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    findings.say(format!(
        "  Configurations of Envoy, medians of {} runs of {} s each, of one where that is far behind; those that are \
         the best in a figure run in full:",
        plan.screening_runs, report.screening_s
    ));
    findings.say(format!(
        "  {:>11}  {:52} {:>4} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>13}  {}",
        "connections",
        "configuration",
        "runs",
        "QPS",
        "mean ms",
        "p99",
        "max",
        "errors",
        "most at each",
        "best in"
    ));
    let mut all: Vec<&Screened> = report.screened.iter().collect();
    all.sort_by_key(|one| one.connections);
    for one in all {
        let connections = one.connections;
        let name = one.setup.name();
        let best_in = report.best_in(connections, &one.setup);
        let shown = one.shown();
        findings.say(match &shown {
            Some(run) => format!(
                "  {connections:>11}  {name:52} {:>4} {:>7.0} {:>7.1} {:>7.1} {:>7.1} {:>7}  {:>13}  {}",
                one.runs.len(),
                run.qps,
                run.mean_ms,
                run.p99_ms,
                run.max_ms,
                run.errors,
                run.most_at_each.map(|most| most.to_string()).join("/"),
                best_in.join(", ")
            ),
            None => format!(
                "  {connections:>11}  {name:52} not measured: {}",
                one.failure.as_deref().unwrap_or("no run")
            ),
        });
        findings.rows.push(json!({
            "room": report.room.name,
            "connections": connections,
            "screened": one.setup,
            "name": name,
            "best_in": best_in,
            "found": shown,
            "runs": one.runs,
            "failure": one.failure,
        }));
    }
}
