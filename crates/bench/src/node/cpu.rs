//! `heddle-lab bench node-cpu`: CPU time of all proxies as requests become more.

use super::cost;
use super::figures::Figures;
use super::kind::Kind;
use super::rounds::{self, BESIDE};
use super::scene::{PROXY, Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};

/// Requests per second.
const RATES: [u32; 3] = [1000, 2000, 4000];
const CONNECTIONS: &str = "32";
/// The titles of the charts: the proxies alone, and all processes that a request involves.
const TITLES: [&str; 2] = [
    "CPU of all proxies (µs a request)",
    "CPU of client, proxies and server (µs a request)",
];

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "node-cpu", &Kind::ALL)?;
    let mut figures = Figures::default();
    let measured = measure(&mut experiment, &mut figures);
    report(&mut experiment, &figures);
    let panel = |(title, name)| figures.panel(title, "requests/s", name, &RATES);
    let panels = [(TITLES[0], "proxy_us"), (TITLES[1], "path_us")].map(panel);
    experiment.conclude(measured, &panels)
}

fn measure(experiment: &mut NodeExperiment, figures: &mut Figures) -> anyhow::Result<()> {
    let shape = SceneShape {
        near: 1,
        ..SceneShape::default()
    };
    let scenes = rounds::scenes(experiment, shape)?;
    let seconds = if experiment.runner.quick { "2" } else { "4" };
    let count = experiment.rounds(3, 5);
    rounds::run(
        &scenes,
        count,
        &RATES,
        figures,
        |scene, rate, round, figures| one(scene, (rate, round), seconds, figures),
    )?;
    let node = scenes.iter().find(|scene| scene.kind == Kind::Node);
    if let Some(scene) = node {
        let seconds = if experiment.runner.quick { 2 } else { 5 };
        cost::run(scene, RATES[1], seconds, &mut experiment.runner.findings)?;
    }
    Ok(())
}

fn one(
    scene: &Scene,
    (rate, round): (u32, usize),
    seconds: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let offered = rate.to_string();
    let arguments = ["--connections", CONNECTIONS, "--rate", &offered];
    let arguments = [
        &arguments[..],
        &["--seconds", seconds, "--body-bytes", "1024"],
    ]
    .concat();
    let outcome = scene.measure("near0", &arguments)?;
    outcome.check(Some(f64::from(rate)))?;
    let proxy = rounds::cpu_us(&outcome, PROXY);
    let ends = rounds::cpu_us(&outcome, "client") + rounds::cpu_us(&outcome, "upstream");
    let mut add = |name, value| figures.add(name, scene.kind, rate, round, value);
    if scene.kind != Kind::Direct {
        add("proxy_us", proxy);
    }
    add("path_us", proxy + ends);
    if let Some(machine) = rounds::machine_us(&outcome) {
        add("machine_us", machine);
    }
    add("p50_us", outcome.p50_us);
    add("p99_us", outcome.p99_us);
    Ok(())
}

fn report(experiment: &mut NodeExperiment, figures: &Figures) {
    let findings = &mut experiment.runner.findings;
    findings.say("\nCPU for a request of 1 KiB between two pods of a node (µs)");
    let columns = [
        ("all proxies", "proxy_us", 1),
        ("client, proxies, server", "path_us", 1),
        ("the whole machine", "machine_us", 1),
        ("p50 µs", "p50_us", 0),
        ("p99 µs", "p99_us", 0),
    ];
    findings.say(figures.table("requests/s", &RATES, &columns));
    findings.tell(figures);
    findings.rows.extend(figures.rows("rate_per_s"));
    let busiest = &RATES[RATES.len() - 1..];
    for (names, figure, rates) in [
        (
            [
                "cpu_node_vs_pod",
                "cpu_node_vs_envoy",
                "cpu_node_vs_shared_envoy",
            ],
            "proxy_us",
            &RATES[..],
        ),
        (
            [
                "cpu_path_node_vs_pod",
                "cpu_path_node_vs_envoy",
                "cpu_path_node_vs_shared_envoy",
            ],
            "path_us",
            &RATES[..],
        ),
        (
            [
                "cpu_machine_node_vs_pod",
                "cpu_machine_node_vs_envoy",
                "cpu_machine_node_vs_shared_envoy",
            ],
            "machine_us",
            &RATES[..],
        ),
        (
            [
                "p50_busy_node_vs_pod",
                "p50_busy_node_vs_envoy",
                "p50_busy_node_vs_shared_envoy",
            ],
            "p50_us",
            busiest,
        ),
        (
            [
                "p99_busy_node_vs_pod",
                "p99_busy_node_vs_envoy",
                "p99_busy_node_vs_shared_envoy",
            ],
            "p99_us",
            busiest,
        ),
    ] {
        for (index, theirs) in BESIDE {
            let ratio = figures.ratio(figure, (Kind::Node, theirs), rates);
            findings.ratio(names[index], ratio);
        }
    }
    for (name, kind) in [
        ("cpu_node_us", Kind::Node),
        ("cpu_pod_us", Kind::Pod),
        ("cpu_envoy_us", Kind::Envoy),
        ("cpu_shared_envoy_us", Kind::Shared),
    ] {
        findings.value(name, figures.spread("proxy_us", kind, RATES[1]));
    }
}
