//! `qos-proxy`: an offline pod floods through the proxy that it shares with an online pod.
//!
//! The flood goes to a server of its own, which is offline, too: the proxy is all that the two have in common, besides
//! the machine. `heddle qos` keeps the flood's own pods from the processors; the proxy has to keep its work back itself.
//!
//! While the online pod is alone, a filler keeps the processors awake in the scheduler's idle class, so that waking them
//! costs the same in all conditions.
//!
//! A fourth measurement says what the kernel leaves: the same flood on a node of its own, with a proxy of its own, all of it
//! in an idle group. The two have nothing in common then but processors, caches and the kernel.

use std::net::SocketAddr;
use std::path::Path;
use std::process;

use anyhow::Context;
use serde_json::json;

use super::agent::{Agent, AgentPod};
use super::{Condition, Latency, report_latency, rounds, seconds, web_service};
use crate::authority::{Authority, identity};
use crate::child::{Child, Confinement, words};
use crate::handshakes::Shaken;
use crate::install;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape, finish};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::{Spread, ratio};

/// A round counts when the flood makes the p99 at least so many times that alone.
const DISTURBED: f64 = 2.0;

/// Rounds, quick and full.
const ROUNDS: (usize, usize) = (3, 10);
/// Name of the files with the certificate for handshakes.
const STRANGER: &str = "stranger";
/// The group of the filler.
const FILLER: &str = "node-one/pods/filler";

/// A flood of an offline pod.
#[derive(Debug, Clone, Copy)]
enum Flood {
    /// Requests to the server, with these options of the load generator.
    Load(&'static [&'static str]),
    /// Handshakes with the node itself, of a caller with the certificate of another mesh: it is refused only after all the
    /// work of a handshake. (Calls to other nodes make few handshakes, since they share links.)
    Handshakes,
}

const FLOODS: [(&str, Flood); 3] = [
    (
        "requests",
        Flood::Load(&["--connections", "256", "--body-bytes", "128"]),
    ),
    (
        "bytes",
        Flood::Load(&["--connections", "32", "--body-bytes", "1048576"]),
    ),
    ("handshakes", Flood::Handshakes),
];

/// Handshakes per second: more than one Worker can make.
const HANDSHAKES: &str = "4000";
/// The port at which other nodes connect to a node of a lab.
const MESH_PORT: u16 = 15008;

/// Where a flood is: the pod that sends it, the server that it goes to, and the node of both.
#[derive(Debug, Clone, Copy)]
struct Place {
    batch: &'static str,
    sink: &'static str,
    node: &'static str,
}

/// On the online pod's node.
const SHARED: Place = Place {
    batch: "batch",
    sink: "sink",
    node: "one",
};
/// On a node of its own.
const APART: Place = Place {
    batch: "batch-apart",
    sink: "sink-apart",
    node: "two",
};

/// Every condition of every round, and the flood on a node of its own, once a round.
#[derive(Debug, Default)]
struct Seen {
    rounds: Vec<[BesideFlood; 3]>,
    apart: Vec<BesideFlood>,
}

