//! When each request of a fixed rate is due, and which connection carries it.
//!
//! Arrivals form a Poisson process: many independent callers, as a shared proxy sees them. The seed is
//! fixed, so every system of a round meets the same arrivals. Due requests wait for a free connection
//! in a bounded queue, and keep the time they were due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use heddle_model::Random;

/// The limit of due requests that wait for a connection; further ones are dropped and counted.
const MAX_BACKLOG: usize = 200_000;

pub(crate) struct Schedule {
    mean_gap_s: f64,
    next: Option<Instant>,
    /// Free connections; the one that has been free longest goes first, so that all are used.
    free: VecDeque<usize>,
    due: VecDeque<Instant>,
    worst_backlog: usize,
    lost: u64,
    random: Random,
}

impl Schedule {
    /// Arrivals at `rate` per second for these connections, all of them free.
    pub(crate) fn new(rate: f64, connections: impl Iterator<Item = usize>, seed: u64) -> Schedule {
        Schedule {
            mean_gap_s: 1.0 / rate.max(0.001),
            next: None,
            free: connections.collect(),
            due: VecDeque::new(),
            worst_backlog: 0,
            lost: 0,
            random: Random::new(seed),
        }
    }

    /// The first request is due at `at`.
    pub(crate) fn start(&mut self, at: Instant) {
        self.next = Some(at);
    }

    /// The next request to send now, if one is due and a connection is free.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(usize, Instant)> {
        while let Some(next) = self.next.filter(|next| *next <= now) {
            if self.due.len() < MAX_BACKLOG {
                self.due.push_back(next);
            } else {
                self.lost += 1;
            }
            self.next = Some(next + self.gap());
        }
        let sent = if self.due.is_empty() {
            None
        } else {
            self.free.pop_front()
        };
        let sent = sent.and_then(|index| Some((index, self.due.pop_front()?)));
        if sent.is_none() {
            self.worst_backlog = self.worst_backlog.max(self.due.len());
        }
        sent
    }

    /// When to look again, if no connection becomes free before.
    pub(crate) fn wakes(&self) -> Option<Instant> {
        self.next
    }

    /// Stops the arrivals and forgets the due requests; returns the connections that are free.
    pub(crate) fn stop(&mut self) -> Vec<usize> {
        self.next = None;
        self.due.clear();
        self.free.drain(..).collect()
    }

    /// Continues the arrivals at another rate.
    pub(crate) fn resume(&mut self, rate: f64, at: Instant) {
        self.mean_gap_s = 1.0 / rate.max(0.001);
        self.next = Some(at);
    }

    /// A connection is free again after its answer.
    pub(crate) fn freed(&mut self, index: usize) {
        self.free.push_back(index);
    }

    /// The largest number of requests that waited for a connection.
    pub(crate) fn worst_backlog(&self) -> usize {
        self.worst_backlog
    }

    /// Requests that were due and never sent.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// An exponentially distributed gap.
    fn gap(&mut self) -> Duration {
        let z = self.random.draw();
        // uniform in (0, 1], so that the logarithm is finite
        let uniform = ((z >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-uniform.ln() * self.mean_gap_s)
    }
}

#[cfg(test)]
mod tests;
