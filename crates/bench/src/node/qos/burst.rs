//! `qos-burst`: a pod with a limit of one processor that uses half of one, and in bursts one and a half.
//!
//! The kernel stops a group that has used its quota until the quota's period ends. So a burst can only be stopped if
//! it lasts longer than half of the period: short bursts are measured with a period of their own length (the kubelet's
//! `cpuCFSQuotaPeriod`), long ones with the usual 100 ms.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::agent::{Agent, AgentPod, Wish};
use super::over_time::{self, ALONE, OFF, ON, OTHER, Samples};
use super::{Condition, rounds};
use crate::bursts::BurstRequest;
use crate::child::{Child, Confinement, words};
use crate::node::chart::Panel;
use crate::node::group::LabGroup;
use crate::node::kind::Kind;
use crate::node::scene::{Scene, SceneShape};
use crate::node::{NodeBenchOptions, NodeExperiment};
use crate::statistics::{Spread, ratio};

/// The pod's group.
const POD: &str = "node-one/pods/bursty";
/// Rounds, quick and full.
const ROUNDS: (usize, usize) = (2, 8);
/// Processors that the pod uses between bursts and within them; its limit is one.
const STEADY: &str = "0.5";
const PEAK: &str = "1.5";
/// The pod is settled after so many bursts, and is measured for so many more.
const SETTLING: u32 = 1;
/// How much longer than its requests the program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bursts of one length.
#[derive(Debug, Clone, Copy)]
struct Burst {
    name: &'static str,
    length_us: u64,
    every_us: u64,
    /// Period of the quota, which is as long: one processor.
    period_us: u64,
    /// CPU time of a request.
    work_us: u64,
    /// Bursts that are measured in a quick run, and in a full one.
    measured: (u32, u32),
}

const BURSTS: [Burst; 3] = [
    Burst {
        name: "1ms",
        length_us: 1_000,
        every_us: 50_000,
        period_us: 1_000,
        work_us: 100,
        measured: (40, 100),
    },
    Burst {
        name: "10ms",
        length_us: 10_000,
        every_us: 200_000,
        period_us: 10_000,
        work_us: 500,
        measured: (10, 25),
    },
    Burst {
        name: "1s",
        length_us: 1_000_000,
        every_us: 7_000_000,
        period_us: 100_000,
        work_us: 2_000,
        measured: (1, 2),
    },
];

/// What was measured of one condition in one round.
#[derive(Debug, Clone)]
struct Bursty {
    /// Latency of the requests within bursts, in microseconds.
    p50_us: f64,
    p99_us: f64,
    /// The median of those between bursts.
    steady_p50_us: f64,
    /// Periods in which the pod was stopped, once settled.
    throttled: u64,
    requests: Vec<BurstRequest>,
    samples: Vec<(f64, Sample)>,
}

/// The pod's group at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    used_s: f64,
    /// Processors that its quota is.
    quota: Option<f64>,
    throttled: u64,
}

type Rounds = Vec<[Bursty; 3]>;

/// Measures and reports.
///
/// # Errors
/// When not root, something is missing, or a lab cannot be made.
pub(crate) fn run(options: &NodeBenchOptions) -> anyhow::Result<()> {
    let mut experiment = NodeExperiment::new(options, "qos-burst", &[Kind::Direct])?;
    let mut seen: BTreeMap<&'static str, Rounds> = BTreeMap::new();
    let measured = measure(&experiment, &mut seen);
    let mut worst: Option<Spread> = None;
    let mut throttled = 0;
    for burst in BURSTS {
        let rounds = seen.remove(burst.name).unwrap_or_default();
        let found = report(&mut experiment, burst, &rounds);
        throttled += rounds.iter().map(|[_, _, on]| on.throttled).sum::<u64>();
        let is_worse = |found: &Spread| worst.as_ref().is_none_or(|w| found.median > w.median);
        worst = found.filter(is_worse).or(worst);
        seen.insert(burst.name, rounds);
    }
    let findings = &mut experiment.runner.findings;
    findings.ratio("burst_p50_on_vs_unlimited", worst);
    findings.value("burst_throttled_on", Some(throttled as f64));
    let panels = match seen.get("1s").and_then(|rounds| rounds.last()) {
        Some(round) => panels(round),
        None => Vec::new(),
    };
    experiment.conclude(measured, &panels)
}

