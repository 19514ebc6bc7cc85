//! Load that rises and falls over connections that stay open.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::json;

use super::stage::{self, ElasticStage};
use super::timeline::{Timeline, WorkerSample};
use crate::findings::{Findings, failures};
use crate::statistics::{self, Spread};

/// Seconds of each phase: quiet, then as fast as it goes.
const QUIET_S: f64 = 4.5;
const BUSY_S: f64 = 2.5;
/// Requests per second while it is quiet: a small part of what one Worker can do.
const QUIET_RATE: f64 = 2_000.0;
/// The interval between two looks at the Workers.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(
    stage: &ElasticStage,
    cycles: u32,
    findings: &mut Findings,
) -> anyhow::Result<Timeline> {
    let heddle = stage.heddle("min: 1, max: 2")?;
    let socket = heddle.dir().join("admin.sock");
    let seconds = f64::from(cycles) * (QUIET_S + BUSY_S) + QUIET_S;
    let (quiet, busy) = (format!("{QUIET_S}@{QUIET_RATE}"), format!("{BUSY_S}@max"));
    let seconds_text = seconds.to_string();
    let arguments = [
        "--connections",
        "64",
        "--phase",
        &quiet,
        "--phase",
        &busy,
        "--seconds",
        &seconds_text,
    ];
    eprintln!("steps: {cycles} cycles, {seconds:.0} s");
    let load = stage.load(&heddle, &arguments)?;
    let (printed, samples) = watched(&socket, || {
        load.finish(Duration::from_secs_f64(seconds + 30.0))
    })?;
    let outcome = stage::outcome(&printed)?;
    let phases = printed
        .lines()
        .filter_map(|line| line.strip_prefix("phase "))
        .map(|ms| ms.parse::<f64>().context("a phase's time"))
        .collect::<anyhow::Result<Vec<f64>>>()?;

    let timeline = Timeline { samples, phases };
    let (grew, retired) = delays(&timeline);
    let failed: u64 = outcome.errors.values().sum();
    findings.say(format!(
        "\nSteps: load that rises and falls, 64 connections that stay open, {cycles} cycles"
    ));
    findings.say(format!(
        "  {} requests, {}",
        outcome.requests,
        failures(&outcome.errors)
    ));
    findings.say(grew.sentence("a second worker came", "no second worker"));
    findings.say(retired.sentence("it had gone", "it did not go"));
    findings.value("steps_failed", Some(failed as f64));
    findings.value("steps_grow_median_s", Spread::of(&grew.known()));
    findings.value("steps_grow_worst_s", grew.worst());
    findings.value("steps_not_grown", Some(grew.missed() as f64));
    findings.value("steps_grow_left_out", Some(grew.left_out as f64));
    findings.value("steps_retire_median_s", Spread::of(&retired.known()));
    findings.value("steps_retire_worst_s", retired.worst());
    findings.value("steps_not_retired", Some(retired.missed() as f64));
    findings.value("steps_retire_left_out", Some(retired.left_out as f64));
    let Timeline { samples, phases } = &timeline;
    findings.rows.push(json!({
        "scenario": "steps",
        "requests": outcome.requests,
        "errors": outcome.errors,
        "grow_s": grew.counted,
        "grow_left_out": grew.left_out,
        "retire_s": retired.counted,
        "retire_left_out": retired.left_out,
        "phases": phases,
        "workers": samples.iter().map(|s| (s.unix_ms, s.workers, s.retiring)).collect::<Vec<_>>(),
    }));
    Ok(timeline)
}

/// Seconds from the beginning of each phase until a Worker came or had gone.
#[derive(Debug, Default, PartialEq)]
struct Delays {
    /// `None` where that did not happen.
    counted: Vec<Option<f64>>,
    /// Phases that began with the expected number of Workers already there.
    left_out: usize,
}

impl Delays {
    fn known(&self) -> Vec<f64> {
        self.counted.iter().flatten().copied().collect()
    }

    fn missed(&self) -> usize {
        self.counted.iter().filter(|delay| delay.is_none()).count()
    }

    fn median(&self) -> Option<f64> {
        statistics::median(&self.known())
    }

    fn worst(&self) -> Option<f64> {
        self.known().into_iter().reduce(f64::max)
    }

    /// How soon it happened, and in how many cycles it did not.
    fn sentence(&self, happened: &str, did_not: &str) -> String {
        let mut parts = Vec::new();
        if let (Some(median), Some(worst)) = (self.median(), self.worst()) {
            parts.push(format!(
                "{happened:20} after {median:.2} s, at worst {worst:.2} s"
            ));
        }
        if self.missed() > 0 {
            parts.push(format!(
                "{did_not} in {} of {} cycles",
                self.missed(),
                self.counted.len()
            ));
        }
        if self.left_out > 0 {
            parts.push(format!(
                "{} left out, which began with what they wait for",
                self.left_out
            ));
        }
        format!("  {}", parts.join("; "))
    }
}

