//! `qos-network`: two flows that share a node's link, by the schedule of System C.
//!
//! ```text
//!   s   0         5        10        15        20     22
//!       ├─────────┼─────────┼─────────┼─────────┼──────┤
//!   online ────────────────────        ─────────────────
//!   offline        ──────────────────────────────
//! ```
//!
//! Each flow is an iperf3 in a pod of its own that sends as fast as it can. The bottleneck is behind the node, as in a
//! real network: the node's own interface is faster. What arrives behind the bottleneck is counted every 10 ms.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::settle;
use crate::child::{Child, Confinement, words};
use crate::install;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::plot;
use crate::statistics::Spread;
use figures::{Figures, Trace};
use mesh::Mesh;
use stage::{Flow, Stage};

mod figures;
mod mesh;
mod picture;
mod stage;

/// What the bottleneck carries, in bytes per second: 400 Mbit/s, which two processors forward with ease.
const LINK: u64 = 50_000_000;
/// What the agent is told of it: a little less, as its documentation says.
const DECLARED: u64 = LINK / 100 * 99;
/// The schedule, in seconds.
const OFFLINE_STARTS: u64 = 5;
const ONLINE_STOPS: u64 = 10;
const ONLINE_RESTARTS: u64 = 15;
const OFFLINE_STOPS: u64 = 20;
const END: u64 = 22;

/// Which way the flows go, as in the names of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// From pods with interfaces of their own.
    Direct,
    /// From the node's own network through Heddle, to the same interface.
    Proxy,
}

impl Route {
    const ALL: [Route; 2] = [Route::Direct, Route::Proxy];

    fn name(self) -> &'static str {
        match self {
            Route::Direct => "direct",
            Route::Proxy => "proxy",
        }
    }
}

/// What holds the offline flow back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Nothing.
    Off,
    /// Two rates and a waterline, with System C's values: the speed of the link is not known.
    Waterline,
    /// What online pods leave of the link.
    On,
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Off, Condition::Waterline, Condition::On];

    fn name(self) -> &'static str {
        match self {
            Condition::Off => "off",
            Condition::Waterline => "waterline",
            Condition::On => "on",
        }
    }

    /// Settings of the agent; none without it.
    fn settings(self) -> Option<String> {
        let link = match self {
            Condition::Off => return None,
            Condition::Waterline => "null".to_owned(),
            Condition::On => DECLARED.to_string(),
        };
        Some(format!(
            "qos:\n  preemption: false\n  memory: false\n  network: {{enabled: true, interfaces: [eth0], link_bytes_per_s: {link}}}\n"
        ))
    }
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or the kernel lacks what the network is made of.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    for (program, package) in [
        ("iperf3", "iperf3"),
        ("ip", "iproute2"),
        ("nsenter", "util-linux"),
    ] {
        install::tool(program, package)?;
    }
    let mut experiment = NodeExperiment::new(options, "qos-network", &[Kind::Direct])?;
    let mut seen = Vec::new();
    let measured = rounds(&experiment, &mut seen);
    for route in Route::ALL {
        report(&mut experiment, route, &seen);
    }
    let picture = picture::draw(&seen);
    experiment.runner.end(measured)?;
    match &options.svg {
        Some(file) => plot::write(file, &picture?, options.run.quick),
        None => Ok(()),
    }
}

/// One run of the schedule.
struct Seen {
    route: Route,
    condition: Condition,
    trace: Trace,
    /// Processors that the agent used, on average.
    agent: Option<f64>,
}

fn rounds(experiment: &NodeExperiment, seen: &mut Vec<Seen>) -> anyhow::Result<()> {
    let count = experiment.rounds(1, 5);
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        for route in Route::ALL {
            for turn in 0..Condition::ALL.len() {
                let condition = Condition::ALL[(turn + round) % Condition::ALL.len()];
                seen.push(schedule(experiment, route, condition)?);
            }
        }
    }
    Ok(())
}

fn schedule(
    experiment: &NodeExperiment,
    route: Route,
    condition: Condition,
) -> anyhow::Result<Seen> {
    let group = LabGroup::of_lab("qos-network", "offline");
    let group = Group::new(group)?;
    let stage = Stage::new(LINK, &group.0.folders()?)?;
    let mesh = match route {
        Route::Direct => None,
        Route::Proxy => Some(Mesh::start(&stage, &experiment.tools.heddle)?),
    };
    let start = |flow: Flow, seconds| {
        let via = mesh.as_ref().map(|mesh| mesh.listener(flow)).transpose()?;
        stage.flow(flow, via.as_deref(), seconds)
    };
    let agent = match condition.settings() {
        Some(settings) => Some(Agent::start(experiment, &stage, &group.0, &settings)?),
        None => None,
    };
    let used_before = agent.as_ref().and_then(Agent::used_s);
    let counters = stage.counters();
    let began = Instant::now();
    let watch = thread::spawn(move || Trace::record(&counters, began, Duration::from_secs(END)));
    let wait_until = |second: u64| {
        while let Some(left) = Duration::from_secs(second).checked_sub(began.elapsed()) {
            thread::park_timeout(left);
        }
    };
    let _first = start(Flow::Online, ONLINE_STOPS)?;
    wait_until(OFFLINE_STARTS);
    let _offline = start(Flow::Offline, OFFLINE_STOPS - OFFLINE_STARTS)?;
    wait_until(ONLINE_RESTARTS);
    let _second = start(Flow::Online, END + 1 - ONLINE_RESTARTS)?;
    let trace = watch.join();
    let trace = trace.map_err(|_| anyhow::anyhow!("the thread that counts panicked"))??;
    let used = agent.as_ref().and_then(Agent::used_s);
    Ok(Seen {
        route,
        condition,
        trace,
        agent: used
            .zip(used_before)
            .map(|(after, before)| (after - before) / began.elapsed().as_secs_f64()),
    })
}

