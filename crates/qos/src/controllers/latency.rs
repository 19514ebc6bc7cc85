//! The latency loop: offline pods may use less while an online pod misses the objective that it declares.
//!
//! ```text
//!            above the objective, two readings in a row
//!   level 0 ───────────────────► 1 ───────► 2 ───────► 3 ───────► 4
//!   (as without us) ◄─────────── 50 % ◄──── 25 % ◄──── 10 % ◄──── 5 % of all processors
//!            below 80 % of it for `patience`: 10 s and more
//! ```
//!
//! Tightening is quick, relaxing is slow, and between 80 % and 100 % of the objective the level stays. A judgement that
//! is missing begins the count of readings anew: what was true before it may be so no more. After a change the p99 is
//! taken anew ([`window::Window::begin_anew`]), so that a level is judged by what it does. A load which needs level 2
//! would still go to level 1 and back for ever; so `patience` doubles when a level that was relaxed is needed again
//! within a minute, and falls by half when it holds.

pub mod share;
#[cfg(test)]
mod tests;
pub mod window;

use std::time::Duration;

/// How often [`Latency::step`] is called.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// What all offline pods together may use at each level, in percent of the machine's processors. At level 0 they are not
/// limited.
pub const PERCENT: [u8; 5] = [100, 50, 25, 10, 5];
/// The tightest level.
pub const TIGHTEST: usize = PERCENT.len() - 1;
/// Readings in a row above the objective that tighten.
const READINGS: u32 = 2;
/// Part of the objective below which a p99 is calm, in percent.
const CALM_PERCENT: u64 = 80;
/// Time of calm after which a level is relaxed: at first, and at most.
const CALM: Duration = Duration::from_secs(10);
const MOST_CALM: Duration = Duration::from_secs(300);
/// A level that is needed again so soon after it was relaxed was relaxed too early.
const TOO_EARLY: Duration = Duration::from_secs(60);
/// Time without any judgement after which a level is relaxed.
const UNKNOWN: Duration = Duration::from_secs(30);

/// What is known of the pods that declare an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// No pod declares one.
    NoObjective,
    /// The p99 of none of them is known.
    Unknown,
    /// The worst p99 of them, in percent of its objective.
    Worst(u64),
}

/// The level of a node.
#[derive(Debug, Clone)]
pub struct Latency {
    level: usize,
    /// Readings above the objective, in a row: without one that is not known between them.
    above: u32,
    /// Since when the judgement was calm, or was missing.
    calm_since: Option<Duration>,
    unknown_since: Option<Duration>,
    /// Calm that is needed to relax.
    patience: Duration,
    relaxed_at: Option<Duration>,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            level: 0,
            above: 0,
            calm_since: None,
            unknown_since: None,
            patience: CALM,
            relaxed_at: None,
        }
    }
}

impl Latency {
    /// The level: 0 limits nothing, [`TIGHTEST`] most.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What all offline pods together may use, in percent of the machine's processors; `None` if they are not limited.
    pub fn percent(&self) -> Option<u8> {
        let percent = PERCENT.get(self.level).copied();
        percent.filter(|_| self.level > 0)
    }

    /// Takes a judgement, about once a second, and returns whether the level has changed: by one.
    pub fn step(&mut self, now: Duration, judgement: Judgement) -> bool {
        let is_above = matches!(judgement, Judgement::Worst(percent) if percent > 100);
        let is_calm = match judgement {
            Judgement::NoObjective => true,
            Judgement::Worst(percent) => percent < CALM_PERCENT,
            Judgement::Unknown => false,
        };
        let is_unknown = judgement == Judgement::Unknown;
        let since = |before: Option<Duration>, lasts: bool| lasts.then(|| before.unwrap_or(now));
        self.calm_since = since(self.calm_since, is_calm);
        self.unknown_since = since(self.unknown_since, is_unknown);
        self.above = match is_above {
            true => self.above.saturating_add(1),
            false => 0,
        };
        let lasts = |since: Option<Duration>, long: Duration| {
            since.is_some_and(|since| now.saturating_sub(since) >= long)
        };
        if self.above >= READINGS && self.level < TIGHTEST {
            self.tighten(now);
            return true;
        }
        let calm = match judgement {
            Judgement::NoObjective => CALM,
            _ => self.patience,
        };
        let may_relax =
            is_calm && lasts(self.calm_since, calm) || lasts(self.unknown_since, UNKNOWN);
        if may_relax && self.level > 0 {
            self.relax(now);
            return true;
        }
        if self.level == 0 && is_calm && lasts(self.calm_since, self.patience) {
            self.patience = CALM;
        }
        false
    }

    fn tighten(&mut self, now: Duration) {
        let relaxed = self.relaxed_at.take();
        if relaxed.is_some_and(|at| now.saturating_sub(at) < TOO_EARLY) {
            self.patience = (self.patience * 2).min(MOST_CALM);
        }
        self.level += 1;
        self.changed();
    }

    fn relax(&mut self, now: Duration) {
        if self.relaxed_at.replace(now).is_some() {
            // The last relaxation held.
            self.patience = (self.patience / 2).max(CALM);
        }
        self.level -= 1;
        self.changed();
    }

    fn changed(&mut self) {
        self.above = 0;
        self.calm_since = None;
        self.unknown_since = None;
    }
}
