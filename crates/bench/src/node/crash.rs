//! `heddle-lab bench crash`: a node's proxy that is killed under load, again and again.
//!
//! Clients in a pod call a Service on the same node with hardly a pause, half of them over a new connection for each
//! request. The holder of the node starts another proxy each time. Requests in flight when a proxy ended are lost with
//! it; later requests have to wait, and to be answered.
//!
//! A proxy has ended when its process has, with all its threads: by then the kernel has closed every connection that it
//! had, and a client that checks a connection before it sends, as clients with a pool do, notices that. So a request
//! that begins later goes over a new connection, and nothing excuses its failure.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::json;

use super::figures::Figures;
use super::kind::Kind;
use super::scene::{Scene, SceneShape};
use super::{NodeBenchOptions, NodeExperiment};
use crate::findings::failures;
use crate::persist::{Asked, now_us};
use crate::statistics::Spread;

const CLIENTS: &str = "16";
/// Pause of each client between an answer and its next request.
const PAUSE_MS: &str = "10";
/// A node of few pods, and a dense one. Its figures have names of their own.
const NODES: [CrashedNode; 2] = [
    CrashedNode {
        servers: 1,
        suffix: "",
        figures: ["back_ms", "longest_wait_ms", "in_flight", "lost"],
    },
    CrashedNode {
        servers: 100,
        suffix: "_100",
        figures: [
            "back_ms_100",
            "longest_wait_ms_100",
            "in_flight_100",
            "lost_100",
        ],
    },
];
/// The interval between kills: separate deaths, not a single long one.
const BETWEEN: Duration = Duration::from_secs(2);
/// How long a killed process may take to end, and a holder to start the next one.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the end of a proxy a client may take to notice that its connection is closed.
const NOTICED_WITHIN: Duration = Duration::from_millis(500);
/// The threshold of the time until a request is answered again.
const BACK_WITHIN_MS: f64 = 300.0;

/// A node whose proxy is killed.
#[derive(Debug, Clone, Copy)]
struct CrashedNode {
    /// Pods beside the client's. The clients call one of them.
    servers: u32,
    /// Suffix of the names of its figures.
    suffix: &'static str,
    /// The figures of each kill: the time until a request is answered again, the longest wait of a request, failed
    /// requests that were in flight, and requests that were lost besides.
    figures: [&'static str; 4],
}

/// A proxy that was killed. Times are microseconds of Unix time.
#[derive(Debug, Clone, Copy)]
struct Kill {
    at_us: u64,
    /// When the process had ended: requests that began before were in flight.
    gone_us: u64,
}

/// The effect of a kill on the clients.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    /// From the kill until the first answer to a request that began after the end of the proxy.
    back_ms: Option<f64>,
    /// The duration of the longest request between this kill and the next one.
    longest_wait_ms: f64,
    /// Failed requests that were in flight, and failed requests that began later.
    in_flight: u64,
    lost: u64,
}

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a proxy is not replaced.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "crash", &[Kind::Node])?;
    let count = experiment.rounds(5, 20);
    let mut figures = Figures::default();
    let mut measured = Ok(());
    for node in &NODES {
        measured = measure(&experiment, node, count).map(|(kills, asked)| {
            let seen = seen(&kills, &asked);
            report(&mut experiment, node, &seen, &mut figures);
            tell_others(&mut experiment, node, &kills, &asked);
        });
        if measured.is_err() {
            break;
        }
    }
    let rows = figures.rows("kill");
    experiment.runner.findings.rows.extend(rows);
    let places: Vec<u32> = (1..).take(count).collect();
    let panel = |node: &CrashedNode| {
        let title = format!(
            "until a request is answered again (ms), {} pods",
            node.pods()
        );
        figures.panel(&title, "kill", node.figures[0], &places)
    };
    experiment.conclude(measured, &NODES.each_ref().map(panel))
}

impl CrashedNode {
    /// All pods, the client's included.
    fn pods(&self) -> u32 {
        self.servers + 1
    }
}

