//! The runs: each setting of each system in turn, over and over.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::figures::{ConcurrencyRun, ceiling, summary};
use super::mesh;
use super::plan::{ConcurrencyPlan, LENGTHENED, MOST_OF_A_CORE, ROOMS, Room, WAIT_MS};
use super::registry::Abilities;
use super::stage::{ConcurrencyStage, LoadProfile};
use crate::findings::Findings;
use crate::systems::{Running, System};

/// Connections and system: the settings of a room.
type Setting = (u32, usize);

/// What was found of a setting.
#[derive(Default)]
struct SettingRuns {
    runs: Vec<ConcurrencyRun>,
    /// The most requests that each provider had at one time, worked on or waiting.
    most: [u64; 3],
}

/// Runs the whole experiment.
///
/// # Errors
/// When something does not start, or a run cannot be made.
pub(super) fn run(
    plan: &ConcurrencyPlan,
    systems: &[System],
    abilities: &Abilities,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let versions = systems.iter().map(|s| format!("{} {}", s.name, s.version));
    findings.say(versions.collect::<Vec<_>>().join(" · "));
    abilities.said().iter().for_each(|line| findings.say(line));
    let mut wait_ms = None;
    for (number, room) in ROOMS.iter().enumerate() {
        let stage = ConcurrencyStage::set(systems, room)?;
        if let (0, Some(reason)) = (number, &stage.no_groups) {
            findings.say(format!("Providers are all of one size: {reason}"));
        }
        let running = start_all(&stage, systems, room, abilities)?;
        let wait_ms = match wait_ms {
            Some(known) => known,
            None => *wait_ms.insert(lengthen(plan, &stage, &running, findings)?),
        };
        let service_ms = stage.service_ms(wait_ms, plan.calibration_s)?;
        let found = measure(plan, &stage, &running, room, wait_ms)?;
        tell(plan, systems, room, service_ms, &found, findings);
    }
    Ok(())
}

fn start_all(
    stage: &ConcurrencyStage,
    systems: &[System],
    room: &Room,
    abilities: &Abilities,
) -> anyhow::Result<Vec<Running>> {
    let start = |(index, system): (usize, &System)| {
        mesh::start(
            system,
            &stage.endpoints,
            room,
            stage.place(index),
            abilities,
        )
    };
    systems.iter().enumerate().map(start).collect()
}

/// The shortest wait at a provider with which no system is short of processors.
fn lengthen(
    plan: &ConcurrencyPlan,
    stage: &ConcurrencyStage,
    running: &[Running],
    findings: &mut Findings,
) -> anyhow::Result<u64> {
    let mut found = (0, 1.0_f64);
    for factor in LENGTHENED {
        let wait_ms = WAIT_MS * factor;
        let mut busiest = 0.0_f64;
        for system in running {
            let outcome = stage.load(
                system,
                plan.load(plan.most_connections(), wait_ms, plan.calibration_s),
            )?;
            busiest = busiest.max(ConcurrencyRun::of(&outcome).busiest_core());
        }
        found = (wait_ms, busiest);
        if busiest < MOST_OF_A_CORE {
            break;
        }
    }
    let (wait_ms, busiest) = found;
    findings.say(format!(
        "Providers wait {wait_ms} ms ({WAIT_MS} as published, lengthened until no core is in use for more than \
         {:.0} %: {:.0} % of the busier one with {} connections); connections as published",
        MOST_OF_A_CORE * 100.0,
        busiest * 100.0,
        plan.most_connections()
    ));
    Ok(wait_ms)
}

/// Every run of a room.
fn measure(
    plan: &ConcurrencyPlan,
    stage: &ConcurrencyStage,
    running: &[Running],
    room: &Room,
    wait_ms: u64,
) -> anyhow::Result<BTreeMap<Setting, SettingRuns>> {
    let mut found: BTreeMap<Setting, SettingRuns> = BTreeMap::new();
    for number in 0..plan.runs {
        eprintln!("{}: run {} of {}", room.name, number + 1, plan.runs);
        for &connections in plan.connections {
            // The other way round each time: what drifts falls on all alike.
            for turn in 0..running.len() {
                let index = (turn + number) % running.len();
                // What the last run has left behind at the providers is not this one's.
                thread::park_timeout(Duration::from_millis(2 * wait_ms));
                stage.counts()?;
                let load = plan.load(connections, wait_ms, plan.window_s);
                let outcome = stage.load(&running[index], load)?;
                let of = found.entry((connections, index)).or_default();
                of.runs.push(ConcurrencyRun::of(&outcome));
                for (most, counts) in of.most.iter_mut().zip(stage.counts()?) {
                    *most = counts.most.max(*most);
                }
            }
        }
    }
    Ok(found)
}

