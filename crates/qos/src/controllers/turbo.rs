//! Quota turbo: a group that is throttled gets more quota while the node has processor time to spare.
//!
//! The formulae are those of openEuler's rubik (quotaTurbo, event driver). Some things are stricter here. Quota that was
//! granted and is not used yet counts as used, so that grants which are used at the same time cannot drive the node
//! over the alarm mark. And [`Mode::Predictive`] does not wait for throttling, which the kernel counts only at the end of
//! a period: it grants quota when a group uses nearly all that it has.

mod budget;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use self::budget::Budget;
use crate::cgroup::CpuCounters;

/// How throttling is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By the kernel's count of throttled periods.
    Reactive,
    /// By the time that a group uses, too.
    Predictive,
}

/// Settings. Marks are use of all processors in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How throttling is found out.
    pub mode: Mode,
    /// From here on quota is taken back slowly.
    pub high: f64,
    /// From here on quota is taken back at once; grants never go beyond it.
    pub alarm: f64,
    /// Most that one step grants, in percent of the node's processors.
    pub step: f64,
}

impl Settings {
    /// The published marks: 60 and 80 percent. A step grants at most 1 percent of the node, with prediction 10.
    pub fn new(mode: Mode) -> Self {
        Settings {
            mode,
            high: 60.0,
            alarm: 80.0,
            step: match mode {
                Mode::Reactive => 1.0,
                Mode::Predictive => 10.0,
            },
        }
    }
}

/// A group as it is now.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Period of the quota, in microseconds.
    pub period_us: u64,
    /// The quota in force, in microseconds for each period.
    pub quota_us: u64,
    /// The quota without turbo.
    pub origin_us: u64,
    /// The group's counters.
    pub counters: CpuCounters,
}

/// The node as it is now.
#[derive(Debug, Clone, Copy)]
pub struct NodeSample {
    /// Time since any fixed moment.
    pub at: Duration,
    /// Use of all processors since the last sample, in percent.
    pub used: f64,
    /// Number of processors.
    pub processors: f64,
}

/// Part of a quota above its origin that a step of the slow fallback takes at most.
const SLOW_PART: f64 = 0.1;
/// Time without throttling after which a group's grant may come back slowly. Without it, a group that needs its grant
/// would lose and regain a little of it in turns.
const CALM: Duration = Duration::from_secs(10);
/// What is granted is a multiple of this part of the period: less is not worth a write.
const LEAST: f64 = 0.01;
/// Time over which the node's use must be steady for grants.
const WINDOW: Duration = Duration::from_secs(60);
/// Largest difference of uses within the window, in percent, for grants.
const MAX_SWING: f64 = 10.0;
/// Least distance of the use from the alarm mark, in percent, for grants.
const MIN_DISTANCE: f64 = 1.0;
/// Use, in percent, from which on it is not known how much more work there is.
const SATURATED: f64 = 99.0;
/// Part of the quota whose use predicts throttling.
const NEAR: f64 = 0.85;
/// Quota that is granted by prediction, as a multiple of the use.
const AHEAD: f64 = 1.25;

/// The controller of all groups that asked for turbo. `K` names a group.
#[derive(Debug)]
pub struct Turbo<K> {
    settings: Settings,
    groups: BTreeMap<K, Known>,
    /// Uses of the node within [`WINDOW`], oldest first.
    uses: VecDeque<(Duration, f64)>,
}

/// What is remembered of a group.
#[derive(Debug)]
struct Known {
    at: Duration,
    counters: CpuCounters,
    throttled_at: Duration,
    origin_us: u64,
    budget: Budget,
}

/// A group in a step.
struct Member<'s> {
    sample: &'s Sample,
    /// Processors used since the last sample.
    used: f64,
    /// Processors that it lacked, by throttling.
    lacked: f64,
    /// It was not throttled for some time.
    is_calm: bool,
    /// Change of the quota, in processors.
    change: f64,
}

impl Member<'_> {
    /// A quota in processors.
    fn processors(&self, quota_us: u64) -> f64 {
        quota_us as f64 / self.sample.period_us as f64
    }

    fn quota(&self) -> f64 {
        self.processors(self.sample.quota_us)
    }

    fn origin(&self) -> f64 {
        self.processors(self.sample.origin_us)
    }

    /// Processors that were granted.
    fn extra(&self) -> f64 {
        (self.quota() - self.origin()).max(0.0)
    }

    /// Processors that were granted and are not used.
    fn unused(&self) -> f64 {
        (self.quota() - self.used.max(self.origin())).max(0.0)
    }
}

impl<K: Ord + Clone> Turbo<K> {
    /// Knows no group yet.
    pub fn new(settings: Settings) -> Self {
        Turbo {
            settings,
            groups: BTreeMap::new(),
            uses: VecDeque::new(),
        }
    }