/// A group for the offline pod, removed at the end.
struct Group(LabGroup);

impl Group {
    fn new(group: LabGroup) -> anyhow::Result<Group> {
        group.create()?;
        Ok(Group(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.0.folders().unwrap_or_default() {
            // Its last process may still be ending: then the next run uses it again.
            let _left = fs::remove_dir(&folder);
            let _left = folder.parent().map(fs::remove_dir);
        }
    }
}

/// `heddle qos run` in the node.
struct Agent {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Agent {
    /// Starts it, and waits until the offline pod is limited.
    fn start(
        experiment: &NodeExperiment,
        stage: &Stage,
        group: &LabGroup,
        settings: &str,
    ) -> anyhow::Result<Agent> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("pods"))?;
        let manifest = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: batch\n  labels: \
             {{volcano.sh/preemptable: \"true\"}}\n  annotations: {{heddle.dev/cgroup: {}}}\nspec: {{}}\n",
            group.path().display()
        );
        fs::write(path("pods").join("batch.yaml"), manifest)?;
        fs::write(path("settings.yaml"), settings)?;
        let files: [PathBuf; 3] = [path("pods"), path("settings.yaml"), path("state")];
        let [pods, config, state] = &files;
        let command: Vec<OsString> = words([
            experiment.tools.heddle.as_os_str(),
            "qos".as_ref(),
            "run".as_ref(),
            pods.as_os_str(),
            "--config".as_ref(),
            config.as_os_str(),
            "--state".as_ref(),
            state.as_os_str(),
        ]);
        let command = stage.in_node(command);
        let log = path("qos.log");
        let mut child = Child::start("heddle qos", &Confinement::default(), &command, &log, false)?;
        child.wait_until(Duration::from_secs(10), || stage.is_limited().then_some(()))?;
        // It begins with the low rate.
        settle();
        Ok(Agent {
            child,
            _folder: folder,
        })
    }

    /// Processor time that it has used, in seconds (`proc_pid_stat(5)`: utime and stime, in ticks of 10 ms).
    fn used_s(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.pid())).ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        let ticks = after_name.split_ascii_whitespace().skip(11).take(2);
        let ticks = ticks
            .map(|ticks| ticks.parse::<u64>().ok())
            .sum::<Option<u64>>()?;
        Some(ticks as f64 / 100.0)
    }
}

fn report(experiment: &mut NodeExperiment, route: Route, seen: &[Seen]) {
    let findings = &mut experiment.runner.findings;
    for condition in Condition::ALL {
        let of = seen
            .iter()
            .filter(|seen| (seen.route, seen.condition) == (route, condition));
        let all: Vec<(&Seen, Figures)> = of
            .filter_map(|seen| Some((seen, seen.trace.figures()?)))
            .collect();
        let spread = |figure: fn(&Figures) -> f64| {
            Spread::of(
                &all.iter()
                    .map(|(_, figures)| figure(figures))
                    .collect::<Vec<_>>(),
            )
        };
        let (route, name) = (route.name(), condition.name());
        let recover = spread(|figures| figures.recover_ms());
        let shares = [
            spread(|figures| figures.online_share),
            spread(|figures| figures.offline_share),
        ];
        let shown = |spread: &Option<Spread>| match spread {
            None => "-".to_owned(),
            Some(spread) => format!("{:.2} [{:.2}–{:.2}]", spread.median, spread.min, spread.max),
        };
        findings.say(format!(
            "{route} {name:9} online is back after {} ms, has {} of its rate alone beside offline; offline has {} of what \
             online leaves",
            shown(&recover),
            shown(&shares[0]),
            shown(&shares[1]),
        ));
        let cost = all
            .iter()
            .filter_map(|(seen, _)| seen.agent)
            .collect::<Vec<_>>();
        match condition {
            Condition::On => {
                findings.value(format!("net_recover_ms_{route}"), recover);
                let [online, offline] = shares;
                let (suffix, agent) = match route {
                    "direct" => (String::new(), "net_agent_processors".to_owned()),
                    _ => (format!("_{route}"), format!("net_agent_processors_{route}")),
                };
                findings.ratio(format!("net_online_share_of_alone{suffix}"), online);
                findings.ratio(format!("net_offline_share_of_left{suffix}"), offline);
                findings.value(agent, Spread::of(&cost));
            }
            Condition::Off | Condition::Waterline => {
                let [online, offline] = shares;
                findings.value(format!("net_recover_ms_{route}_{name}"), recover);
                findings.ratio(format!("net_online_share_of_alone_{route}_{name}"), online);
                findings.ratio(format!("net_offline_share_of_left_{route}_{name}"), offline);
            }
        }
        for (seen, figures) in &all {
            findings.rows.push(json!({
                "route": route,
                "condition": name,
                "alone_bytes_per_s": figures.alone,
                "recover_after_offline_starts_ms": figures.after_offline_starts_ms,
                "recover_after_online_restarts_ms": figures.after_online_restarts_ms,
                "online_share_of_alone": figures.online_share,
                "offline_share_of_left": figures.offline_share,
                "agent_processors": seen.agent,
            }));
        }
        if all.is_empty() {
            findings.problem(format!(
                "{route} {name}: no run in which both flows were seen"
            ));
        }
    }
}

/// The pids of processes of the stage are numbers of the machine's own namespace.
fn of_process(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}
