//! What was found, told: a table for each room, ratios by name, and whether it counts.

use std::collections::BTreeMap;

use serde_json::json;

use super::figures::{ConcurrencyRun, SystemRatios, compared, deviation, summary};
use super::plan::{ConcurrencyPlan, MOST_OF_A_CORE, Room, SIZES, WAIT_MS};
use super::setups::EnvoySetup;
use crate::findings::{Findings, shown};

/// What stands for a system where there is no proxy.
pub(super) const CEILING: &str = "no proxy";
const HEDDLE: &str = "heddle";
const ENVOY: &str = "envoy";

/// How long providers wait, and what processor time they have.
#[derive(Debug, Clone, Default)]
pub(super) struct Scale {
    pub(super) wait_ms: u64,
    /// Of the busier core with the most connections, when the wait was chosen.
    pub(super) busiest: f64,
    /// What answering a request takes a provider, in microseconds of a processor.
    pub(super) answer_us: f64,
    /// What answering a third of all requests takes with the most connections, in cores.
    pub(super) third_cores: f64,
}

/// What was found with the providers of one room.
pub(super) struct RoomReport {
    pub(super) room: Room,
    /// Of the providers, in cores; none where they have none.
    pub(super) quotas: Vec<f64>,
    /// What answering a third of all requests takes with the most connections, in cores.
    pub(super) third_cores: f64,
    /// How long each run counted, in seconds.
    pub(super) window_s: f64,
    /// Why they have none.
    pub(super) no_quotas: Option<String>,
    pub(super) screened: Vec<Screened>,
    /// The best configuration of Envoy for so many connections.
    pub(super) best: BTreeMap<u32, EnvoySetup>,
    /// By connections and system.
    pub(super) runs: BTreeMap<(u32, String), Vec<ConcurrencyRun>>,
}

/// A configuration of Envoy that was tried.
pub(super) struct Screened {
    pub(super) connections: u32,
    pub(super) setup: EnvoySetup,
    pub(super) run: Option<ConcurrencyRun>,
    /// Why there is no run.
    pub(super) failure: Option<String>,
}

impl RoomReport {
    /// How busy the busier core was in the run where it was most, 0 to 1.
    pub(super) fn busiest_core(&self) -> f64 {
        let runs = self.runs.values().flatten();
        runs.map(ConcurrencyRun::busiest_core).fold(0.0, f64::max)
    }

    fn runs_of(&self, connections: u32, system: &str) -> &[ConcurrencyRun] {
        let runs = self.runs.get(&(connections, system.to_owned()));
        runs.map_or(&[], Vec::as_slice)
    }

    /// The end of the names of this room's figures.
    fn suffix(&self) -> &'static str {
        if self.room.told { "_room" } else { "" }
    }
}

/// Says how the experiment was scaled to the machine.
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

/// Says what was found in all rooms. Returns how many requests failed or had a wrong hash.
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

fn quotas(report: &RoomReport, most: u32, findings: &mut Findings) {
    if let Some(reason) = &report.no_quotas {
        findings.say(format!("  Providers are all of one size: {reason}"));
        return;
    }
    let quota = |(quota, size): (&f64, &super::plan::Size)| format!("{} {quota:.3}", size.name);
    let quotas: Vec<String> = report.quotas.iter().zip(&SIZES).map(quota).collect();
    let used_up = |system: &str| {
        let found = summary(report.runs_of(most, system))?;
        let parts = found.throttled.map(|part| format!("{:.0}", part * 100.0));
        Some(format!("{system} {} %", parts.join("/")))
    };
    let used_up: Vec<String> = [HEDDLE, ENVOY, CEILING]
        .into_iter()
        .filter_map(used_up)
        .collect();
    let of_need = report.quotas.first().unwrap_or(&0.0) / report.third_cores;
    findings.say(format!(
        "  Quotas in cores: {} (the small one's is {:.0} % of what a third of all answers takes). Used up with {most} \
         connections in so many periods of 100 ms: {}",
        quotas.join(", "),
        of_need * 100.0,
        used_up.join(", ")
    ));
    let name = format!("small_quota_in_its_need{}", report.suffix());
    findings.value(name, Some(of_need));
    if of_need >= 1.0 {
        findings.invalid(
            "no quota binds: a third of all answers takes less than the small provider has",
        );
    }
}

