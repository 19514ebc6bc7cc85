//! `qos-agent`: what the agent itself costs, on a node of 100 pods.
//!
//! Each pod is a group with the group of a container below it, as the kubelet makes them. A fifth have a limit and ask
//! for turbo, another fifth are offline. Nothing runs in them: what the agent reads and compares is the same, and what it
//! costs is not hidden by the work of pods. At rest it may write nothing: neither to the groups nor to its journal.

mod writes;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use self::writes::Writes;
use super::agent::{Agent, AgentPod, Wish};
use super::wait;
use crate::account;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::Spread;

const PODS: u32 = 100;
/// Every fifth pod asks for turbo, and every fourth is offline, unless it asks for turbo.
const TURBO_EVERY: u32 = 5;
const OFFLINE_EVERY: u32 = 4;
/// The limit of a pod with turbo: half a processor.
const QUOTA_US: u64 = 50_000;
const PERIOD_US: u64 = 100_000;
const BURST_US: u64 = 20_000;
/// Rounds, quick and full.
const ROUNDS: (usize, usize) = (2, 5);
/// Time until the agent is at rest.
const SETTLING: Duration = Duration::from_secs(7);

/// What the agent used in one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Percent of a processor.
    cpu: f64,
    /// Resident memory, and that part of it which no other process has, in MiB.
    resident_mib: f64,
    private_mib: f64,
    /// Writes to groups and to the journal, in each second: at the start, and at rest.
    writes_at_start: f64,
    writes_per_s: f64,
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "qos-agent", &[Kind::Direct])?;
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    let measured = measure(&experiment, &mut idle, &mut busy);
    report(&mut experiment, &idle, &busy);
    experiment.conclude(measured, &[])
}

fn measure(
    experiment: &NodeExperiment,
    idle: &mut Vec<Cost>,
    busy: &mut Vec<Cost>,
) -> anyhow::Result<()> {
    let scene = Scene::up(Kind::Direct, SceneShape::default(), &experiment.tools)?;
    let heddle = &experiment.tools.heddle;
    let mut folders = Vec::new();
    let mut pods = Vec::new();
    for number in 0..PODS {
        let pod = pod(&scene, number)?;
        let container = scene.group(&container(number));
        folders.extend(pod.group.folders()?);
        folders.extend(container.folders()?);
        pods.push(pod);
    }
    let without = Agent::new(&scene, heddle, Vec::new(), "")?;
    let with = Agent::new(&scene, heddle, pods, "")?;
    let window = Duration::from_secs(if experiment.runner.quick { 10 } else { 30 });
    let count = experiment.rounds(ROUNDS.0, ROUNDS.1);
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        idle.push(one(&without, &[], window)?);
        busy.push(one(&with, &folders, window)?);
    }
    Ok(())
}

fn container(number: u32) -> String {
    format!("node-one/pods/pod{number}/container")
}

/// Makes the groups of a pod and of its container.
fn pod(scene: &Scene, number: u32) -> anyhow::Result<AgentPod> {
    let group = scene.group(&format!("node-one/pods/pod{number}"));
    let container = scene.group(&container(number));
    container.create()?;
    let wish = match (number % TURBO_EVERY, number % OFFLINE_EVERY) {
        (0, _) => {
            let limit = |group: &LabGroup| group.set_quota(Some(QUOTA_US), PERIOD_US);
            limit(&group)?;
            limit(&container)?;
            Wish::Turbo { burst_us: BURST_US }
        }
        (_, 0) => Wish::Offline,
        _ => Wish::Nothing,
    };
    Ok(AgentPod { group, wish })
}

fn one(agent: &Agent, folders: &[PathBuf], window: Duration) -> anyhow::Result<Cost> {
    let state = agent.state()?;
    let mut writes = Writes::watch(folders.iter().chain([&state]).map(PathBuf::as_path))?;
    let running = agent.start()?;
    wait(SETTLING);
    let at_start = writes.take()?;
    // Otherwise the kernel tells of no writes here, and that there are none at rest would say nothing.
    anyhow::ensure!(
        at_start > 0,
        "no write was seen while the agent started: its writes cannot be counted here"
    );
    let (began, before_ns) = (Instant::now(), account::cpu_ns_alone(running.pid())?);
    wait(window);
    let used_ns = account::cpu_ns_alone(running.pid())? - before_ns;
    let seconds = began.elapsed().as_secs_f64();
    let memory = account::memory_alone(running.pid())?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    Ok(Cost {
        cpu: used_ns as f64 / 1e9 / seconds * 100.0,
        resident_mib: mib(memory.rss_kib),
        private_mib: mib(memory.private_kib),
        writes_at_start: at_start as f64,
        writes_per_s: writes.take()? as f64 / seconds,
    })
}

fn report(experiment: &mut NodeExperiment, idle: &[Cost], busy: &[Cost]) {
    let findings = &mut experiment.runner.findings;
    let spread = |costs: &[Cost], figure: fn(&Cost) -> f64| {
        Spread::of(&costs.iter().map(figure).collect::<Vec<_>>())
    };
    for (name, costs) in [("no pods", idle), ("100 pods", busy)] {
        let of = |figure| spread(costs, figure).map_or(f64::NAN, |spread| spread.median);
        findings.say(format!(
            "{name:8}: {:.2} % of a processor, {:.1} MiB resident, {:.1} of them private, {:.0} writes at the start, \
             then {:.2}/s",
            of(|cost| cost.cpu),
            of(|cost| cost.resident_mib),
            of(|cost| cost.private_mib),
            of(|cost| cost.writes_at_start),
            of(|cost| cost.writes_per_s),
        ));
        for cost in costs {
            findings.rows.push(json!({
                "pods": name,
                "cpu_percent": cost.cpu,
                "resident_mib": cost.resident_mib,
                "private_mib": cost.private_mib,
                "writes_at_start": cost.writes_at_start,
                "writes_per_s": cost.writes_per_s,
            }));
        }
    }
    findings.value("agent_cpu_percent", spread(busy, |cost| cost.cpu));
    findings.value("agent_mib", spread(busy, |cost| cost.resident_mib));
    findings.value("agent_private_mib", spread(busy, |cost| cost.private_mib));
    findings.value("agent_writes_per_s", spread(busy, |cost| cost.writes_per_s));
    findings.value("agent_cpu_percent_no_pods", spread(idle, |cost| cost.cpu));
    findings.value("agent_mib_no_pods", spread(idle, |cost| cost.resident_mib));
    let more: Vec<f64> = idle
        .iter()
        .zip(busy)
        .map(|(idle, busy)| busy.resident_mib - idle.resident_mib)
        .collect();
    findings.value("agent_mib_for_pods", Spread::of(&more));
}
