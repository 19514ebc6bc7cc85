//! `heddle-lab bench node-qps`: throughput of an application within the CPU quota of its pod.
//!
//! The server's pod is limited to a part of a core. The proxy of a pod uses that quota, too; the proxy of the node does
//! not.

use super::figures::Figures;
use super::kind::Kind;
use super::rounds::{self, BESIDE};
use super::scene::{PROXY, Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};

/// The pod that has the quota.
const SERVER: &str = "near0";
/// Quotas of the pod, in thousandths of a core: small enough that the machine has time left for all other processes.
const SHARES: [u32; 2] = [150, 300];
/// The quota at which ratios are taken.
const RATIO_AT: [u32; 1] = [300];
/// CPU time that an answer takes the application, in microseconds: about as much as in a small service.
const WORK_US: u64 = 100;
const CONNECTIONS: &str = "32";
/// A pod that uses less than this fraction of its quota is limited by something else, and the run does not count.
const USED_AT_LEAST: f64 = 0.9;

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "node-qps", &Kind::ALL)?;
    let mut figures = Figures::default();
    let measured = measure(&experiment, &mut figures);
    report(&mut experiment, &figures);
    let title = "requests per second of the application";
    let panel = figures.panel(
        title,
        "thousandths of a processor",
        "requests_per_s",
        &SHARES,
    );
    experiment.conclude(measured, &[panel])
}

fn measure(experiment: &NodeExperiment, figures: &mut Figures) -> anyhow::Result<()> {
    let shape = SceneShape {
        near: 1,
        work_us: WORK_US,
        ..SceneShape::default()
    };
    let scenes = rounds::scenes(experiment, shape)?;
    for scene in &scenes {
        // Envoys start in their pods' groups. The group that tells a Heddle's connections from its pod's is in another
        // hierarchy, so its CPU group can be changed.
        if scene.kind == Kind::Pod {
            let own = scene.proxies().into_iter().filter(|(pod, _)| pod == SERVER);
            let tree = own.flat_map(|(_, pid)| crate::account::tree(pid));
            let tree: Vec<u32> = tree.collect();
            anyhow::ensure!(!tree.is_empty(), "{SERVER} has no proxy of its own");
            scene.pod_group(SERVER, "one").take_in(&tree)?;
        }
    }
    let seconds = if experiment.runner.quick { "2" } else { "4" };
    let count = experiment.rounds(3, 5);
    rounds::run(
        &scenes,
        count,
        &SHARES,
        figures,
        |scene, share, round, figures| one(scene, (share, round), seconds, figures),
    )
}

fn one(
    scene: &Scene,
    (share, round): (u32, usize),
    seconds: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let pod = scene.pod_group(SERVER, "one");
    pod.hold(f64::from(share) / 1000.0)?;
    let arguments = ["--connections", CONNECTIONS, "--body-bytes", "1024"];
    let outcome = scene.measure(SERVER, &[&arguments[..], &["--seconds", seconds]].concat())?;
    outcome.check(None)?;
    let mut add = |name, value| figures.add(name, scene.kind, share, round, value);
    add("requests_per_s", outcome.requests as f64 / outcome.seconds);
    if scene.kind != Kind::Direct {
        add("proxy_us", rounds::cpu_us(&outcome, PROXY));
    }
    let server_us = rounds::cpu_us(&outcome, "upstream");
    add("upstream_us", server_us);
    let serving_us = match scene.kind {
        Kind::Direct => 0.0,
        // The proxy serves no other pod here: all of its CPU time is charged, that for the client's side included.
        Kind::Node | Kind::Shared => rounds::cpu_us(&outcome, PROXY),
        Kind::Pod | Kind::Envoy => rounds::cpu_us(&outcome, &format!("{PROXY}{SERVER}")),
    };
    add("serving_us", serving_us);
    add("per_cpu_s", per_cpu_s(server_us + serving_us));
    // The node's proxy does not use the pod's quota.
    let on_share_us = match scene.kind {
        Kind::Direct | Kind::Node | Kind::Shared => server_us,
        Kind::Pod | Kind::Envoy => server_us + serving_us,
    };
    let per_s = outcome.requests as f64 / outcome.seconds;
    let used = used_share(per_s, on_share_us, share);
    add("used_percent", used * 100.0);
    anyhow::ensure!(
        used >= USED_AT_LEAST,
        "the pod used {:.0} % of its share: something else was the limit",
        used * 100.0
    );
    // If the machine had no time left, that would be the limit, and not the pod's quota.
    let cores = outcome.cores.len().max(1) as f64;
    add(
        "busy_percent",
        outcome.cores.iter().sum::<f64>() / cores * 100.0,
    );
    add("p50_us", outcome.p50_us);
    Ok(())
}