fn screened(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    findings.say(format!(
        "  Configurations of Envoy, {} s each (* the best, which runs in full):",
        plan.screening_s
    ));
    findings.say(format!(
        "  {:>11}  {:52} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>13}",
        "connections", "configuration", "QPS", "mean ms", "p99", "max", "errors", "most at each"
    ));
    let mut all: Vec<&Screened> = report.screened.iter().collect();
    all.sort_by_key(|one| one.connections);
    for one in all {
        let best = report.best.get(&one.connections) == Some(&one.setup);
        let name = format!("{}{}", if best { "*" } else { " " }, one.setup.name());
        let connections = one.connections;
        findings.say(match &one.run {
            Some(run) => format!(
                "  {connections:>11}  {name:52} {:>7.0} {:>7.1} {:>7.1} {:>7.1} {:>7}  {:>13}",
                run.qps,
                run.mean_ms,
                run.p99_ms,
                run.max_ms,
                run.errors,
                run.most_at_each.map(|most| most.to_string()).join("/")
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
            "name": one.setup.name(),
            "best": best,
            "found": one.run,
            "failure": one.failure,
        }));
    }
}

fn table(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    findings.say(format!(
        "  {} runs of {} s, less the best and the worst:",
        plan.runs, report.window_s
    ));
    findings.say(format!(
        "  {:>11}  {:8} {:>7} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6}  {:>13}  {}",
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
        "cores"
    ));
    for ((connections, system), runs) in &report.runs {
        let Some(run) = summary(runs) else { continue };
        let ceiling = summary(report.runs_of(*connections, CEILING));
        let of_ceiling = ceiling.map(|ceiling| run.qps / ceiling.qps);
        findings.say(format!(
            "  {connections:>11}  {system:8} {:>7.0} {:>5.0} {:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>7} {:>6}  {:>13}  \
             {:.2} + {:.2}",
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
        ));
        let setup = report.best.get(connections).filter(|_| system == ENVOY);
        findings.rows.push(json!({
            "room": report.room,
            "connections": connections,
            "system": system,
            "setup": setup.map(EnvoySetup::name),
            "qps_vs_ceiling": of_ceiling,
            "vs_envoy_best": (system == HEDDLE)
                .then(|| compared(runs, report.runs_of(*connections, ENVOY))),
            "found": run,
            "runs": runs,
        }));
    }
    for &connections in plan.connections {
        let beside = compared(
            report.runs_of(connections, HEDDLE),
            report.runs_of(connections, ENVOY),
        );
        let said = ["qps", "p99", "max"].into_iter().filter_map(|name| {
            let SystemRatios { ratio, verdict, .. } = beside.get(name)?;
            Some(format!("{name} {ratio:.2}, {}", verdict.word()))
        });
        let said: Vec<String> = said.collect();
        if let (false, Some(best)) = (said.is_empty(), report.best.get(&connections)) {
            findings.say(format!(
                "  {connections:>11}  heddle in the best Envoy ({}): {}",
                best.name(),
                said.join("; ")
            ));
        }
    }
}

/// The ratios by their names: those with the most connections, which bars are about, and those of the others.
fn named(plan: &ConcurrencyPlan, report: &RoomReport, findings: &mut Findings) {
    let suffix = report.suffix();
    for &connections in plan.connections {
        let heddle = report.runs_of(connections, HEDDLE);
        let beside = compared(heddle, report.runs_of(connections, ENVOY));
        for (name, found) in beside {
            let name = format!("{name}_vs_envoy_best_{connections}{suffix}");
            findings.ratio(name, found.spread());
        }
        let ceiling = report.runs_of(connections, CEILING);
        let of_ceiling = |system: &str| {
            let found = compared(report.runs_of(connections, system), ceiling);
            found.get("qps").and_then(SystemRatios::spread)
        };
        let at = if connections == plan.most_connections() {
            String::new()
        } else {
            format!("_{connections}")
        };
        let name = format!("qps_vs_ceiling{at}{suffix}");
        findings.ratio(name, of_ceiling(HEDDLE));
        let name = format!("envoy_best_qps_vs_ceiling{at}{suffix}");
        findings.ratio(name, of_ceiling(ENVOY));
    }
}

