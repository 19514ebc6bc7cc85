//! How many Workers there should be: a controller without threads or clock.
//!
//! It is told at every tick how busy each Worker was, as the share of the time in which it had work
//! (1 is all of it), and says whether to add a Worker or to retire one.
//!
//! ```text
//!                 mean busy > grow_above, for grow_after
//!            ┌──────────────────────────────────────────────▶ grow
//!   steady ──┤
//!            └──────────────────────────────────────────────▶ retire the least loaded
//!                 one fewer would be < retire_below, for retire_after
//! ```
//!
//! **No flapping.** `retire_below` is judged by what the Workers that stay would have to carry, and is
//! smaller than `grow_above`: the load under which a Worker is retired is one that the others carry
//! without wanting another. After a change the controller looks away for [`SETTLE`], because what it
//! would see is half from before.
//!
//! **No hesitation.** Evidence is kept in a leaky sum: a tick that says otherwise takes back as much as
//! it was long, instead of all. A load that wavers around the threshold is judged by its mean.

use std::time::Duration;

use crate::settings::Elasticity;

/// After a change, so much time passes before what is seen counts.
pub(crate) const SETTLE: Duration = Duration::from_millis(200);

/// What the controller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrewChange {
    Stay,
    /// Add a Worker.
    Grow,
    /// Retire the Worker at this index of what was told.
    Retire(usize),
}

/// The controller's memory.
#[derive(Debug)]
pub(crate) struct Controller {
    wanted: Elasticity,
    /// Time for which another Worker was wanted, less the time for which it was not.
    over: Duration,
    /// Time for which one fewer would have done, likewise.
    under: Duration,
    /// Time since the last change.
    settled: Duration,
    /// The last change, until the evidence for it and against it is gone.
    last: CrewChange,
    /// Another Worker is wanted, and there are as many as there may be.
    short: bool,
}

impl Controller {
    pub(crate) fn new(wanted: Elasticity) -> Self {
        let min = wanted.min.max(1);
        Controller {
            wanted: Elasticity {
                min,
                max: wanted.most(),
                // Without a gap between the two, a load could want both.
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

    /// Whether another Worker was wanted at the last tick and there may be no more.
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// Judges the tick that has just ended: how long it was, and each Worker's busy ratio in it.
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

        // After a change for the same reason, the reason is known to last: what counts is whether it
        // still does now that the change has settled.
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

/// How long Workers must be short before it is said.
const SHORT_FOR: Duration = Duration::from_secs(5);
/// How long nothing more is said of it.
const SHORT_AGAIN: Duration = Duration::from_secs(60);

/// Decides when it is worth a line in the log that there are as many Workers as there may be and all
/// are busy.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Time for which Workers were short, less the time for which they were not.
    lasted: Duration,
    /// Time since it was said.
    said: Option<Duration>,
}

impl Shortage {
    /// Judges the tick that has just ended; true when it is to be said.
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

/// A ratio as it can be; what cannot be is taken for idle.
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

/// The index of the least busy Worker; of the youngest of those that are equal.
fn least(busy: &[f64]) -> usize {
    let all = busy.iter().enumerate();
    all.min_by(|(a, x), (b, y)| sane(**x).total_cmp(&sane(**y)).then(b.cmp(a)))
        .map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests;