fn tell(
    plan: &ConcurrencyPlan,
    systems: &[System],
    room: &Room,
    service_ms: f64,
    found: &BTreeMap<Setting, SettingRuns>,
    findings: &mut Findings,
) {
    let at_once = room.at_once.map(|at_once| at_once.to_string()).join(", ");
    findings.say(format!(
        "\n{}: {at_once} at once; a request takes {service_ms:.1} ms without a proxy",
        room.name
    ));
    findings.say(format!(
        "  {:>11}  {:8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}  {:>13}  {}",
        "connections",
        "system",
        "QPS",
        "ceiling",
        "mean ms",
        "p50",
        "p99",
        "max",
        "errors",
        "most at each",
        "cores"
    ));
    for (&(connections, index), SettingRuns { runs, most }) in found {
        let Some(run) = summary(runs) else { continue };
        let ceiling = ceiling(connections, room.sum(), service_ms);
        let there = most.map(|most| most.to_string()).join("/");
        findings.say(format!(
            "  {connections:>11}  {:8} {:>8.0} {:>8.2} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>7}  {there:>13}  {:.2} + {:.2}",
            systems[index].name,
            run.qps,
            run.qps / ceiling,
            run.mean_ms,
            run.p50_ms,
            run.p99_ms,
            run.max_ms,
            run.errors,
            run.proxy_cores,
            run.other_cores,
        ));
        findings.rows.push(json!({
            "room": room,
            "connections": connections,
            "system": systems[index].name,
            "service_ms": service_ms,
            "ceiling_per_s": ceiling,
            "most_at_each": most,
            "found": run,
            "runs": runs,
        }));
    }
    let of = |name: &str| {
        let index = systems.iter().position(|system| system.name == name)?;
        summary(&found.get(&(plan.most_connections(), index))?.runs)
    };
    let (ours, theirs) = (of("heddle"), of("envoy"));
    let names = RoomFigureNames::of(room);
    let ratio = |figure: fn(&ConcurrencyRun) -> f64| Some(figure(&ours?) / figure(&theirs?));
    findings.ratio(names.qps, ratio(|run| run.qps));
    findings.ratio(names.p99, ratio(|run| run.p99_ms));
    findings.ratio(names.max, ratio(|run| run.max_ms));
    let ceiling = ceiling(plan.most_connections(), room.sum(), service_ms);
    findings.ratio(names.ceiling, ours.map(|run| run.qps / ceiling));
    findings.ratio(names.envoy_ceiling, theirs.map(|run| run.qps / ceiling));
    findings.value(names.service, Some(service_ms));
    let failed = |index: usize| {
        let ours = found.iter().filter(|((_, of), _)| *of == index);
        ours.flat_map(|(_, found)| &found.runs)
            .map(|run| run.errors)
            .sum::<u64>() as f64
    };
    let ours = systems.iter().position(|system| system.name == "heddle");
    findings.value(names.failed, ours.map(failed));
}

/// What figures of a room are called: those with room bear its name.
struct RoomFigureNames {
    qps: &'static str,
    p99: &'static str,
    max: &'static str,
    ceiling: &'static str,
    envoy_ceiling: &'static str,
    service: &'static str,
    failed: &'static str,
}

impl RoomFigureNames {
    fn of(room: &Room) -> RoomFigureNames {
        if room.told {
            RoomFigureNames {
                qps: "qps_vs_envoy_512_room",
                p99: "p99_vs_envoy_512_room",
                max: "max_vs_envoy_512_room",
                ceiling: "qps_vs_ceiling_room",
                envoy_ceiling: "envoy_qps_vs_ceiling_room",
                service: "service_ms_room",
                failed: "failed_room",
            }
        } else {
            RoomFigureNames {
                qps: "qps_vs_envoy_512",
                p99: "p99_vs_envoy_512",
                max: "max_vs_envoy_512",
                ceiling: "qps_vs_ceiling",
                envoy_ceiling: "envoy_qps_vs_ceiling",
                service: "service_ms",
                failed: "failed",
            }
        }
    }
}

impl ConcurrencyPlan {
    fn load(&self, connections: u32, wait_ms: u64, window_s: f64) -> LoadProfile {
        LoadProfile {
            connections,
            wait_ms,
            warm_up_s: self.warm_up_s,
            window_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::plan::SIZES;

    #[test]
    fn the_setting_of_the_names_is_measured() {
        for plan in [ConcurrencyPlan::quick(), ConcurrencyPlan::full()] {
            assert_eq!(plan.most_connections(), 512);
            assert!(plan.runs > 2, "the best and the worst are left out");
        }
        assert_eq!(
            SIZES.map(|size| (size.share * 3.0).round()),
            [1.0, 2.0, 3.0]
        );
        assert_eq!(ROOMS.map(|room| room.sum()), [600, 400]);
    }
}