/// How long each busy phase waited for a second Worker, and each quiet one until that Worker had gone. Phases
/// alternate, beginning with a quiet one. A phase counts only if the last look before it found the opposite: after a
/// busy phase to which no second Worker came, no Worker can go, and the first look would find a delay of zero.
fn delays(timeline: &Timeline) -> (Delays, Delays) {
    let Timeline { samples, phases } = timeline;
    let (mut grew, mut retired) = (Delays::default(), Delays::default());
    for (index, start) in phases.iter().enumerate().skip(1) {
        let end = phases.get(index + 1).copied().unwrap_or(f64::INFINITY);
        let before = samples.iter().rfind(|sample| sample.unix_ms < *start);
        let mut within = samples
            .iter()
            .filter(|sample| (*start..end).contains(&sample.unix_ms));
        let two_work = |sample: &WorkerSample| sample.workers - sample.retiring == 2;
        let one_is_there = |sample: &WorkerSample| sample.workers == 1;
        let (delays, counts, found) = if index % 2 == 1 {
            let counts = before.is_some_and(one_is_there);
            (&mut grew, counts, within.find(|sample| two_work(sample)))
        } else {
            let counts = before.is_some_and(two_work);
            let gone = within.find(|sample| one_is_there(sample));
            (&mut retired, counts, gone)
        };
        if counts {
            let after = found.map(|sample| (sample.unix_ms - start) / 1e3);
            delays.counted.push(after);
        } else {
            delays.left_out += 1;
        }
    }
    (grew, retired)
}

/// Samples the Workers while `happens` runs.
fn watched<T>(
    socket: &PathBuf,
    happens: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<WorkerSample>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let samples = scope.spawn(|| {
            let mut samples = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok(workers) = stage::workers(socket) {
                    samples.push(WorkerSample {
                        unix_ms: unix_ms(),
                        workers: workers.len(),
                        retiring: workers.iter().filter(|worker| worker.retiring).count(),
                    });
                }
                thread::park_timeout(LOOK);
            }
            samples
        });
        let outcome = happens();
        over.store(true, Ordering::Relaxed);
        let samples = samples.join().ok().context("the watcher panicked")?;
        Ok((outcome?, samples))
    })
}

fn unix_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(unix_ms: f64, workers: usize) -> WorkerSample {
        WorkerSample {
            unix_ms,
            workers,
            retiring: 0,
        }
    }

    fn of(counted: &[Option<f64>], left_out: usize) -> Delays {
        Delays {
            counted: counted.to_vec(),
            left_out,
        }
    }

    #[test]
    fn a_cycle_without_a_second_worker_is_said_and_spoils_no_median() {
        let timeline = Timeline {
            // Quiet, busy, quiet, busy, quiet: the second time no Worker came, so that none could go.
            phases: vec![0.0, 1000.0, 2000.0, 3000.0, 4000.0],
            samples: vec![
                sample(900.0, 1),
                sample(1100.0, 1),
                sample(1500.0, 2),
                sample(2100.0, 2),
                sample(2250.0, 1),
                sample(3500.0, 1),
                sample(4010.0, 1),
            ],
        };
        let (grew, retired) = delays(&timeline);
        assert_eq!(grew, of(&[Some(0.5), None], 0));
        assert_eq!(retired, of(&[Some(0.25)], 1));
        assert_eq!(
            grew.sentence("a second worker came", "no second worker"),
            "  a second worker came after 0.50 s, at worst 0.50 s; no second worker in 1 of 2 cycles"
        );
        assert_eq!(
            retired.sentence("it had gone", "it did not go"),
            "  it had gone          after 0.25 s, at worst 0.25 s; 1 left out, which began with what they wait for"
        );
        assert_eq!(
            of(&[None; 3], 0).sentence("a second worker came", "no second worker"),
            "  no second worker in 3 of 3 cycles"
        );
        assert_eq!((grew.median(), grew.worst()), (Some(0.5), Some(0.5)));
        assert_eq!(of(&[None], 0).worst(), None);
    }

    #[test]
    fn a_worker_that_has_not_gone_does_not_come_in_the_next_phase() {
        let timeline = Timeline {
            phases: vec![0.0, 1000.0, 2000.0, 3000.0],
            samples: vec![
                sample(900.0, 1),
                sample(1500.0, 2),
                sample(2500.0, 2),
                sample(3010.0, 2),
            ],
        };
        let (grew, retired) = delays(&timeline);
        assert_eq!(grew, of(&[Some(0.5)], 1));
        assert_eq!(retired, of(&[None], 0));
        // A phase without a look before it is left out, too.
        let unseen = Timeline {
            phases: vec![0.0, 1000.0],
            samples: vec![sample(1001.0, 2)],
        };
        assert_eq!(delays(&unseen), (of(&[], 1), of(&[], 0)));
    }
}
