//! Which Worker takes connections from which: controllers without threads or clock.
//!
//! New connections go to the Worker that is expected to be least loaded ([`Loads::place`]). Connections
//! that turn out busier than was expected are evened out afterwards: now and then the least loaded
//! Worker takes some of the busiest one's ([`Stealing`]).
//!
//! Three rules keep this from doing harm. A Worker below [`FLOOR`] is left alone: its clients would not
//! notice. A difference below [`GAP`] is left alone: half of it may be noise. And what is taken is at
//! most half the difference, so that the two never change places.

use std::time::Duration;

/// Busy ratio below which nothing is taken from a Worker.
const FLOOR: f64 = 0.3;
/// Difference of two Workers' busy ratios below which nothing is taken.
const GAP: f64 = 0.12;
/// Time between two takings: long enough to see what the last one did.
const EVERY: Duration = Duration::from_millis(200);
/// How much a new tick counts beside all that came before.
const WEIGHT: f64 = 0.4;

/// Connections are to change hands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taking {
    /// Index of the Worker that gives.
    pub(crate) from: usize,
    /// Index of the Worker that takes.
    pub(crate) to: usize,
    /// The part of the giver's work that should go, from 0 to ½.
    pub(crate) share: f64,
}

/// Finds which Worker is to take from which.
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
    /// What a connection is expected to add.
    each: f64,
    /// Load that was promised to each Worker since the last tick.
    promised: Vec<f64>,
}

impl Loads {
    /// Takes in a tick: each Worker's busy ratio, and how many connections they have in all.
    pub(crate) fn observe(&mut self, busy: &[f64], connections: usize) {
        let known = self.smooth.len().min(busy.len());
        self.smooth.truncate(known);
        for (smooth, now) in self.smooth.iter_mut().zip(busy) {
            *smooth += WEIGHT * (now - *smooth);
        }
        // A Worker that has just come is as loaded as it says.
        self.smooth.extend_from_slice(&busy[known..]);
        let sum: f64 = self.smooth.iter().sum();
        self.each = (sum / connections.max(1) as f64).clamp(0.001, 1.0);
        self.promised.clear();
        self.promised.resize(busy.len(), 0.0);
    }

    /// Room for one more Worker, which has nothing to do yet.
    pub(crate) fn push(&mut self) {
        self.smooth.push(0.0);
        self.promised.push(0.0);
    }

    /// Forgets a Worker; those after it move up.
    pub(crate) fn remove(&mut self, index: usize) {
        if index < self.smooth.len() {
            self.smooth.remove(index);
            self.promised.remove(index);
        }
    }

    /// How loaded each Worker is.
    pub(crate) fn smooth(&self) -> &[f64] {
        &self.smooth
    }

    /// The Worker for a new connection, passing over those that had no room.
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