fn measure(
    experiment: &NodeExperiment,
    node: &CrashedNode,
    count: usize,
) -> anyhow::Result<(Vec<Kill>, Vec<Asked>)> {
    let shape = SceneShape {
        near: node.servers,
        ..SceneShape::default()
    };
    let scene = Scene::up(Kind::Node, shape, &experiment.tools)?;
    let holder = scene.proxies().first().context("no node")?.1;
    let target = scene.target("near0")?;
    let (host, to) = target.split_once('@').context("a target")?;
    let seconds = (BETWEEN * u32::try_from(count + 1)?).as_secs().to_string();
    let clients = scene.start_in_client(&[
        "persist",
        "--to",
        to,
        "--host",
        host,
        "--clients",
        CLIENTS,
        "--pause-ms",
        PAUSE_MS,
        "--seconds",
        &seconds,
    ])?;
    // The clients print when they end, and more than a pipe holds.
    let output = thread::spawn(move || clients.wait_with_output());
    let mut kills = Vec::new();
    let mut next = Instant::now() + BETWEEN;
    for number in 0..count {
        // `park_timeout` may return early.
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            thread::park_timeout(left);
        }
        next += BETWEEN;
        eprintln!("{} pods: kill {} of {count}", node.pods(), number + 1);
        kills.push(kill(holder)?);
    }
    let output = output.join().ok().context("the clients")??;
    anyhow::ensure!(
        output.status.success(),
        "the clients: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok((kills, serde_json::from_slice(&output.stdout)?))
}

/// Kills the proxy of a holder, and waits until it has ended.
fn kill(holder: u32) -> anyhow::Result<Kill> {
    let children = format!("/proc/{holder}/task/{holder}/children");
    let proxy = wait(|| {
        fs::read_to_string(&children)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })
    .context("the holder has no proxy")?;
    let proxy = Pid::from_raw(proxy).context("a process")?;
    let process = pidfd_open(proxy, PidfdFlags::empty())?;
    let at_us = now_us();
    kill_process(proxy, Signal::KILL)?;
    // `/proc` reports the end of its first thread earlier, when other threads may still have the connections.
    let ended = poll(
        &mut [PollFd::new(&process, PollFlags::IN)],
        Some(&Timespec::try_from(PATIENCE)?),
    )?;
    let gone_us = now_us();
    anyhow::ensure!(ended == 1, "the killed proxy does not end");
    Ok(Kill { at_us, gone_us })
}

/// Repeats `look` until it returns something; `None` after [`PATIENCE`].
fn wait<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(found) = look() {
            return Some(found);
        }
        thread::park_timeout(Duration::from_micros(200));
    }
    None
}

/// The relation of a request to the kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// In flight at this kill.
    InFlight(usize),
    /// Began after this kill, and no later one excuses its failure.
    After(usize),
    /// Ended before the first kill, or failed and is not excused by it.
    Before,
}

impl Met {
    /// A request is in flight at the first kill after its beginning, if it had not ended before. A failure long after
    /// the proxy had ended has another cause: the kernel closes the connections as the process ends.
    fn of(one: &Asked, kills: &[Kill]) -> Met {
        let next = kills.partition_point(|kill| kill.gone_us <= one.began_us);
        let excuses = |kill: &Kill| {
            let in_time = one.ended_us <= kill.gone_us + NOTICED_WITHIN.as_micros() as u64;
            one.ended_us >= kill.at_us && (one.failed.is_none() || in_time)
        };
        match (kills.get(next), next.checked_sub(1)) {
            (Some(kill), _) if excuses(kill) => Met::InFlight(next),
            (_, Some(last)) => Met::After(last),
            (_, None) => Met::Before,
        }
    }
}

/// The effect of each kill until the next one.
fn seen(kills: &[Kill], asked: &[Asked]) -> Vec<Seen> {
    let seen = kills.iter().enumerate().map(|(index, kill)| {
        let those = |met| asked.iter().filter(move |one| Met::of(one, kills) == met);
        let failed = |met| those(met).filter(|one| one.failed.is_some()).count() as u64;
        let (in_flight, after) = (Met::InFlight(index), Met::After(index));
        let good = those(after).filter(|one| one.failed.is_none());
        let back = good.map(|one| one.ended_us).min();
        let took = those(in_flight).chain(those(after));
        let longest = took.map(|one| one.ended_us.saturating_sub(one.began_us));
        Seen {
            back_ms: back.map(|back| (back - kill.at_us) as f64 / 1e3),
            longest_wait_ms: longest.max().unwrap_or(0) as f64 / 1e3,
            in_flight: failed(in_flight),
            lost: failed(after),
        }
    });
    seen.collect()
}