/// What was measured of one condition in one round.
#[derive(Debug, Clone, Copy)]
struct BesideFlood {
    latency: Latency,
    /// Requests or handshakes per second of the flood.
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
        let mut seen = Seen::default();
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
    (name, flood): (&str, Flood),
    Seen {
        rounds: seen,
        apart,
    }: &mut Seen,
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
    let folder = agent.folder();
    Authority::new()?
        .leaf("stranger")?
        .write(folder, STRANGER)?;
    let flooding = Flooding { flood, folder };
    let filler = scene.group(FILLER);
    filler.create()?;
    filler.make_idle()?;
    scene.group("node-two").make_idle()?;
    let seconds = seconds(experiment);
    rounds(experiment, ROUNDS, seen, |condition| {
        if condition == Condition::Alone {
            apart.push(beside(&scene, Some((&flooding, APART)), seconds)?);
        }
        let _filling = match condition {
            Condition::Alone => Some(fill(&filler, stress, &agent)?),
            Condition::Off | Condition::On => None,
        };
        one(&scene, &agent, condition, &flooding, seconds)
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
    flood: &Flooding<'_>,
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
    let flood = match condition {
        Condition::Alone => None,
        Condition::Off | Condition::On => Some((flood, SHARED)),
    };
    let measured = beside(scene, flood, seconds);
    drop(running);
    measured
}

/// Calls the web service, beside a flood if there is one.
fn beside(
    scene: &Scene,
    flood: Option<(&Flooding<'_>, Place)>,
    seconds: u32,
) -> anyhow::Result<BesideFlood> {
    let flooding = flood
        .map(|(flood, place)| flood.start(scene, place, seconds))
        .transpose()?;
    let latency = web_service(scene, seconds);
    let per_s = flood
        .zip(flooding)
        .map(|((flood, _), flooding)| flood.finish(flooding))
        .transpose()?;
    Ok(BesideFlood {
        latency: latency?,
        flood: per_s.unwrap_or_default(),
    })
}

/// A flood, and what it needs.
struct Flooding<'a> {
    flood: Flood,
    /// Where the certificate for handshakes is.
    folder: &'a Path,
}

impl Flooding<'_> {
    /// Starts the flood, which lasts longer than the measurement.
    fn start(&self, scene: &Scene, place: Place, seconds: u32) -> anyhow::Result<process::Child> {
        let longer = (seconds + 2).to_string();
        let target = scene.target(place.sink)?;
        match self.flood {
            Flood::Load(options) => {
                let mut arguments = vec!["load", "--target", &target, "--seconds", &longer];
                arguments.extend(options);
                scene.start_in(place.batch, &arguments)
            }
            Flood::Handshakes => {
                let to = SocketAddr::new(scene.node_address(place.node)?, MESH_PORT).to_string();
                let name = identity(place.sink)?
                    .server_name()
                    .context("too long a name")?;
                let protocol = std::str::from_utf8(heddle_transport::Protocol::default().alpn())?;
                let [certificate, key] = ["pem", "key"].map(|end| {
                    let file = self.folder.join(STRANGER).with_extension(end);
                    file.display().to_string()
                });
                let arguments = ["handshakes", "--to", &to, "--name", &name];
                let more = ["--protocol", protocol, "--certificate", &certificate];
                let rest = ["--key", &key, "--rate", HANDSHAKES, "--seconds", &longer];
                scene.start_in(place.batch, &[&arguments[..], &more, &rest].concat())
            }
        }
    }

    /// Waits for its end, and returns its requests or handshakes per second.
    fn finish(&self, flooding: process::Child) -> anyhow::Result<f64> {
        match self.flood {
            Flood::Load(_) => Ok(finish(flooding)?.per_s()),
            Flood::Handshakes => {
                let output = flooding.wait_with_output()?;
                let shaken: Shaken = serde_json::from_slice(&output.stdout)
                    .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
                let refused: u64 = shaken.errors.values().sum();
                Ok((shaken.handshakes + refused) as f64 / shaken.seconds)
            }
        }
    }
}

fn report(experiment: &mut NodeExperiment, name: &str, Seen { rounds, apart }: &Seen) {
    let findings = &mut experiment.runner.findings;
    let prefix = format!("proxy_{name}");
    report_latency(findings, rounds, |seen| seen.latency, (&prefix, DISTURBED));
    let p99_us: Vec<Option<f64>> = apart.iter().map(|seen| Some(seen.latency.p99_us)).collect();
    let of_apart = |figure: fn(&Latency) -> f64| {
        let all = apart.iter().map(|seen| figure(&seen.latency));
        Spread::of(&all.collect::<Vec<_>>())
    };
    let apart_us = of_apart(|seen| seen.p99_us);
    if let (Some(p50), Some(p99)) = (of_apart(|seen| seen.p50_us), &apart_us) {
        findings.say(format!(
            "{prefix} apart  p50 {:.0} [{:.0}–{:.0}] µs, p99 {:.0} [{:.0}–{:.0}] µs, with a proxy of its own",
            p50.median, p50.min, p50.max, p99.median, p99.min, p99.max
        ));
    }
    findings.value(format!("{prefix}_p99_us_apart"), apart_us);
    let of = |number: usize| -> Vec<Option<f64>> {
        let all = rounds
            .iter()
            .map(|round| Some(round[number].latency.p99_us));
        all.collect()
    };
    let p99_us = &p99_us[..rounds.len().min(p99_us.len())];
    findings.ratio(
        format!("{prefix}_p99_apart_vs_alone"),
        ratio(p99_us, &of(0)),
    );
    findings.ratio(format!("{prefix}_p99_on_vs_apart"), ratio(&of(2), p99_us));
    let conditions = Condition::ALL.map(Condition::name).into_iter();
    let rows = rounds
        .iter()
        .flat_map(|round| conditions.clone().zip(round));
    for (condition, seen) in rows.chain(apart.iter().map(|seen| ("apart", seen))) {
        findings.rows.push(json!({
            "flood": name,
            "condition": condition,
            "p50_us": seen.latency.p50_us,
            "p99_us": seen.latency.p99_us,
            "max_us": seen.latency.max_us,
            "flood_per_s": seen.flood,
        }));
    }
}
