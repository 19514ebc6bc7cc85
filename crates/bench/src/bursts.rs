//! A program whose work comes in bursts: `heddle-lab bursts`.
//!
//! Requests are due at fixed times, between bursts few and within them many, and each takes the same CPU time. The
//! time that one takes counts from when it was due: a program that its quota stops has to catch up afterwards.
//!
//! Each thread has a core of its own, since the scheduler would leave two half-busy threads on one core for longer than
//! a short burst lasts.

use std::io::Write;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::work::work;

/// Options of `heddle-lab bursts`.
#[derive(Args, Clone)]
pub struct Bursts {
    /// Threads, each of which serves its own requests.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// CPU time of a request, in microseconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    work_us: u64,
    /// Processors that the requests take between bursts.
    #[arg(long)]
    steady: f64,
    /// Processors that they take within a burst.
    #[arg(long)]
    peak: f64,
    /// Length of a burst, in microseconds.
    #[arg(long)]
    burst_us: u64,
    /// From the beginning of a burst to that of the next one, in microseconds. Each begins with its end.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    every_us: u64,
    #[arg(long)]
    seconds: f64,
}

/// A request of the program. Times are microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BurstRequest {
    /// Since the program began.
    pub(super) due_us: u64,
    /// From when it was due until it was done.
    pub(super) took_us: u64,
    pub(super) in_burst: bool,
}

/// Serves requests until the time is up, and prints all of them as one line of JSON.
///
/// # Errors
/// When a thread cannot be started, or the options make no sense.
pub fn run(options: &Bursts) -> anyhow::Result<()> {
    let most = f64::from(options.threads);
    let is_possible = |processors: f64| processors > 0.0 && processors < most;
    anyhow::ensure!(
        is_possible(options.steady) && is_possible(options.peak),
        "--steady and --peak have to be above 0 and below the number of threads"
    );
    let began = Instant::now();
    let threads = (0..options.threads).map(|number| {
        let options = options.clone();
        thread::Builder::new().spawn(move || serve(&options, number, began))
    });
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    for thread in threads {
        let served = thread.join().ok().context("a thread panicked")?;
        all.extend(served?);
    }
    all.sort_by_key(|request: &BurstRequest| request.due_us);
    let mut line = serde_json::to_vec(&all)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

fn serve(options: &Bursts, number: u32, began: Instant) -> anyhow::Result<Vec<BurstRequest>> {
    // The kernel may otherwise fire timers 50 µs late, which the latencies would show.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    stay_on_core(number)?;
    let cost = Duration::from_micros(options.work_us);
    let end = Duration::from_secs_f64(options.seconds);
    let mut served = Vec::new();
    // Threads take turns.
    let mut due = options.pause(false).mul_f64(f64::from(number)) / options.threads;
    while due < end {
        while let Some(left) = due.checked_sub(began.elapsed()).filter(|d| !d.is_zero()) {
            thread::park_timeout(left);
        }
        work(cost);
        let in_burst = options.is_burst(due);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        served.push(BurstRequest {
            due_us: micros(due),
            took_us: micros(began.elapsed().saturating_sub(due)),
            in_burst,
        });
        due += options.pause(in_burst);
    }
    Ok(served)
}

/// Keeps this thread on one of the cores that the process may use, in turn.
fn stay_on_core(number: u32) -> anyhow::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|core| allowed.is_set(*core))
        .collect();
    let core = cores.get(number as usize % cores.len().max(1));
    let mut only = CpuSet::new();
    only.set(*core.context("no core")?);
    Ok(rustix::thread::sched_setaffinity(None, &only)?)
}

impl Bursts {
    /// Time from one request of a thread to its next one.
    fn pause(&self, in_burst: bool) -> Duration {
        let processors = if in_burst { self.peak } else { self.steady };
        Duration::from_micros(self.work_us).mul_f64(f64::from(self.threads) / processors)
    }

    /// Whether a burst is going on.
    fn is_burst(&self, at: Duration) -> bool {
        let within = at.as_micros() % u128::from(self.every_us);
        within >= u128::from(self.every_us.saturating_sub(self.burst_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_more_requests_and_end_with_each_interval() {
        let options = Bursts {
            threads: 2,
            work_us: 100,
            steady: 0.5,
            peak: 1.5,
            burst_us: 10_000,
            every_us: 100_000,
            seconds: 0.2,
        };
        for (ms, burst) in [
            (0, false),
            (89, false),
            (90, true),
            (99, true),
            (100, false),
        ] {
            assert_eq!(options.is_burst(Duration::from_millis(ms)), burst, "{ms}");
        }
        assert_eq!(options.pause(false), Duration::from_micros(400));
        let served = serve(&options, 0, Instant::now()).expect("served");
        let bursts = served.iter().filter(|request| request.in_burst).count();
        // 2 × 90 ms with a request each 400 µs, 2 × 10 ms with one each 133 µs.
        assert!(
            (440..=452).contains(&(served.len() - bursts)),
            "{}",
            served.len()
        );
        assert!((145..=155).contains(&bursts), "{bursts}");
        assert!(served.iter().all(|request| request.took_us >= 100));
    }
}
