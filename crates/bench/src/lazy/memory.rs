//! The memory of Envoys and of nodes as the mesh grows, what they are sent, and the time that it takes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Sizes;
use super::envoy::{Envoy, Sent};
use super::load::{self, SERVICES};
use super::town::{EAGER, EMPTY, FRONT, FULL, GATEWAYS, LAZY, ON_DEMAND, Town, pause, wait_until};
use crate::account;
use crate::findings::{Findings, shown};
use crate::statistics::mean;

/// How long memory may settle before it is read.
const SETTLES_IN: Duration = Duration::from_secs(6);
/// The time between two changes of pods.
const CHANGES_EVERY: Duration = Duration::from_millis(500);
/// Requests per second, and connections, of each front under load.
const RATE: &str = "1000";
const CONNECTIONS: &str = "60";

/// What is read at one time: memory in MiB, processor time in seconds.
#[derive(Debug, Clone, Default)]
struct Held {
    empty: f64,
    lazy: f64,
    full: f64,
    gateway: f64,
    on_demand: f64,
    eager: f64,
    control: f64,
}

/// The processes that are looked at.
struct Watched {
    empty: Envoy,
    lazy: Envoy,
    full: Envoy,
    gateways: Vec<Envoy>,
    on_demand: u32,
    eager: u32,
    control: u32,
}

pub(super) fn run(town: &Town, sizes: &Sizes, findings: &mut Findings) -> anyhow::Result<()> {
    let watched = Watched::of(town)?;
    findings.say(
        "\nMemory (MiB): an Envoy that knows nothing, a lazy one that uses three Services, one that knows everything; a node's \
         proxy on demand, and one that knows everything",
    );
    let folder = town.lab.folder().join("manifests");
    // What the fronts have called was learned by then.
    pause(SETTLES_IN);
    let mut written = 0;
    let (at_first, base) = (watched.sent()?, watched.full.sent()?.clusters);
    let cpu_at_first = watched.cpu()?;
    for (namespaces, name) in sizes.namespaces {
        let began = Instant::now();
        while written < *namespaces {
            load::write(&folder, written, 0)?;
            written += 1;
            let all = base + (written * SERVICES) as f64;
            let has_all = || watched.full.sent().is_ok_and(|sent| sent.clusters >= all);
            wait_until("an Envoy that knows everything has a namespace", has_all)?;
        }
        let took_s = began.elapsed().as_secs_f64();
        let grown = watched.sent()?;
        pause(SETTLES_IN);
        let rest = watched.memory()?;
        let loaded = under_load(town, &watched, sizes.seconds)?;
        let changing = changes(town, &watched, sizes.seconds)?;
        let sent = |now: (Sent, Sent)| (now.0.cds - at_first.0.cds, now.1.cds - at_first.1.cds);
        let (lazy_cds, full_cds) = sent(grown);
        report(findings, name, &rest, &loaded);
        findings.ratio(
            format!("cds_updates_lazy_vs_full_{name}"),
            Some(lazy_cds / full_cds),
        );
        let clusters = (grown.0.clusters, grown.1.clusters);
        findings.value(format!("clusters_lazy_{name}"), Some(clusters.0));
        findings.value(format!("clusters_full_{name}"), Some(clusters.1));
        findings.say(format!(
            "  {written} namespaces in {took_s:.0} s: clusters {} and {}, messages with clusters {lazy_cds} and {full_cds}; with \
             changes, cores of the control plane {}, of the lazy Envoy {}, of the full one {}, of a gateway {}",
            clusters.0,
            clusters.1,
            shown(Some(changing.control), 3),
            shown(Some(changing.lazy), 4),
            shown(Some(changing.full), 4),
            shown(Some(changing.gateway), 4),
        ));
        for (of, cores) in [
            ("control", changing.control),
            ("envoy_lazy", changing.lazy),
            ("envoy_full", changing.full),
            ("gateway", changing.gateway),
            ("node_on_demand", changing.on_demand),
            ("node_eager", changing.eager),
        ] {
            findings.value(format!("{of}_cores_changing_{name}"), Some(cores));
        }
        findings.rows.push(json!({
            "scenario": "memory", "pods": written * SERVICES * load::PODS, "grown_in_s": took_s,
            "rest": format!("{rest:?}"), "loaded": format!("{loaded:?}"), "cores": format!("{changing:?}"),
            "cds_messages": [lazy_cds, full_cds],
        }));
    }
    let cpu = watched.cpu()?.since(&cpu_at_first);
    findings
        .rows
        .push(json!({"scenario": "memory", "cpu_s_in_all": format!("{cpu:?}")}));
    Ok(())
}