fn measure(
    experiment: &NodeExperiment,
    seen: &mut BTreeMap<&'static str, Rounds>,
) -> anyhow::Result<()> {
    let scene = Scene::up(Kind::Direct, SceneShape::default(), &experiment.tools)?;
    let group = scene.group(POD);
    group.create()?;
    for burst in BURSTS {
        eprintln!("bursts of {}", burst.name);
        let pod = AgentPod {
            group: group.clone(),
            wish: Wish::Turbo {
                burst_us: burst.period_us,
            },
        };
        let agent = Agent::new(&scene, &experiment.tools.heddle, vec![pod], "")?;
        let rounds_seen = seen.entry(burst.name).or_default();
        rounds(experiment, ROUNDS, rounds_seen, |condition| {
            burst.measure(&group, &agent, condition, experiment.runner.quick)
        })?;
    }
    Ok(())
}

impl Burst {
    fn measure(
        self,
        group: &LabGroup,
        agent: &Agent,
        condition: Condition,
        quick: bool,
    ) -> anyhow::Result<Bursty> {
        let quota = match condition {
            Condition::Alone => None,
            Condition::Off | Condition::On => Some(self.period_us),
        };
        group.set_quota(quota, self.period_us)?;
        let running = match condition {
            Condition::On => Some(agent.start()?),
            Condition::Alone | Condition::Off => None,
        };
        let (few, many) = self.measured;
        let measured = if quick { few } else { many };
        // Short bursts need more of them until turbo has followed: a second at least.
        let settling = Duration::from_micros(self.every_us) * SETTLING;
        let settling = settling.max(Duration::from_secs(1));
        let all = settling + Duration::from_micros(self.every_us) * measured;
        let program = self.start(group, agent, all)?;
        let mut samples = Samples::begin();
        let now = || Sample::of(group, self.period_us);
        samples.take_until(settling, now)?;
        let before = group.throttled()?;
        samples.take_until(all, now)?;
        let throttled = group.throttled()?.saturating_sub(before);
        let printed = program.finish(all + PATIENCE)?;
        drop(running);
        let requests: Vec<BurstRequest> = serde_json::from_str(&printed)?;
        let settled_us = u64::try_from(settling.as_micros())?;
        let took = |in_burst: bool| {
            let settled = requests.iter().filter(|one| one.due_us >= settled_us);
            let mut took: Vec<u64> = settled
                .filter(|one| one.in_burst == in_burst)
                .map(|one| one.took_us)
                .collect();
            took.sort_unstable();
            took
        };
        let (bursts, steady) = (took(true), took(false));
        Ok(Bursty {
            p50_us: quantile(&bursts, 0.5)?,
            p99_us: quantile(&bursts, 0.99)?,
            steady_p50_us: quantile(&steady, 0.5)?,
            throttled,
            samples: samples.into_inner(),
            requests,
        })
    }

    /// Starts the pod's program.
    fn start(self, group: &LabGroup, agent: &Agent, time: Duration) -> anyhow::Result<Child> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(words(["bursts", "--steady", STEADY, "--peak", PEAK]));
        for (name, value) in [
            ("--work-us", self.work_us.to_string()),
            ("--burst-us", self.length_us.to_string()),
            ("--every-us", self.every_us.to_string()),
            ("--seconds", time.as_secs_f64().to_string()),
        ] {
            command.extend(words([name, &value]));
        }
        let place = Confinement {
            groups: group.folders()?,
            ..Confinement::default()
        };
        let log = agent.folder().join("bursts.log");
        Child::start("bursts", &place, &command, &log, true)
    }
}

impl Sample {
    fn of(group: &LabGroup, period_us: u64) -> anyhow::Result<Sample> {
        let quota = group.quota_us()?;
        Ok(Sample {
            used_s: group.used_s()?,
            quota: quota.map(|us| us as f64 / period_us as f64),
            throttled: group.throttled()?,
        })
    }
}

/// A quantile of sorted times.
fn quantile(sorted: &[u64], part: f64) -> anyhow::Result<f64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    let found = sorted.get(rank.max(1) - 1);
    Ok(*found.context("the pod served no requests")? as f64)
}

/// Names of the conditions here.
const NAMES: [&str; 3] = ["unlimited", "off", "on"];

