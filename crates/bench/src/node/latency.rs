//! `heddle-lab bench node-latency`: latency of a request as connections become more, on one node and between two.

use super::figures::Figures;
use super::kind::Kind;
use super::rounds::{self, BESIDE};
use super::scene::{Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};

/// Numbers of open connections, over all of which the requests are spread.
const FULL: [u32; 5] = [1, 4, 16, 64, 256];
const QUICK: [u32; 4] = [1, 16, 64, 256];
/// Requests per second: well below what the slowest system carries, so that no queueing is measured.
const RATE: u32 = 1000;
/// The limit for each connection: a request that is due while its connection is in use would wait for it.
const EACH: u32 = 100;

/// The node of the server, and the names of the figures with it.
#[derive(Clone, Copy)]
struct ServerLocation {
    server: &'static str,
    title: &'static str,
    p50: &'static str,
    p99: &'static str,
    /// The names of the ratios of p50 and p99 to the other systems; the shared Envoy cannot reach another node.
    ratios: [&'static [&'static str]; 2],
}

const NEAR: ServerLocation = ServerLocation {
    server: "near0",
    title: "on one node",
    p50: "near_p50_us",
    p99: "near_p99_us",
    ratios: [
        &[
            "latency_node_vs_pod",
            "latency_node_vs_envoy",
            "latency_node_vs_shared_envoy",
        ],
        &[
            "latency_p99_node_vs_pod",
            "latency_p99_node_vs_envoy",
            "latency_p99_node_vs_shared_envoy",
        ],
    ],
};
const FAR: ServerLocation = ServerLocation {
    server: "far0",
    title: "between two nodes",
    p50: "far_p50_us",
    p99: "far_p99_us",
    ratios: [
        &["latency_far_node_vs_pod", "latency_far_node_vs_envoy"],
        &[
            "latency_far_p99_node_vs_pod",
            "latency_far_p99_node_vs_envoy",
        ],
    ],
};

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "node-latency", &Kind::ALL)?;
    let mut figures = Figures::default();
    let places = if options.run.quick {
        &QUICK[..]
    } else {
        &FULL[..]
    };
    let measured = measure(&experiment, places, &mut figures);
    report(&mut experiment, places, &figures);
    let mut panels = Vec::new();
    for place in [NEAR, FAR] {
        for (name, what) in [(place.p50, "p50"), (place.p99, "p99")] {
            let title = format!("{what} {} (µs)", place.title);
            panels.push(figures.panel(&title, "connections", name, places));
        }
    }
    experiment.conclude(measured, &panels)
}

fn measure(
    experiment: &NodeExperiment,
    places: &[u32],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let shape = SceneShape {
        near: 1,
        far: 1,
        ..SceneShape::default()
    };
    let scenes = rounds::scenes(experiment, shape)?;
    let seconds = if experiment.runner.quick { "1.5" } else { "4" };
    let cells: Vec<(ServerLocation, u32)> = [NEAR, FAR]
        .into_iter()
        .flat_map(|place| places.iter().map(move |connections| (place, *connections)))
        .collect();
    let count = experiment.rounds(3, 5);
    rounds::run(
        &scenes,
        count,
        &cells,
        figures,
        |scene, cell, round, figures| one(scene, cell, round, seconds, figures),
    )
}

fn one(
    scene: &Scene,
    (place, connections): (ServerLocation, u32),
    round: usize,
    seconds: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    if scene.kind == Kind::Shared && place.server == FAR.server {
        // It forwards nothing to another node.
        return Ok(());
    }
    let (count, rate) = (connections.to_string(), rate(connections));
    let offered = rate.to_string();
    let arguments = ["--connections", &count, "--rate", &offered];
    let arguments = [
        &arguments[..],
        &["--seconds", seconds, "--body-bytes", "1024"],
    ]
    .concat();
    let outcome = scene.measure(place.server, &arguments)?;
    outcome.check(Some(f64::from(rate)))?;
    figures.add(place.p50, scene.kind, connections, round, outcome.p50_us);
    figures.add(place.p99, scene.kind, connections, round, outcome.p99_us);
    Ok(())
}

/// Requests per second over this number of connections.
fn rate(connections: u32) -> u32 {
    RATE.min(EACH * connections)
}

fn report(experiment: &mut NodeExperiment, places: &[u32], figures: &Figures) {
    let findings = &mut experiment.runner.findings;
    for place in [NEAR, FAR] {
        findings.say(format!(
            "\nLatency of 1 KiB {}, {RATE} requests/s and no more than {EACH} on a connection (µs)",
            place.title
        ));
        let columns = [("p50", place.p50, 0), ("p99", place.p99, 0)];
        findings.say(figures.table("connections", places, &columns));
        for (names, figure) in place.ratios.into_iter().zip([place.p50, place.p99]) {
            for (name, (_, theirs)) in names.iter().zip(BESIDE) {
                let ratio = figures.ratio(figure, (Kind::Node, theirs), places);
                findings.ratio(*name, ratio);
            }
        }
    }
    findings.tell(figures);
    findings.rows.extend(figures.rows("connections"));
}