fn report(findings: &mut Findings, name: &str, rest: &Held, loaded: &Held) {
    let above = |held: &Held| (held.lazy - held.empty) / (held.full - held.empty);
    findings.ratio(
        format!("envoy_memory_lazy_vs_full_{name}"),
        Some(above(rest)),
    );
    findings.ratio(
        format!("envoy_memory_lazy_vs_full_loaded_{name}"),
        Some(above(loaded)),
    );
    findings.ratio(
        format!("envoy_process_lazy_vs_full_{name}"),
        Some(rest.lazy / rest.full),
    );
    findings.ratio(
        format!("heddle_vs_envoy_full_{name}"),
        Some(rest.eager / rest.full),
    );
    findings.ratio(
        format!("heddle_on_demand_vs_envoy_lazy_{name}"),
        Some(rest.on_demand / rest.lazy),
    );
    for (of, mib) in [
        ("envoy_empty", rest.empty),
        ("envoy_empty_loaded", loaded.empty),
        ("envoy_lazy", rest.lazy),
        ("envoy_full", rest.full),
        ("envoy_lazy_loaded", loaded.lazy),
        ("envoy_full_loaded", loaded.full),
        ("gateway", rest.gateway),
        ("node_on_demand", rest.on_demand),
        ("node_eager", rest.eager),
        ("control", rest.control),
    ] {
        findings.value(format!("{of}_mib_{name}"), Some(mib));
    }
    findings.say(format!(
        "  {name} pods: empty {} (under load {}), lazy {} (under load {}), full {} (under load {}), gateway {}; node on demand {}, eager {}; control \
         plane {}",
        shown(Some(rest.empty), 1),
        shown(Some(loaded.empty), 1),
        shown(Some(rest.lazy), 1),
        shown(Some(loaded.lazy), 1),
        shown(Some(rest.full), 1),
        shown(Some(loaded.full), 1),
        shown(Some(rest.gateway), 1),
        shown(Some(rest.on_demand), 1),
        shown(Some(rest.eager), 1),
        shown(Some(rest.control), 1),
    ));
}

/// Memory while all fronts call their servers.
fn under_load(town: &Town, watched: &Watched, seconds: u32) -> anyhow::Result<Held> {
    let text = seconds.to_string();
    let pace = [
        "--connections",
        CONNECTIONS,
        "--rate",
        RATE,
        "--seconds",
        &text,
    ];
    let fronts = [LAZY, FULL, ON_DEMAND, EAGER].into_iter();
    let fronts = fronts.map(|namespace| town.load(namespace, &pace));
    let mut loads = Vec::new();
    for command in fronts.chain([town.load_of_empty(&pace)]) {
        loads.push(command?.stdout(Stdio::null()).spawn()?);
    }
    pause(Duration::from_secs(seconds.into()));
    let held = watched.memory();
    for mut load in loads {
        let status = load.wait()?;
        anyhow::ensure!(status.success(), "the load generator: {status}");
    }
    held
}

/// The processors that all take while pods of a namespace change.
fn changes(town: &Town, watched: &Watched, seconds: u32) -> anyhow::Result<Held> {
    let folder = town.lab.folder().join("manifests");
    let (began, before) = (Instant::now(), watched.cpu()?);
    let end = Duration::from_secs(seconds.into());
    for version in 1.. {
        if began.elapsed() >= end {
            break;
        }
        let since = Instant::now();
        load::write(&folder, 0, version)?;
        pause(CHANGES_EVERY.saturating_sub(since.elapsed()));
    }
    let took = began.elapsed().as_secs_f64();
    Ok(watched.cpu()?.since(&before).over(took))
}

impl Watched {
    fn of(town: &Town) -> anyhow::Result<Watched> {
        let gateways = GATEWAYS.map(|pod| town.envoy(pod)).into_iter();
        Ok(Watched {
            empty: town.envoy(EMPTY)?,
            lazy: town.envoy(&format!("{LAZY}/{FRONT}"))?,
            full: town.envoy(&format!("{FULL}/{FRONT}"))?,
            gateways: gateways.collect::<anyhow::Result<_>>()?,
            on_demand: town.process("heddle node one")?,
            eager: town.process("heddle node two")?,
            control: town.process("heddle control")?,
        })
    }

    /// What the lazy Envoy and the full one have been sent.
    fn sent(&self) -> anyhow::Result<(Sent, Sent)> {
        Ok((self.lazy.sent()?, self.full.sent()?))
    }

    fn memory(&self) -> anyhow::Result<Held> {
        let process = |pid| Ok(account::memory(pid)?.private_kib as f64 / 1024.0);
        self.each(Envoy::mib, &process)
    }

    fn cpu(&self) -> anyhow::Result<Held> {
        // A node's holder hardly runs; its proxy is its child.
        let process = |pid: u32| {
            let all = account::tree(pid).into_iter();
            let used = all.map(account::cpu_ns_alone);
            let used = used.collect::<anyhow::Result<Vec<_>>>()?;
            Ok(used.iter().sum::<u64>() as f64 / 1e9)
        };
        self.each(Envoy::cpu_s, &process)
    }

    fn each(
        &self,
        envoy: fn(&Envoy) -> anyhow::Result<f64>,
        process: &dyn Fn(u32) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Held> {
        let gateways = self.gateways.iter().map(envoy);
        let gateways = gateways.collect::<anyhow::Result<Vec<f64>>>()?;
        Ok(Held {
            empty: envoy(&self.empty)?,
            lazy: envoy(&self.lazy)?,
            full: envoy(&self.full)?,
            gateway: mean(gateways).unwrap_or_default(),
            on_demand: process(self.on_demand)?,
            eager: process(self.eager)?,
            control: process(self.control)?,
        })
    }
}

impl Held {
    fn since(&self, before: &Held) -> Held {
        self.with(before, |now, before| now - before)
    }

    fn over(&self, seconds: f64) -> Held {
        self.with(self, |one, _| one / seconds)
    }

    fn with(&self, other: &Held, work: impl Fn(f64, f64) -> f64) -> Held {
        Held {
            empty: work(self.empty, other.empty),
            lazy: work(self.lazy, other.lazy),
            full: work(self.full, other.full),
            gateway: work(self.gateway, other.gateway),
            on_demand: work(self.on_demand, other.on_demand),
            eager: work(self.eager, other.eager),
            control: work(self.control, other.control),
        }
    }
}