/// Returns the ratio of latency with node QoS and without a limit.
fn report(experiment: &mut NodeExperiment, burst: Burst, rounds: &Rounds) -> Option<Spread> {
    let findings = &mut experiment.runner.findings;
    let name = burst.name;
    let of = |condition: usize, figure: fn(&Bursty) -> f64| -> Vec<Option<f64>> {
        let all = rounds.iter().map(|round| Some(figure(&round[condition])));
        all.collect()
    };
    let spread = |condition: usize, figure: fn(&Bursty) -> f64| {
        let all = of(condition, figure).into_iter().flatten();
        Spread::of(&all.collect::<Vec<_>>())
    };
    for (number, condition) in NAMES.into_iter().enumerate() {
        let (p50, p99) = (
            spread(number, |seen| seen.p50_us),
            spread(number, |seen| seen.p99_us),
        );
        let throttled = spread(number, |seen| seen.throttled as f64);
        if let (Some(p50), Some(p99), Some(throttled)) = (&p50, &p99, &throttled) {
            findings.say(format!(
                "bursts of {name:5} {condition:9} p50 {:.0} [{:.0}–{:.0}] µs, p99 {:.0} [{:.0}–{:.0}] µs, stopped in {:.0} \
                 [{:.0}–{:.0}] periods",
                p50.median, p50.min, p50.max, p99.median, p99.min, p99.max, throttled.median, throttled.min, throttled.max
            ));
        }
        findings.value(format!("burst_{name}_p50_us_{condition}"), p50);
        findings.value(format!("burst_{name}_p99_us_{condition}"), p99);
        findings.value(format!("burst_{name}_throttled_{condition}"), throttled);
        for seen in rounds.iter().map(|round| &round[number]) {
            findings.rows.push(json!({
                "burst": name,
                "condition": condition,
                "p50_us": seen.p50_us,
                "p99_us": seen.p99_us,
                "steady_p50_us": seen.steady_p50_us,
                "throttled_periods": seen.throttled,
                "requests": seen.requests.len(),
            }));
        }
    }
    let p50 = |condition| of(condition, |seen| seen.p50_us);
    let p99 = |condition| of(condition, |seen| seen.p99_us);
    let found = ratio(&p50(2), &p50(0));
    findings.ratio(format!("burst_{name}_p50_on_vs_unlimited"), found.clone());
    let off = ratio(&p50(1), &p50(0));
    findings.ratio(format!("burst_{name}_p50_off_vs_unlimited"), off);
    let on = ratio(&p99(2), &p99(0));
    findings.ratio(format!("burst_{name}_p99_on_vs_unlimited"), on);
    found
}

/// One round over time.
fn panels(round: &[Bursty; 3]) -> Vec<Panel> {
    let latency = |seen: &Bursty| {
        let slice_us = over_time::SLICE.as_micros() as u64;
        let mut slowest: BTreeMap<u64, u64> = BTreeMap::new();
        for one in &seen.requests {
            let slowest = slowest.entry(one.due_us / slice_us).or_default();
            *slowest = one.took_us.max(*slowest);
        }
        let points = slowest.into_iter().map(|(slice, us)| {
            let middle_s = (slice as f64 + 0.5) * over_time::SLICE.as_secs_f64();
            (middle_s, us as f64 / 1e3)
        });
        points.collect::<Vec<_>>()
    };
    let points = |seen: &Bursty, figure: &dyn Fn(&Sample) -> Option<f64>| {
        let all = seen.samples.iter();
        all.filter_map(|(at, sample)| Some((*at, figure(sample)?)))
            .collect::<Vec<_>>()
    };
    let used = |seen: &Bursty| over_time::rates(&points(seen, &|sample| Some(sample.used_s)));
    let stopped = |seen: &Bursty| {
        let all = points(seen, &|sample| Some(sample.throttled as f64));
        let first = all.first().map_or(0.0, |(_, first)| *first);
        all.into_iter()
            .map(|(at, now)| (at, now - first))
            .collect::<Vec<_>>()
    };
    let [unlimited, off, on] = round;
    vec![
        over_time::panel(
            "slowest request of each quarter second (ms)",
            vec![
                ("limit, no node QoS", OFF, latency(off)),
                ("limit and node QoS", ON, latency(on)),
                ("no limit", ALONE, latency(unlimited)),
            ],
        ),
        over_time::panel(
            "processors",
            vec![
                ("used, limit without node QoS", OFF, used(off)),
                ("used, with node QoS", ON, used(on)),
                (
                    "quota, with node QoS",
                    OTHER,
                    points(on, &|sample| sample.quota),
                ),
            ],
        ),
        over_time::panel(
            "periods in which the pod was stopped, so far",
            vec![
                ("limit, no node QoS", OFF, stopped(off)),
                ("limit and node QoS", ON, stopped(on)),
            ],
        ),
    ]
}
