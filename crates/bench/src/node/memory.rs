//! `heddle-lab bench node-memory`: memory of all proxies of a node as its pods become more.
//!
//! Every pod but one is a server with a Service, a service account and one connection that the client keeps open
//! to it; each has answered before anything is read. One lab at a time.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::Context;

use super::figures::Figures;
use super::kind::Kind;
use super::scene::{self, Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};
use held::Held;

mod held;

/// Memory hardly varies.
const ROUNDS: usize = 2;
/// Servers on the node.
const FULL: [u32; 5] = [1, 10, 50, 100, 200];
const QUICK: [u32; 4] = [1, 10, 100, 200];
/// Fraction of the available memory that proxies may take.
const FREE_SHARE: f64 = 0.8;
/// The number of pods at which ratios are taken.
const RATIO_AT: u32 = 100;
const TITLE: &str = "memory of all proxies of a node (MiB)";

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "node-memory", &Kind::CARRIED)?;
    let mut figures = Figures::default();
    let measured = measure(&experiment, &mut figures);
    let places = figures.places("mib");
    let drawn = estimate(&mut figures, &places);
    let places = figures.places("mib");
    report(&mut experiment, &figures, &places, drawn);
    let panel = figures.panel(TITLE, "pods on the node", "mib", &places);
    experiment.conclude(measured, &[panel])
}

/// The numbers of pods that are measured. No more than 100 where each pod has a proxy: 200 would show nothing new.
fn counts(kind: Kind, quick: bool) -> Vec<u32> {
    let all = if quick { &QUICK[..] } else { &FULL[..] };
    match (kind, quick) {
        (Kind::Envoy, true) => vec![1, 10],
        (Kind::Pod, true) => vec![1, 10, 25],
        (Kind::Envoy, false) => vec![1, 10, 25, 100],
        (Kind::Pod, false) => vec![1, 10, 25, 50, 100],
        (Kind::Shared, _) => vec![1, RATIO_AT],
        (Kind::Direct | Kind::Node, _) => all.to_vec(),
    }
}

