//! `heddle-lab bench node-memory`: what all proxies of a node hold while its pods become more.
//!
//! Every pod but one is a server with a Service, a service account and one connection that the client keeps open
//! to it; each has answered before anything is read. One lab at a time.

use std::thread;
use std::time::Duration;

use super::figures::Figures;
use super::kind::Kind;
use super::scene::{self, Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};
use held::Held;

mod held;

/// Servers on the node.
const FULL: [u32; 5] = [1, 10, 50, 100, 200];
const QUICK: [u32; 4] = [1, 10, 100, 200];
/// The count of the ratios.
const RATIO_AT: u32 = 100;
const TITLE: &str = "memory of all proxies of a node (MiB)";

/// Measures and reports.
///
/// # Errors
/// Not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "node-memory", &Kind::CARRIED)?;
    let mut figures = Figures::default();
    let measured = measure(&experiment, &mut figures);
    let places = if options.run.quick {
        &QUICK[..]
    } else {
        &FULL[..]
    };
    let drawn = estimate(&mut figures);
    report(&mut experiment, &figures, drawn);
    let panel = figures.panel(TITLE, "pods on the node", "mib", &all_places(places));
    experiment.conclude(measured, &[panel])
}

/// Every place that any system was measured at.
fn all_places(places: &[u32]) -> Vec<u32> {
    let mut all: Vec<u32> = places
        .iter()
        .copied()
        .chain(counts(Kind::Envoy, false))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// How many pods are tried: a proxy for each of two hundred pods says nothing that one for each of a hundred does
/// not.
fn counts(kind: Kind, quick: bool) -> Vec<u32> {
    let all = if quick { &QUICK[..] } else { &FULL[..] };
    match (kind, quick) {
        (Kind::Envoy, true) => vec![1, 10],
        (Kind::Envoy, false) | (Kind::Pod, true) => vec![1, 10, 25],
        (Kind::Pod, false) => vec![1, 10, 25, 50, 100],
        (Kind::Direct | Kind::Node, _) => all.to_vec(),
    }
}

fn measure(experiment: &NodeExperiment, figures: &mut Figures) -> anyhow::Result<()> {
    for round in 0..experiment.rounds(1, 3) {
        for kind in &experiment.kinds {
            for at in counts(*kind, experiment.runner.quick) {
                eprintln!("round {}: {kind}, {at} pods", round + 1);
                match hold(experiment, *kind, at) {
                    Ok((idle, used)) => {
                        used.note(figures, (*kind, at, round));
                        figures.add("idle_mib", *kind, at, round, idle.mib());
                    }
                    // More proxies than this machine starts in time; what was measured with fewer stands.
                    Err(error) if at > 1 => figures.problem(*kind, round, &error),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// What is held in a lab with so many servers, each of which has answered: without a client's connection, and with
/// one to each.
fn hold(experiment: &NodeExperiment, kind: Kind, servers: u32) -> anyhow::Result<(Held, Held)> {
    let shape = SceneShape {
        near: servers,
        ..SceneShape::default()
    };
    let scene = Scene::up(kind, shape, &experiment.tools)?;
    let targets = (0..servers).map(|index| scene.target(&format!("near{index}")));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    let idle = Held::read(&scene)?;
    let connections = servers.to_string();
    let rate = (servers * 2).to_string();
    let arguments = ["--connections", &connections, "--rate", &rate];
    let arguments = [&arguments[..], &["--seconds", "3", "--body-bytes", "1024"]].concat();
    let load = scene.start_load(&targets, &arguments)?;
    // Long enough for a request on each connection.
    thread::park_timeout(Duration::from_secs(2));
    let used = Held::read(&scene);
    let outcome = scene::finish(load)?;
    anyhow::ensure!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    Ok((idle, used?))
}

/// Where a proxy for each pod was not measured at the count of the ratios, a line through what was. Returns the
/// systems of which that is true.
fn estimate(figures: &mut Figures) -> Vec<Kind> {
    let mut estimated = Vec::new();
    for kind in [Kind::Pod, Kind::Envoy] {
        if figures.median("mib", kind, RATIO_AT).is_some() {
            continue;
        }
        let counts = counts(kind, false).into_iter();
        let points: Vec<(u32, f64)> = counts
            .filter_map(|at| Some((at, figures.median("mib", kind, at)?)))
            .collect();
        if let (Some(first), Some(last)) = (points.first(), points.last())
            && first.0 < last.0
        {
            let each = (last.1 - first.1) / f64::from(last.0 - first.0);
            let there = last.1 + each * f64::from(RATIO_AT - last.0);
            figures.add("mib", kind, RATIO_AT, 0, there);
            estimated.push(kind);
        }
    }
    estimated
}

fn report(experiment: &mut NodeExperiment, figures: &Figures, estimated: Vec<Kind>) {
    let places = all_places(&FULL);
    let findings = &mut experiment.runner.findings;
    findings
        .say("\nMemory of all proxies of a node: idle, and with a connection to each server (MiB)");
    let columns = [
        ("all, idle", "idle_mib", 1),
        ("all, in use", "mib", 1),
        ("own", "own_mib", 1),
        ("program, once", "program_mib", 1),
        ("kernel", "kernel_mib", 1),
        ("of it BPF", "bpf_mib", 2),
        ("processes", "processes", 0),
    ];
    findings.say(figures.table("pods", &places, &columns));
    for kind in estimated {
        findings.problem(format!(
            "{kind} at {RATIO_AT} pods was not measured: a line through what was measured at fewer."
        ));
    }
    findings.tell(figures);
    findings.rows.extend(figures.rows("pods"));
    for (name, theirs) in [
        ("memory_node_vs_pod_100", Kind::Pod),
        ("memory_node_vs_envoy_100", Kind::Envoy),
    ] {
        let ratio = figures.ratio("mib", (Kind::Node, theirs), &[RATIO_AT]);
        findings.ratio(name, ratio);
    }
    findings.value(
        "memory_node_mib_100",
        figures.spread("mib", Kind::Node, RATIO_AT),
    );
    findings.value(
        "memory_pod_mib_100",
        figures.spread("mib", Kind::Pod, RATIO_AT),
    );
    findings.value(
        "memory_envoy_mib_100",
        figures.spread("mib", Kind::Envoy, RATIO_AT),
    );
    for (name, figure) in [
        ("memory_node_growth_mib_1_200", "mib"),
        ("memory_node_growth_idle_mib_1_200", "idle_mib"),
    ] {
        let at = |count| figures.median(figure, Kind::Node, count);
        let growth = at(200).zip(at(1)).map(|(all, one)| all - one);
        findings.value(name, growth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_a_line_through_what_was() {
        let mut figures = Figures::default();
        figures.add("mib", Kind::Envoy, 1, 0, 50.0);
        figures.add("mib", Kind::Envoy, 10, 0, 230.0);
        figures.add("mib", Kind::Pod, 100, 0, 700.0);
        assert_eq!(estimate(&mut figures), [Kind::Envoy]);
        assert_eq!(figures.median("mib", Kind::Envoy, 100), Some(2030.0));
        assert_eq!(figures.median("mib", Kind::Pod, 100), Some(700.0));
    }
}
