//! Decides how many Workers there should be: a controller without threads or clock.
//!
//! At every tick it gets each Worker's busy ratio, the share of the time in which the Worker had work (1 is all of it),
//! and decides whether to add a Worker or to retire one.
//!
//! ```text
//!                 mean busy > grow_above, for grow_after
//!            ┌──────────────────────────────────────────────▶ grow
//!   steady ──┤
//!            └──────────────────────────────────────────────▶ retire the least loaded
//!                 one fewer would be < retire_below, for retire_after
//! ```
//!
//! **No flapping.** `retire_below` is compared with the mean that the remaining Workers would have, and is smaller than
//! `grow_above`: when a Worker is retired, the others can carry its load without a need to grow again. After a change
//! the controller ignores the ratios for [`SETTLE`], because they are measured partly before the change.
//!
//! **No hesitation.** Evidence is kept in a leaky sum: a tick on the other side of the threshold subtracts its own
//! length, and does not reset the sum. A load that wavers around the threshold is judged by its mean.

use std::time::Duration;

use crate::settings::Elasticity;

/// After a change, ratios are ignored for this long.
pub(crate) const SETTLE: Duration = Duration::from_millis(200);

/// The controller's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrewChange {
    Stay,
    Grow,
    /// Retire the Worker at this index of the busy ratios.
    Retire(usize),
}

#[derive(Debug)]
pub(crate) struct Controller {
    wanted: Elasticity,
    /// Leaky sum of the time for which another Worker was wanted.
    over: Duration,
    /// Leaky sum of the time for which one Worker fewer would have been enough.
    under: Duration,
    settled: Duration,
    /// The last change, until both leaky sums are zero.
    last: CrewChange,
    /// Another Worker is wanted, but the limit is reached.
    short: bool,
}

impl Controller {
    pub(crate) fn new(wanted: Elasticity) -> Self {
        let min = wanted.min.max(1);
        Controller {
            wanted: Elasticity {
                min,
                max: wanted.most(),
                // Without a gap between the two, one load could want both changes.
                retire_below: wanted.retire_below.min(wanted.grow_above * 0.9),
                ..wanted
            },
            over: Duration::ZERO,
            under: Duration::ZERO,
            settled: SETTLE,
            last: CrewChange::Stay,
            short: false,
        }
    }

    /// Whether at the last tick another Worker was wanted but the limit was reached.
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// Judges the tick that has just ended, from its length and each Worker's busy ratio in it.
    pub(crate) fn observe(&mut self, tick: Duration, busy: &[f64]) -> CrewChange {
        let wanted = self.wanted;
        self.settled = self.settled.saturating_add(tick);
        let count = busy.len();
        self.short = false;
        if count < wanted.min {
            return self.change(CrewChange::Grow);
        }
        if count > wanted.max {
            return self.change(CrewChange::Retire(least(busy)));
        }
        if self.settled <= SETTLE {
            return CrewChange::Stay;
        }
        let sum: f64 = busy.iter().map(|&ratio| sane(ratio)).sum();
        let mean = sum / count as f64;
        let without_one = sum / (count.max(2) - 1) as f64;
        let over = mean > wanted.grow_above;
        let under = without_one < wanted.retire_below;
        self.over = leak(self.over, tick, over).min(wanted.grow_after);
        self.under = leak(self.under, tick, under).min(wanted.retire_after);

        // After a change for the same reason, the full time need not pass again: it is enough that the reason still
        // holds once the change has settled.
        let enough = |after: Duration, again: bool| if again { SETTLE.min(after) } else { after };
        let grew = self.last == CrewChange::Grow;
        let retired = matches!(self.last, CrewChange::Retire(_));
        if over && self.over >= enough(wanted.grow_after, grew) {
            if count < wanted.max {
                return self.change(CrewChange::Grow);
            }
            self.short = true;
        }
        if under && self.under >= enough(wanted.retire_after, retired) && count > wanted.min {
            return self.change(CrewChange::Retire(least(busy)));
        }
        if self.over.is_zero() && self.under.is_zero() {
            self.last = CrewChange::Stay;
        }
        CrewChange::Stay
    }

    fn change(&mut self, decision: CrewChange) -> CrewChange {
        self.over = Duration::ZERO;
        self.under = Duration::ZERO;
        self.settled = Duration::ZERO;
        self.last = decision;
        decision
    }
}

/// How long Workers must be short before it is logged.
const SHORT_FOR: Duration = Duration::from_secs(5);
/// Minimum time between two log messages about it.
const SHORT_AGAIN: Duration = Duration::from_secs(60);

/// Decides when to log that the limit of Workers is reached and all of them are busy.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Leaky sum of the time for which Workers were short.
    lasted: Duration,
    /// Time since it was logged last.
    said: Option<Duration>,
}

impl Shortage {
    /// Judges the tick that has just ended; true when the shortage is to be logged.
    pub(crate) fn observe(&mut self, tick: Duration, short: bool) -> bool {
        self.lasted = leak(self.lasted, tick, short).min(SHORT_FOR);
        self.said = self.said.map(|said| said.saturating_add(tick));
        let due = self.lasted >= SHORT_FOR && self.said.is_none_or(|said| said >= SHORT_AGAIN);
        if due {
            self.said = Some(Duration::ZERO);
        }
        due
    }
}

/// Clamps a ratio to its range; an invalid one counts as idle.
fn sane(ratio: f64) -> f64 {
    if ratio.is_finite() {
        ratio.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn leak(sum: Duration, tick: Duration, holds: bool) -> Duration {
    match holds {
        true => sum.saturating_add(tick),
        false => sum.saturating_sub(tick),
    }
}

/// The index of the least busy Worker; among equals, of the last one in the list.
fn least(busy: &[f64]) -> usize {
    let all = busy.iter().enumerate();
    all.min_by(|(a, x), (b, y)| sane(**x).total_cmp(&sane(**y)).then(b.cmp(a)))
        .map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests;
