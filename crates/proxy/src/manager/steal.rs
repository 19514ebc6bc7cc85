//! Decides which Worker takes connections from which: controllers without threads or clock.
//!
//! New connections go to the Worker that is expected to be least loaded ([`Loads::place`]). If connections turn out
//! busier than expected, the loads are evened out afterwards: from time to time the least loaded Worker takes some
//! connections from the busiest one ([`Stealing`]).
//!
//! Three rules prevent harm. Nothing is taken from a Worker below [`FLOOR`]: its clients would not notice. A difference
//! below [`GAP`] is ignored: half of it may be noise. At most half of the difference is taken, so that the two Workers
//! never change places.

use std::time::Duration;

/// Busy ratio below which nothing is taken from a Worker.
const FLOOR: f64 = 0.3;
/// Difference of two Workers' busy ratios below which nothing is taken.
const GAP: f64 = 0.12;
/// Minimum time between two takings: long enough to see the effect of the last one.
const EVERY: Duration = Duration::from_millis(200);
/// Weight of a new tick against all earlier ones.
const WEIGHT: f64 = 0.4;

/// An order to move connections from one Worker to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taking {
    /// Index of the Worker that gives.
    pub(crate) from: usize,
    /// Index of the Worker that takes.
    pub(crate) to: usize,
    /// The part of the giver's work to move, from 0 to ½.
    pub(crate) share: f64,
}

/// Decides which Worker takes from which.
#[derive(Debug, Default)]
pub(crate) struct Stealing {
    since: Duration,
}

impl Stealing {
    /// Judges the loads at the end of a tick.
    pub(crate) fn observe(&mut self, tick: Duration, loads: &Loads) -> Option<Taking> {
        self.since = self.since.saturating_add(tick);
        if self.since < EVERY {
            return None;
        }
        let (from, most) = loads.most()?;
        let (to, least) = loads.least()?;
        if from == to || most < FLOOR || most - least < GAP {
            return None;
        }
        self.since = Duration::ZERO;
        Some(Taking {
            from,
            to,
            share: (most - least) / 2.0 / most,
        })
    }
}

/// How loaded each Worker is, smoothed over a few ticks.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    smooth: Vec<f64>,
    /// The load that a new connection is expected to add.
    each: f64,
    /// Expected load of the connections placed with each Worker since the last tick.
    promised: Vec<f64>,
}

impl Loads {
    /// Takes in a tick: each Worker's busy ratio, and the number of connections of all Workers together.
    pub(crate) fn observe(&mut self, busy: &[f64], connections: usize) {
        let known = self.smooth.len().min(busy.len());
        self.smooth.truncate(known);
        for (smooth, now) in self.smooth.iter_mut().zip(busy) {
            *smooth += WEIGHT * (now - *smooth);
        }
        // A new Worker has no history: its first ratio is taken as it is.
        self.smooth.extend_from_slice(&busy[known..]);
        let sum: f64 = self.smooth.iter().sum();
        self.each = (sum / connections.max(1) as f64).clamp(0.001, 1.0);
        self.promised.clear();
        self.promised.resize(busy.len(), 0.0);
    }

    /// Adds a Worker, which has no load yet.
    pub(crate) fn push(&mut self) {
        self.smooth.push(0.0);
        self.promised.push(0.0);
    }

    /// Removes a Worker. The indices of those after it decrease by one.
    pub(crate) fn remove(&mut self, index: usize) {
        if index < self.smooth.len() {
            self.smooth.remove(index);
            self.promised.remove(index);
        }
    }

    /// Each Worker's smoothed busy ratio.
    pub(crate) fn smooth(&self) -> &[f64] {
        &self.smooth
    }

    /// Chooses the Worker for a new connection, among those that `passed` does not exclude.
    pub(crate) fn place(&mut self, passed: impl Fn(usize) -> bool) -> Option<usize> {
        let expected = |index: usize| self.smooth[index] + self.promised[index];
        let candidates = (0..self.smooth.len()).filter(|&index| !passed(index));
        let chosen = candidates.min_by(|&a, &b| expected(a).total_cmp(&expected(b)))?;
        self.promised[chosen] += self.each;
        Some(chosen)
    }

    fn most(&self) -> Option<(usize, f64)> {
        let all = self.smooth.iter().copied().enumerate();
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn least(&self) -> Option<(usize, f64)> {
        let all = self.smooth.iter().copied().enumerate();
        all.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