/// Reports the failures by kind and the number of requests; the result is invalid if requests failed before the first
/// kill.
fn tell_others(
    experiment: &mut NodeExperiment,
    node: &CrashedNode,
    kills: &[Kill],
    asked: &[Asked],
) {
    let earlier = asked.iter().filter(|one| one.failed.is_some());
    let earlier = earlier.filter(|one| Met::of(one, kills) == Met::Before);
    let earlier = earlier.count();
    let findings = &mut experiment.runner.findings;
    if earlier > 0 {
        findings.invalid(format!("{earlier} requests failed that no kill excuses"));
    }
    let requests = asked.len() as f64;
    findings.value(format!("requests{}", node.suffix), Some(requests));
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for why in asked.iter().filter_map(|one| one.failed.as_ref()) {
        *kinds.entry(why.clone()).or_default() += 1;
    }
    findings.say(format!("Of {requests} requests {}", failures(&kinds)));
    let pods = node.pods();
    let row = json!({"pods": pods, "requests": asked.len(), "failures": kinds});
    findings.rows.push(row);
}

fn report(
    experiment: &mut NodeExperiment,
    node: &CrashedNode,
    seen: &[Seen],
    figures: &mut Figures,
) {
    let findings = &mut experiment.runner.findings;
    let (pods, suffix) = (node.pods(), node.suffix);
    findings.say(format!(
        "\nThe proxy of a node with {pods} pods killed {} times, {} s apart, under load of {CLIENTS} clients",
        seen.len(),
        BETWEEN.as_secs()
    ));
    let [back, longest_wait, in_flight, lost] = node.figures;
    for (at, one) in (1..).zip(seen) {
        let mut add = |name, value| figures.add(name, Kind::Node, at, 0, value);
        match one.back_ms {
            Some(back_ms) => add(back, back_ms),
            None => findings.invalid(format!("after kill {at} no request was answered")),
        }
        add(longest_wait, one.longest_wait_ms);
        add(in_flight, one.in_flight as f64);
        add(lost, one.lost as f64);
    }
    let places: Vec<u32> = (1..).take(seen.len()).collect();
    let columns = [
        ("back after ms", back, 0),
        ("longest wait ms", longest_wait, 0),
        ("failed in flight", in_flight, 0),
        ("lost besides", lost, 0),
    ];
    findings.say(figures.table("kill", &places, &columns));
    let back: Vec<f64> = seen.iter().filter_map(|one| one.back_ms).collect();
    let worst = back.iter().copied().reduce(f64::max);
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>() as f64;
    let lost = sum(|one| one.lost);
    let is_back = back.len() == seen.len() && worst.is_some_and(|worst| worst <= BACK_WITHIN_MS);
    let verdict = |reached: bool| if reached { "reached" } else { "MISSED" };
    findings.say(format!(
        "back within {BACK_WITHIN_MS:.0} ms each: {}; no request lost besides those in flight: {}",
        verdict(is_back),
        verdict(lost == 0.0)
    ));
    let longest = seen.iter().map(|one| one.longest_wait_ms);
    let mut value = |name, value| findings.value(format!("{name}{suffix}"), value);
    value("back_worst_ms", worst);
    value("longest_wait_ms", longest.reduce(f64::max));
    value("failed_in_flight", Some(sum(|one| one.in_flight)));
    value("lost", Some(lost));
    findings.value(format!("back_median_ms{suffix}"), Spread::of(&back));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_flight_may_fail_and_what_is_asked_later_may_not() {
        let asked = |began_us, ended_us, is_good: bool| Asked {
            began_us,
            ended_us,
            failed: (!is_good).then(|| "closed".to_owned()),
        };
        let kill = |at_us| Kill {
            at_us,
            gone_us: at_us + 1_000,
        };
        let all = [
            asked(5_000, 9_000, true),
            // In flight at the first kill: one got its answer just in time.
            asked(9_000, 10_200, true),
            asked(9_500, 10_900, false),
            asked(10_500, 11_500, false),
            // Later: one fails, two wait.
            asked(11_500, 12_000, false),
            asked(12_000, 60_000, true),
            asked(13_000, 50_000, true),
            asked(110_500, 111_000, false),
            // Hangs from the first kill until long after the second, which does not excuse it.
            asked(20_000, 5_020_000, false),
        ];
        let found = seen(&[kill(10_000), kill(110_000)], &all);
        let expected = [
            Seen {
                back_ms: Some(40.0),
                longest_wait_ms: 5_000.0,
                in_flight: 2,
                lost: 2,
            },
            Seen {
                back_ms: None,
                longest_wait_ms: 0.5,
                in_flight: 1,
                lost: 0,
            },
        ];
        assert_eq!(found, expected);
    }
}
