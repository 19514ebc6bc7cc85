//! `qos-proxy`: an offline pod floods through the proxy that it shares with an online pod.
//!
//! The flood goes to a server of its own, which is offline, too: the proxy is all that the two have in common, besides
//! the machine. `heddle qos` keeps the flood's own pods from the processors; the proxy has to keep its work back itself.
//!
//! While the online pod is alone, a filler keeps the processors awake in the scheduler's idle class, so that waking them
//! costs the same in all conditions.

use std::path::Path;
use std::process;

use serde_json::json;

use super::agent::{Agent, AgentPod};
use super::{Condition, Latency, ROUNDS, report_latency, rounds, seconds, web_service};
use crate::child::{Child, Confinement, words};
use crate::install;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape, finish};
use crate::node::{NodeBenchOptions, NodeExperiment};

/// A round counts when the flood makes the p99 at least so many times that alone.
const DISTURBED: f64 = 2.0;

/// The group of the filler.
const FILLER: &str = "node-one/pods/filler";

/// Floods: their names, and the load generator's options.
const FLOODS: [(&str, &[&str]); 2] = [
    ("requests", &["--connections", "256", "--body-bytes", "128"]),
    ("bytes", &["--connections", "32", "--body-bytes", "1048576"]),
];

/// What was measured of one condition in one round.
#[derive(Debug, Clone, Copy)]
struct BesideFlood {
    latency: Latency,
    /// Requests per second of the flood.
    flood: f64,
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let stress = install::tool("stress-ng", "stress-ng")?;
    let mut experiment = NodeExperiment::new(options, "qos-proxy", &[Kind::Node])?;
    let mut measured = Ok(());
    for (name, flood) in FLOODS {
        let mut seen = Vec::new();
        measured = measure(&experiment, &stress, (name, flood), &mut seen);
        report(&mut experiment, name, &seen);
        if measured.is_err() {
            break;
        }
    }
    experiment.conclude(measured, &[])
}

fn measure(
    experiment: &NodeExperiment,
    stress: &Path,
    (name, flood): (&str, &[&str]),
    seen: &mut Vec<[BesideFlood; 3]>,
) -> anyhow::Result<()> {
    eprintln!("a flood of {name}");
    let shape = SceneShape {
        near: 1,
        batch: true,
        ..SceneShape::default()
    };
    let scene = Scene::up(Kind::Node, shape, &experiment.tools)?;
    let groups = ["batch", "sink"].map(|pod| scene.pod_group(pod, "one"));
    let pods = groups.map(AgentPod::offline);
    let agent = Agent::new(&scene, &experiment.tools.heddle, pods.into(), "")?;
    let filler = scene.group(FILLER);
    filler.create()?;
    filler.make_idle()?;
    rounds(experiment, ROUNDS, seen, |condition| {
        let _filling = match condition {
            Condition::Alone => Some(fill(&filler, stress, &agent)?),
            Condition::Off | Condition::On => None,
        };
        one(&scene, &agent, condition, flood, seconds(experiment))
    })
}

/// Keeps every processor busy until dropped.
fn fill(group: &LabGroup, stress: &Path, agent: &Agent) -> anyhow::Result<Child> {
    let mut command = words([stress.as_os_str()]);
    // 0 is one for each processor.
    command.extend(words(["--cpu", "0", "--quiet"]));
    let place = Confinement {
        groups: group.folders()?,
        ..Confinement::default()
    };
    let log = agent.folder().join("stress.log");
    Child::start("stress-ng", &place, &command, &log, false)
}

fn one(
    scene: &Scene,
    agent: &Agent,
    condition: Condition,
    flood: &[&str],
    seconds: u32,
) -> anyhow::Result<BesideFlood> {
    scene.set_class_of_batch(match condition {
        Condition::On => "offline",
        Condition::Alone | Condition::Off => "online",
    })?;
    let running = match condition {
        Condition::On => Some(agent.start()?),
        Condition::Alone | Condition::Off => None,
    };
    let flooding = match condition {
        Condition::Alone => None,
        Condition::Off | Condition::On => Some(start_flood(scene, flood, seconds)?),
    };
    let latency = web_service(scene, seconds);
    let flood = flooding.map(finish).transpose()?;
    drop(running);
    Ok(BesideFlood {
        latency: latency?,
        flood: flood.map_or(0.0, |outcome| outcome.per_s()),
    })
}

/// Starts the flood, which lasts longer than the measurement.
fn start_flood(scene: &Scene, flood: &[&str], seconds: u32) -> anyhow::Result<process::Child> {
    let target = scene.target("sink")?;
    let longer = (seconds + 2).to_string();
    let mut arguments = vec!["load", "--target", &target, "--seconds", &longer];
    arguments.extend(flood);
    scene.start_in("batch", &arguments)
}

fn report(experiment: &mut NodeExperiment, name: &str, seen: &[[BesideFlood; 3]]) {
    let findings = &mut experiment.runner.findings;
    let prefix = format!("proxy_{name}");
    report_latency(findings, seen, |seen| seen.latency, (&prefix, DISTURBED));
    for round in seen {
        for (condition, seen) in Condition::ALL.into_iter().zip(round) {
            findings.rows.push(json!({
                "flood": name,
                "condition": condition.name(),
                "p50_us": seen.latency.p50_us,
                "p99_us": seen.latency.p99_us,
                "max_us": seen.latency.max_us,
                "flood_requests_per_s": seen.flood,
            }));
        }
    }
}
