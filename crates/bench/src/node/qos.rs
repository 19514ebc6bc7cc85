//! `heddle-lab bench qos-…`: latency-sensitive pods beside batch work, with and without node QoS.
//!
//! Three conditions, in every round one after another in an order that rotates: the web service alone; beside batch
//! work that nothing holds back; and beside batch work whose class is known. A round counts when the batch work
//! disturbs without QoS: else there is nothing to protect from.

use std::thread;
use std::time::{Duration, Instant};

use super::NodeExperiment;
use super::scene::Scene;
use crate::findings::Findings;
use crate::statistics::{Spread, ratio};

mod agent;
mod burst;
mod cpu;
mod memory;
mod network;
mod over_time;
mod overhead;
mod proxy;

pub(crate) use burst::run as burst;
pub(crate) use cpu::run as cpu;
pub(crate) use memory::run as memory;
pub(crate) use network::run as network;
pub(crate) use overhead::run as overhead;
pub(crate) use proxy::run as proxy;

/// Requests per second to the web service, over this number of connections.
const RATE: u32 = 600;
const CONNECTIONS: &str = "32";
/// Time for everything to settle before a measurement.
const SETTLE: Duration = Duration::from_millis(700);

/// What runs beside the web service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Alone,
    Off,
    On,
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Alone, Condition::Off, Condition::On];

    fn name(self) -> &'static str {
        match self {
            Condition::Alone => "alone",
            Condition::Off => "off",
            Condition::On => "on",
        }
    }
}

/// Latency of the web service in one condition of one round, in microseconds, and its requests per second.
#[derive(Debug, Clone, Copy)]
struct Latency {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    per_s: f64,
}

/// Lets the client call the web service at a fixed rate.
///
/// # Errors
/// When a request fails, or the service is so late that it does not carry the rate.
fn web_service(scene: &Scene, seconds: u32) -> anyhow::Result<Latency> {
    settle();
    let seconds = seconds.to_string();
    let rate = RATE.to_string();
    let arguments = [
        "--connections",
        CONNECTIONS,
        "--rate",
        &rate,
        "--seconds",
        &seconds,
    ];
    let outcome = scene.load(&[scene.target("near0")?], &arguments)?;
    outcome.check(Some(f64::from(RATE)))?;
    Ok(Latency {
        p50_us: outcome.p50_us,
        p99_us: outcome.p99_us,
        max_us: outcome.max_us,
        per_s: outcome.per_s(),
    })
}

/// Seconds of a measurement.
fn seconds(experiment: &NodeExperiment) -> u32 {
    if experiment.runner.quick { 2 } else { 6 }
}

/// Rounds of most experiments, quick and full.
const ROUNDS: (usize, usize) = (3, 12);

/// Measures all conditions in all rounds, whose number is that of a quick or of a full run.
///
/// # Errors
/// When one cannot be measured; the rounds before are kept.
fn rounds<T>(
    experiment: &NodeExperiment,
    (quick, full): (usize, usize),
    rounds: &mut Vec<[T; 3]>,
    mut measure: impl FnMut(Condition) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let count = experiment.rounds(quick, full);
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        let mut seen = [None, None, None];
        for turn in 0..3 {
            let number = (turn + round) % 3;
            seen[number] = Some(measure(Condition::ALL[number])?);
        }
        if let [Some(alone), Some(off), Some(on)] = seen {
            rounds.push([alone, off, on]);
        }
    }
    Ok(())
}

/// Reports latencies, and their ratios to those alone. Returns the rounds that count: those in which the batch work
/// without QoS made the p99 at least `disturbed` times that alone.
fn report_latency<'r, T>(
    findings: &mut Findings,
    rounds: &'r [[T; 3]],
    latency: impl Fn(&T) -> Latency,
    (prefix, disturbed): (&str, f64),
) -> Vec<&'r [T; 3]> {
    for (number, condition) in Condition::ALL.into_iter().enumerate() {
        let of = |figure: fn(&Latency) -> f64| {
            let all = rounds.iter().map(|round| figure(&latency(&round[number])));
            Spread::of(&all.collect::<Vec<_>>())
        };
        let shown = |figure: fn(&Latency) -> f64| match of(figure) {
            None => "-".to_owned(),
            Some(spread) => format!("{:.0} [{:.0}–{:.0}]", spread.median, spread.min, spread.max),
        };
        findings.say(format!(
            "{prefix} {:6} p50 {} µs, p99 {} µs, maximum {} µs",
            condition.name(),
            shown(|seen| seen.p50_us),
            shown(|seen| seen.p99_us),
            shown(|seen| seen.max_us),
        ));
        let name = format!("{prefix}_p99_us_{}", condition.name());
        findings.value(name, of(|seen| seen.p99_us));
    }
    let p99 = |round: &[T; 3], number: usize| latency(&round[number]).p99_us;
    let counts = |round: &&[T; 3]| p99(round, 1) >= disturbed * p99(round, 0);
    let counted: Vec<&[T; 3]> = rounds.iter().filter(counts).collect();
    if counted.len() < rounds.len() {
        findings.problem(format!(
            "{prefix}: {} of {} rounds do not count, because without QoS their p99 is below {disturbed} times that alone",
            rounds.len() - counted.len(),
            rounds.len()
        ));
    }
    let of = |number: usize| -> Vec<Option<f64>> {
        counted
            .iter()
            .map(|round| Some(p99(round, number)))
            .collect()
    };
    findings.ratio(format!("{prefix}_p99_off_vs_alone"), ratio(&of(1), &of(0)));
    findings.ratio(format!("{prefix}_p99_on_vs_alone"), ratio(&of(2), &of(0)));
    counted
}

/// Waits until everything has settled.
fn settle() {
    wait(SETTLE);
}

fn wait(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