/// Counts what failed, of all systems.
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
mod tests {
    use super::*;
    use crate::concurrency::figures::run;
    use crate::concurrency::plan::ROOMS;
    use crate::machine::Machine;

    fn report(room: Room, errors: u64) -> RoomReport {
        let mut runs = BTreeMap::new();
        for &connections in ConcurrencyPlan::quick().connections {
            let four = |qps, max_ms, errors| vec![run(qps, max_ms, errors); 4];
            runs.insert((connections, HEDDLE.to_owned()), four(950.0, 8.0, errors));
            runs.insert((connections, ENVOY.to_owned()), four(760.0, 10.0, 0));
            runs.insert((connections, CEILING.to_owned()), four(1000.0, 5.0, 0));
        }
        RoomReport {
            room,
            quotas: vec![0.1, 0.2, 0.3],
            third_cores: 0.11,
            window_s: 4.0,
            no_quotas: None,
            screened: Vec::new(),
            best: BTreeMap::from([(512, EnvoySetup::candidates(&room)[0])]),
            runs,
        }
    }

    fn told(errors: u64) -> (u64, serde_json::Value) {
        let machine = Machine::describe().expect("a machine");
        let mut findings = Findings::new("concurrency", true, machine);
        let all = ROOMS.map(|room| report(room, errors));
        let wrong = rooms(&ConcurrencyPlan::quick(), &all, &mut findings);
        (wrong, serde_json::to_value(&findings).expect("JSON"))
    }

    #[test]
    fn ratios_have_the_names_of_the_documentation_in_both_rooms() {
        let (wrong, found) = told(0);
        assert_eq!(wrong, 0);
        let ratio = |name: &str| found["ratios"][name].as_f64().expect(name);
        for suffix in ["", "_room"] {
            assert_eq!(ratio(&format!("qps_vs_ceiling{suffix}")), 0.95);
            assert_eq!(ratio(&format!("qps_vs_ceiling_128{suffix}")), 0.95);
            assert_eq!(ratio(&format!("qps_vs_envoy_best_512{suffix}")), 1.25);
            assert_eq!(ratio(&format!("p99_vs_envoy_best_512{suffix}")), 1.0);
            assert_eq!(ratio(&format!("max_vs_envoy_best_256{suffix}")), 0.8);
        }
        let row = &found["rows"][1];
        assert_eq!(row["system"], HEDDLE);
        assert_eq!(row["vs_envoy_best"]["p99"]["verdict"], "equal");
        assert_eq!(row["vs_envoy_best"]["qps"]["verdict"], "better");
    }

    #[test]
    fn quotas_that_do_not_bind_make_it_invalid() {
        let machine = Machine::describe().expect("a machine");
        let mut findings = Findings::new("concurrency", true, machine);
        let loose = RoomReport {
            third_cores: 0.09,
            ..report(ROOMS[1], 0)
        };
        rooms(&ConcurrencyPlan::quick(), &[loose], &mut findings);
        let found = serde_json::to_value(&findings).expect("JSON");
        let value = found["values"]["small_quota_in_its_need_room"].as_f64();
        assert!(value.is_some_and(|value| value > 1.1), "{value:?}");
        assert_eq!(found["invalid"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn one_failure_fails_the_experiment() {
        let (wrong, found) = told(1);
        assert_eq!(wrong, 2 * 3 * 4);
        assert_eq!(found["values"]["failed_room"], 12.0);
        assert_eq!(found["values"]["wrong_hashes"], 0.0);
    }
}