fn measure(experiment: &NodeExperiment, figures: &mut Figures) -> anyhow::Result<()> {
    for round in 0..experiment.rounds(1, ROUNDS) {
        for kind in &experiment.kinds {
            for wanted in counts(*kind, experiment.runner.quick) {
                let at = that_fit(figures, *kind, wanted, available_mib()?);
                eprintln!("round {}: {kind}, {at} pods", round + 1);
                let shape = SceneShape {
                    near: at,
                    ..SceneShape::default()
                };
                match hold(experiment, *kind, shape) {
                    Ok((idle, used)) => {
                        used.note(figures, (*kind, at, round));
                        figures.add("idle_mib", *kind, at, round, idle.mib());
                        if *kind != Kind::Envoy {
                            // A Heddle knows every Service in any case, and so does the shared Envoy of a node.
                            figures.add("configured_mib", *kind, at, round, idle.mib());
                        }
                    }
                    // This machine does not start so many proxies in time; the figures with fewer remain.
                    Err(error) if at > 1 => figures.problem(*kind, round, &error),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    configured(experiment, figures)
}

/// Measures once Envoys that know every Service, with as many pods as were measured otherwise.
fn configured(experiment: &NodeExperiment, figures: &mut Figures) -> anyhow::Result<()> {
    let Some(at) = most_real(figures, Kind::Envoy) else {
        return Ok(());
    };
    eprintln!("envoy, {at} pods, each knows every Service");
    let shape = SceneShape {
        near: at,
        sidecars_know_all: true,
        ..SceneShape::default()
    };
    match hold(experiment, Kind::Envoy, shape) {
        Ok((idle, _)) => figures.add("configured_mib", Kind::Envoy, at, 0, idle.mib()),
        Err(error) => figures.problem(Kind::Envoy, 0, &error),
    }
    Ok(())
}

/// The largest number of pods with which a system's proxies were started.
fn most_real(figures: &Figures, kind: Kind) -> Option<u32> {
    let places = figures.places("processes").into_iter();
    places
        .filter(|at| figures.median("processes", kind, *at).is_some())
        .max()
}

/// The number of pods, at most `wanted`, whose proxies fit into free memory, judged by what each took with fewer pods.
fn that_fit(figures: &Figures, kind: Kind, wanted: u32, free_mib: f64) -> u32 {
    let measured = most_real(figures, kind).filter(|at| *at < wanted);
    let Some((at, mib)) = measured.and_then(|at| Some((at, figures.median("mib", kind, at)?)))
    else {
        return wanted;
    };
    let each_mib = mib / f64::from(at);
    let fit = (free_mib * FREE_SHARE / each_mib) as u32;
    wanted.min(fit.max(at))
}

/// Memory that is available without swapping, as the kernel estimates it.
fn available_mib() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let kib = parse_available(&text).context("MemAvailable")?;
    Ok(kib as f64 / 1024.0)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let found = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    found.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory in a lab of this shape, in which each server has answered: without connections of the client, and with one to
/// each server.
fn hold(
    experiment: &NodeExperiment,
    kind: Kind,
    shape: SceneShape,
) -> anyhow::Result<(Held, Held)> {
    let servers = shape.near;
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

/// Estimates the memory of a proxy for each pod where it was not measured at the count of the ratios, by a line through
/// the measured counts. Returns the systems with estimates, and the largest count that was measured of each.
fn estimate(figures: &mut Figures, places: &[u32]) -> Vec<(Kind, u32)> {
    let mut estimated = Vec::new();
    for kind in [Kind::Pod, Kind::Envoy] {
        if figures.median("mib", kind, RATIO_AT).is_some() {
            continue;
        }
        let points: Vec<(u32, f64)> = places
            .iter()
            .filter_map(|at| Some((*at, figures.median("mib", kind, *at)?)))
            .collect();
        if let (Some(first), Some(last)) = (points.first(), points.last())
            && first.0 < last.0
        {
            let each = (last.1 - first.1) / f64::from(last.0 - first.0);
            let there = last.1 + each * f64::from(RATIO_AT - last.0);
            figures.add("mib", kind, RATIO_AT, 0, there);
            estimated.push((kind, last.0));
        }
    }
    estimated
}

fn report(
    experiment: &mut NodeExperiment,
    figures: &Figures,
    places: &[u32],
    estimated: Vec<(Kind, u32)>,
) {
    let findings = &mut experiment.runner.findings;
    findings
        .say("\nMemory of all proxies of a node: idle, and with a connection to each server (MiB)");
    let columns = [
        ("all, idle", "idle_mib", 1),
        ("idle, know all", "configured_mib", 1),
        ("all, in use", "mib", 1),
        ("of it private", "private_mib", 1),
        ("own", "own_mib", 1),
        ("program, once", "program_mib", 1),
        ("kernel", "kernel_mib", 1),
        ("of it BPF", "bpf_mib", 2),
        ("processes", "processes", 0),
    ];
    findings.say(figures.table("pods", places, &columns));
    for (kind, real) in estimated {
        findings.problem(format!(
            "{kind} at {RATIO_AT} pods was not measured: a line through what was measured up to {real} real ones."
        ));
    }
    let real = most_real(figures, Kind::Envoy);
    if let Some(real) = real {
        findings.say(format!("  Up to {real} Envoys were real."));
    }
    findings.value("memory_envoy_real", real.map(f64::from));
    findings.tell(figures);
    findings.rows.extend(figures.rows("pods"));
    for (name, figure, theirs) in [
        ("memory_node_vs_pod_100", "mib", Kind::Pod),
        ("memory_node_vs_envoy_100", "mib", Kind::Envoy),
        ("memory_node_vs_shared_envoy_100", "mib", Kind::Shared),
        ("memory_idle_node_vs_pod_100", "idle_mib", Kind::Pod),
        ("memory_idle_node_vs_envoy_100", "idle_mib", Kind::Envoy),
        (
            "memory_configured_node_vs_envoy_100",
            "configured_mib",
            Kind::Envoy,
        ),
        ("memory_private_node_vs_pod_100", "private_mib", Kind::Pod),
        (
            "memory_private_node_vs_envoy_100",
            "private_mib",
            Kind::Envoy,
        ),
    ] {
        let ratio = figures.ratio(figure, (Kind::Node, theirs), &[RATIO_AT]);
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
    findings.value(
        "memory_shared_envoy_mib_100",
        figures.spread("mib", Kind::Shared, RATIO_AT),
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
        let places = figures.places("mib");
        assert_eq!(places, [1, 10, 100]);
        assert_eq!(estimate(&mut figures, &places), [(Kind::Envoy, 10)]);
        assert_eq!(figures.median("mib", Kind::Envoy, 100), Some(2030.0));
        assert_eq!(figures.median("mib", Kind::Pod, 100), Some(700.0));
    }

    #[test]
    fn as_many_envoys_are_started_as_have_room() {
        let mut figures = Figures::default();
        assert_eq!(that_fit(&figures, Kind::Envoy, 25, 10.0), 25);
        figures.add("mib", Kind::Envoy, 25, 0, 500.0);
        figures.add("processes", Kind::Envoy, 25, 0, 25.0);
        assert_eq!(that_fit(&figures, Kind::Envoy, 100, 4_000.0), 100);
        assert_eq!(that_fit(&figures, Kind::Envoy, 100, 1_500.0), 60);
        assert_eq!(that_fit(&figures, Kind::Envoy, 100, 100.0), 25);
        assert_eq!(most_real(&figures, Kind::Envoy), Some(25));
        let text = "MemTotal: 9 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(parse_available(text), Some(2048));
    }
}