    /// Takes a sample of the node and of each group, and returns the quota that each should have, in microseconds.
    ///
    /// A group that is not in `samples` is forgotten. One whose origin is 0, or not below all processors, keeps its
    /// quota. Called every 100 ms; a step of at most 10 s is right, too.
    pub fn step(&mut self, node: NodeSample, samples: &BTreeMap<K, Sample>) -> BTreeMap<K, u64> {
        self.groups.retain(|key, _| samples.contains_key(key));
        let may_grant = self.is_steady(node);
        let able = samples.iter().filter(|(_, sample)| {
            let origin = sample.origin_us as f64 / sample.period_us.max(1) as f64;
            origin > 0.0 && origin < node.processors && sample.period_us > 0
        });
        let mut groups: BTreeMap<&K, Member<'_>> = able
            .map(|(key, sample)| (key, self.group(key, node.at, sample)))
            .collect();
        if node.used >= self.settings.high {
            self.take_slowly(node, &mut groups);
        }
        if node.used >= self.settings.alarm {
            self.take_at_once(node, &mut groups);
        }
        if may_grant {
            self.grant(node, &mut groups);
        }
        let decided = groups.into_iter().map(|(key, group)| {
            let known = self.groups.get(key);
            let most = known.map_or(u64::MAX, |known| known.budget.most_us(group.sample));
            let period = group.sample.period_us as f64;
            let change = match group.change < 0.0 {
                true => group.change.min(-LEAST),
                false => group.change,
            };
            // Whole microseconds; a negative number is far below the origin.
            let wanted = ((group.quota() + change) * period).round() as u64;
            let extra = wanted.min(most).saturating_sub(group.sample.origin_us);
            let step = ((period * LEAST) as u64).max(1);
            (key.clone(), group.sample.origin_us + extra / step * step)
        });
        decided.collect()
    }

    /// Whether the node's use was steady and is far enough from the alarm mark.
    fn is_steady(&mut self, node: NodeSample) -> bool {
        self.uses.push_back((node.at, node.used));
        let is_old = |(at, _): &(Duration, f64)| node.at.saturating_sub(*at) > WINDOW;
        while self.uses.front().is_some_and(is_old) {
            self.uses.pop_front();
        }
        let uses = self.uses.iter().map(|(_, used)| *used);
        let (least, most) = uses.fold((f64::MAX, f64::MIN), |(least, most), used| {
            (least.min(used), most.max(used))
        });
        // Prediction leaves room for every grant, so it needs no steady past.
        let is_steady = self.settings.mode == Mode::Predictive || most - least <= MAX_SWING;
        is_steady && self.settings.alarm - node.used >= MIN_DISTANCE
    }

    /// Compares a sample with the last one of its group, and remembers it.
    fn group<'s>(&mut self, key: &K, at: Duration, sample: &'s Sample) -> Member<'s> {
        let now = sample.counters;
        let known = self.groups.entry(key.clone()).or_insert_with(|| Known {
            at,
            counters: now,
            throttled_at: Duration::ZERO,
            origin_us: sample.origin_us,
            budget: Budget::default(),
        });
        if known.origin_us != sample.origin_us {
            known.origin_us = sample.origin_us;
            known.budget = Budget::default();
        }
        let then = known.counters;
        let elapsed_us = at.saturating_sub(known.at).as_micros() as f64;
        let throttled = now.throttled.saturating_sub(then.throttled);
        if throttled > 0 {
            known.throttled_at = at;
        }
        let lacked_us = now.throttled_us.saturating_sub(then.throttled_us);
        known.budget.add(at, now.used_us);
        (known.at, known.counters) = (at, now);
        Member {
            sample,
            used: match elapsed_us > 0.0 {
                true => now.used_us.saturating_sub(then.used_us) as f64 / elapsed_us,
                false => 0.0,
            },
            lacked: match throttled {
                0 => 0.0,
                _ => lacked_us as f64 / throttled as f64 / sample.period_us as f64,
            },
            is_calm: at.saturating_sub(known.throttled_at) > CALM,
            change: 0.0,
        }
    }

    /// Slow fallback: above the high mark, groups that were not throttled for a while lose a part of what they were granted.
    fn take_slowly(&self, node: NodeSample, groups: &mut BTreeMap<&K, Member<'_>>) {
        let Settings { high, alarm, .. } = self.settings;
        let part = (node.used - high) / (alarm - high) * SLOW_PART;
        for group in groups.values_mut().filter(|group| group.is_calm) {
            group.change -= part * group.extra();
        }
    }

    /// Fast fallback: from the alarm mark on, what the node has too much is taken from all that were granted more.
    fn take_at_once(&self, node: NodeSample, groups: &mut BTreeMap<&K, Member<'_>>) {
        let too_much = (node.used - self.settings.alarm) / 100.0 * node.processors;
        // What is granted and not used yet comes back first: it does not make the node slower, and it is not missed.
        let granted: f64 = groups.values().map(Member::extra).sum();
        if granted > 0.0 {
            let unused: f64 = groups.values().map(Member::unused).sum();
            let taken = match node.used < SATURATED {
                true => (too_much + unused).min(granted),
                false => granted,
            };
            for group in groups.values_mut() {
                group.change -= taken * group.extra() / granted;
            }
        }
    }

    /// Elevates groups that lack time, together by at most a step, and by no more than is left below the alarm mark.
    fn grant(&self, node: NodeSample, groups: &mut BTreeMap<&K, Member<'_>>) {
        let wish = |group: &Member<'_>| match self.settings.mode {
            Mode::Predictive if group.used >= NEAR * group.quota() => {
                (group.used * AHEAD - group.quota()).max(group.lacked)
            }
            _ => group.lacked,
        };
        let wishes: f64 = groups.values().map(wish).sum();
        let granted: f64 = groups.values().map(Member::unused).sum();
        let left = (self.settings.alarm - node.used) / 100.0 * node.processors - granted;
        let step = self.settings.step / 100.0 * node.processors;
        let given = wishes.min(step).min(left);
        if wishes <= 0.0 || given <= 0.0 {
            return;
        }
        let mut left = left;
        for group in groups.values_mut().filter(|group| wish(group) > 0.0) {
            let grant = (given / wishes * wish(group)).max(LEAST);
            if grant <= left {
                group.change += grant;
                left -= grant;
            }
        }
    }
}
