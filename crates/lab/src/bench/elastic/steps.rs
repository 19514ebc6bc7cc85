//! Load that rises and falls over connections that stay open.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::json;

use super::Report;
use super::stage::{self, Stage};
use super::timeline::{Sample, Timeline};
use crate::bench::statistics;

/// Seconds of each phase: quiet, then as fast as it goes.
const QUIET_S: f64 = 4.5;
const BUSY_S: f64 = 2.5;
/// Requests per second while it is quiet: a small part of what one Worker can do.
const QUIET_RATE: f64 = 2_000.0;
/// How often the Workers are looked at.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(stage: &Stage, cycles: u32, report: &mut Report) -> anyhow::Result<Timeline> {
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

    // Phases begin quiet, and alternate.
    let mut grew = Vec::new();
    let mut retired = Vec::new();
    for (index, start) in phases.iter().enumerate().skip(1) {
        let end = phases.get(index + 1).copied().unwrap_or(f64::INFINITY);
        let within = samples
            .iter()
            .filter(|sample| (*start..end).contains(&sample.unix_ms));
        let found = match index % 2 {
            1 => within.clone().find(|s| s.workers - s.retiring == 2),
            _ => within.clone().find(|s| s.workers == 1),
        };
        let after = found.map_or(f64::INFINITY, |sample| (sample.unix_ms - start) / 1e3);
        if index % 2 == 1 {
            &mut grew
        } else {
            &mut retired
        }
        .push(after);
    }
    let failed: u64 = outcome.errors.values().sum();
    println!("Steps: load that rises and falls, 64 connections that stay open, {cycles} cycles");
    println!(
        "  {} requests, {failed} failed {:?}",
        outcome.requests, outcome.errors
    );
    for (name, all) in [("a second worker came", &grew), ("it had gone", &retired)] {
        let worst = all.iter().copied().fold(0.0, f64::max);
        let median = statistics::median(all);
        println!("  {name:22} after {median:.2} s, at worst {worst:.2} s");
    }
    let worst = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    report.values.insert("steps_failed", failed as f64);
    report.values.insert("steps_grow_worst_s", worst(&grew));
    report
        .values
        .insert("steps_retire_worst_s", worst(&retired));
    report.rows.push(json!({
        "scenario": "steps",
        "requests": outcome.requests,
        "errors": outcome.errors,
        "grow_s": grew,
        "retire_s": retired,
        "phases": phases,
        "workers": samples.iter().map(|s| (s.unix_ms, s.workers, s.retiring)).collect::<Vec<_>>(),
    }));
    Ok(Timeline { samples, phases })
}

/// Looks at the Workers while something happens.
fn watched<T>(
    socket: &PathBuf,
    happens: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<Sample>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let samples = scope.spawn(|| {
            let mut samples = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok(workers) = stage::workers(socket) {
                    samples.push(Sample {
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
