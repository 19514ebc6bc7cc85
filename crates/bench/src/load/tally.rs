//! The results of a run: answers and failures as they come, and the readings at the edges of the window.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::history::History;
use super::{Outcome, Schedule, Watched};
use crate::account;

/// Errors after which a run ends: something is broken, not merely loaded.
const MAX_ERRORS: u64 = 1_000;

/// The results of a run so far.
pub(crate) struct Tally {
    /// In microseconds.
    latencies: Histogram<u64>,
    completed: u64,
    errors: BTreeMap<&'static str, u64>,
    /// Latency over time, the warm-up included.
    history: Option<History>,
}

/// The readings of CPU time at one edge of the window.
pub(crate) struct WindowEdge {
    pub(crate) at: Instant,
    readings: Vec<(String, account::Reading)>,
    cores: account::Cores,
}

impl Tally {
    pub(crate) fn new() -> anyhow::Result<Tally> {
        Ok(Tally {
            // 1 µs to 60 s, three significant digits: under 0.1 % of error
            latencies: Histogram::new_with_bounds(1, 60_000_000, 3)?,
            completed: 0,
            errors: BTreeMap::new(),
            history: None,
        })
    }

    /// Keeps latency over time from now on, in slices of this length.
    pub(super) fn keep_history(&mut self, slice: Duration) {
        self.history = Some(History::new(slice));
    }

    /// Forgets the answers of the warm-up; its failures still count.
    pub(crate) fn begin_window(&mut self) {
        self.latencies.clear();
        self.completed = 0;
    }

    /// A request that was due at `due` has got its answer.
    pub(crate) fn answered(&mut self, due: Instant) {
        let took = Instant::now().saturating_duration_since(due).as_micros();
        let took_us = u64::try_from(took).unwrap_or(u64::MAX).max(1);
        self.latencies.saturating_record(took_us);
        self.completed += 1;
        if let Some(history) = &mut self.history {
            history.add(due, took_us);
        }
    }

    /// A request got no answer, or a wrong one.
    pub(crate) fn failed(&mut self, kind: &'static str) {
        *self.errors.entry(kind).or_default() += 1;
    }

    /// Whether the run is worth going on with.
    ///
    /// # Errors
    /// When there are too many failures.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let errors: u64 = self.errors.values().sum();
        anyhow::ensure!(errors < MAX_ERRORS, "too many errors: {:?}", self.errors);
        Ok(())
    }

    /// The outcome, with the CPU time of the watched processes from `start` to `end`, and their memory now.
    ///
    /// # Errors
    /// When a watched process is gone.
    pub(crate) fn outcome(
        self,
        start: &WindowEdge,
        end: &WindowEdge,
        watched: &[Watched],
        schedule: Option<&Schedule>,
    ) -> anyhow::Result<Outcome> {
        let mut errors: BTreeMap<String, u64> = self
            .errors
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count))
            .collect();
        let backlog = schedule.map_or(0, Schedule::worst_backlog);
        if let Some(lost) = schedule.map(Schedule::lost).filter(|lost| *lost > 0) {
            errors.insert("not sent, too many already due".to_owned(), lost);
        }
        let pairs = start.readings.iter().zip(&end.readings);
        let mut cpu: BTreeMap<String, account::Usage> = BTreeMap::new();
        for ((name, start), (_, end)) in pairs {
            *cpu.entry(name.clone()).or_default() += account::between(start, end);
        }
        let mut memory: BTreeMap<String, account::Memory> = BTreeMap::new();
        for watched in watched {
            *memory.entry(watched.name.clone()).or_default() += account::memory(watched.pid)?;
        }
        let quantile = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64;
        Ok(Outcome {
            seconds: end.at.duration_since(start.at).as_secs_f64(),
            requests: self.completed,
            mean_us: self.latencies.mean(),
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: self.latencies.max() as f64,
            backlog,
            cpu,
            threads: threads(watched, start, end),
            memory,
            cores: end.cores.busy_since(&start.cores),
            errors,
            history: self.history.map(History::slices).unwrap_or_default(),
        })
    }
}

fn threads(watched: &[Watched], start: &WindowEdge, end: &WindowEdge) -> BTreeMap<String, u64> {
    let mut by_name = BTreeMap::new();
    let pairs = start.readings.iter().zip(&end.readings);
    for (watched, ((_, start), (_, end))) in watched.iter().zip(pairs) {
        for (name, ns) in account::by_thread(watched.pid, start, end) {
            *by_name.entry(name).or_default() += ns;
        }
    }
    by_name
}

/// Reads the CPU time of the watched processes, and of this one as `client`.
///
/// # Errors
/// When a watched process is gone.
pub(crate) fn edge(watched: &[Watched]) -> anyhow::Result<WindowEdge> {
    let mut readings = Vec::with_capacity(watched.len() + 1);
    for watched in watched {
        readings.push((watched.name.clone(), account::read(watched.pid)?));
    }
    readings.push(("client".to_owned(), account::read(std::process::id())?));
    Ok(WindowEdge {
        at: Instant::now(),
        readings,
        cores: account::cores()?,
    })
}