/// The fraction of its quota that a pod uses at `per_s` requests per second with `each_us` of CPU time each.
fn used_share(per_s: f64, each_us: f64, share: u32) -> f64 {
    per_s * each_us / 1e6 / (f64::from(share) / 1e3)
}

/// Requests for each second of CPU time, where a request takes `each_us`.
fn per_cpu_s(each_us: f64) -> f64 {
    1e6 / each_us
}

fn report(experiment: &mut NodeExperiment, figures: &Figures) {
    let findings = &mut experiment.runner.findings;
    findings.say(format!(
        "\nHighest rate of an application whose answers cost {WORK_US} µs, its pod held to a share of a processor"
    ));
    let columns = [
        ("requests/s", "requests_per_s", 0),
        ("all proxies, µs each", "proxy_us", 1),
        ("server, µs each", "upstream_us", 1),
        ("its proxy, µs each", "serving_us", 1),
        ("per CPU second of both", "per_cpu_s", 0),
        ("of its share used %", "used_percent", 0),
        ("machine busy %", "busy_percent", 0),
        ("p50 µs", "p50_us", 0),
    ];
    findings.say(figures.table("share ‰", &SHARES, &columns));
    findings.tell(figures);
    findings.rows.extend(figures.rows("share_thousandths"));
    let names = [
        "qps_node_vs_pod",
        "qps_node_vs_envoy",
        "qps_node_vs_shared_envoy",
    ];
    let direct = [(names.len(), Kind::Direct)];
    for (index, theirs) in BESIDE.into_iter().chain(direct) {
        let name = names.get(index).copied().unwrap_or("qps_node_vs_direct");
        let ratio = figures.ratio("requests_per_s", (Kind::Node, theirs), &RATIO_AT);
        findings.ratio(name, ratio);
        let charged = figures.ratio("per_cpu_s", (Kind::Node, theirs), &RATIO_AT);
        findings.ratio(name.replacen("qps_", "qps_per_cpu_", 1), charged);
    }
    for (name, kind) in [
        ("qps_direct", Kind::Direct),
        ("qps_node", Kind::Node),
        ("qps_pod", Kind::Pod),
        ("qps_envoy", Kind::Envoy),
        ("qps_shared_envoy", Kind::Shared),
    ] {
        findings.value(name, figures.spread("requests_per_s", kind, RATIO_AT[0]));
    }
    for (name, kind) in [
        ("qps_per_cpu_direct", Kind::Direct),
        ("qps_per_cpu_node", Kind::Node),
        ("qps_per_cpu_pod", Kind::Pod),
        ("qps_per_cpu_envoy", Kind::Envoy),
        ("qps_per_cpu_shared_envoy", Kind::Shared),
    ] {
        findings.value(name, figures.spread("per_cpu_s", kind, RATIO_AT[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_processor_time_is_divided_by_what_a_request_takes() {
        assert_eq!(per_cpu_s(125.0 + 75.0), 5_000.0);
    }

    #[test]
    fn a_share_is_used_up_by_what_runs_on_it() {
        assert_eq!(used_share(1_500.0, 200.0, 300), 1.0);
        assert_eq!(used_share(750.0, 200.0, 300), 0.5);
    }
}
