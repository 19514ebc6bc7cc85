//! I/O weight: the groups of offline pods get the least one, and yield the disk to online pods.
//!
//! Which files a group has depends on the kernel, on the schedulers that are loaded, and with version 2 on the groups above
//! it. So each group is looked at, again every minute, and what it lacks is said once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::Class;

use super::Agent;
use super::left_alone::PAUSE;
use super::plan::step;
use crate::arbiter::journal::Store;
use crate::arbiter::{Change, Key};
use crate::cgroup::{ControlGroup, Groups, Knob};
use crate::now::Now;

#[cfg(test)]
mod tests;

/// The weights that a group may have. Which one counts depends on the disk, so it gets both.
const WEIGHTS: [Knob; 2] = [Knob::BfqWeight, Knob::IoWeight];

/// What is known of weights.
#[derive(Debug, Default)]
pub(super) struct IoWeights {
    groups: BTreeMap<ControlGroup, Found>,
    /// Whether a disk uses weights, and until when that is taken for granted.
    used: Option<(bool, Duration)>,
    /// What was said in the log: that a group has no weight, and that no disk uses them.
    said: (bool, bool),
}

/// What was found at a group.
#[derive(Debug)]
struct Found {
    inode: u64,
    /// When it is looked at again.
    until: Duration,
    weights: Vec<Knob>,
    /// Why it has none.
    missing: Option<String>,
}

impl<S: Store> Agent<S> {
    /// Sees to it that all offline pods have the least weight, and returns the knobs that are to stay so.
    pub(super) fn io_weights(&mut self, now: Now) -> BTreeSet<Key> {
        let mut wanted = BTreeSet::new();
        if !self.settings.io {
            return wanted;
        }
        let pods = self.offline_pods();
        let pods: Vec<_> = pods
            .map(|pod| (pod.name.clone(), pod.group.clone()))
            .collect();
        let there: BTreeSet<&ControlGroup> = pods.iter().map(|(_, group)| group).collect();
        self.io.groups.retain(|group, _| there.contains(group));
        for (pod, group) in &pods {
            for knob in self.weights_of(pod, group, now) {
                let least = self.arbiter.groups().least_weight(knob);
                let step = step(group, knob, least);
                wanted.insert(step.key.clone());
                // What another program has written is given up by now, so what is held is there.
                let held = self.arbiter.held().get(&step.key);
                if held.is_some_and(|held| held.ours == [least]) {
                    continue;
                }
                let change = Change {
                    pod: pod.clone(),
                    class: Class::Offline,
                    why: "offline: it yields the disk to online pods".to_owned(),
                    steps: vec![step],
                };
                self.apply(&change, now);
            }
        }
        if !wanted.is_empty() {
            self.look_at_disks(now);
        }
        wanted
    }

    /// Why offline pods share the disk like all others, if some do.
    pub(super) fn io_lack(&self) -> Option<String> {
        let without = self.io.groups.values();
        let mut without = without.filter_map(|found| found.missing.as_deref());
        let first = without.next();
        let Some(first) = first else {
            let is_unused = matches!(self.io.used, Some((false, _)));
            return is_unused.then(|| UNUSED.to_owned());
        };
        Some(match without.count() {
            0 => first.to_owned(),
            more => format!("{first}; {more} more"),
        })
    }

    /// The weights that a group has.
    fn weights_of(&mut self, pod: &str, group: &ControlGroup, now: Now) -> Vec<Knob> {
        let Ok(inode) = self.arbiter.groups().inode_of(group) else {
            return Vec::new();
        };
        let known = self.io.groups.get(group);
        if let Some(found) = known
            && found.inode == inode
            && now.since < found.until
        {
            return found.weights.clone();
        }
        let mut weights = Vec::new();
        let mut missing = None;
        for knob in WEIGHTS {
            match self.arbiter.groups().read(group, knob) {
                Err(error) if is_missing(&error) => {
                    missing.get_or_insert_with(|| format!("{pod} has no I/O weight: {error}"));
                }
                // What is wrong otherwise is told when it is changed.
                Ok(_) | Err(_) => weights.push(knob),
            }
        }
        let missing = missing.filter(|_| weights.is_empty());
        if let Some(why) = &missing
            && !std::mem::replace(&mut self.io.said.0, true)
        {
            tracing::warn!(
                "{why}: it shares the disk like all others, as do other pods of that kind (see I/O weight in docs/qos.md)"
            );
        }
        let found = Found {
            inode,
            until: now.since + PAUSE,
            weights: weights.clone(),
            missing,
        };
        self.io.groups.insert(group.clone(), found);
        weights
    }

    /// Finds out whether a disk uses weights.
    fn look_at_disks(&mut self, now: Now) {
        if matches!(self.io.used, Some((_, until)) if now.since < until) {
            return;
        }
        let is_used = self.arbiter.groups().are_weights_used();
        self.io.used = Some((is_used, now.since + PAUSE));
        if !is_used && !std::mem::replace(&mut self.io.said.1, true) {
            tracing::info!("{UNUSED}");
        }
    }
}

const UNUSED: &str = "I/O weights are set, but no disk uses them: none has the scheduler bfq, or a cost model (io.cost.qos of version 2)";

/// Whether the kernel has no such file, or no such group in the hierarchy of disks.
fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotFound, Unsupported};
    matches!(error.kind(), NotFound | Unsupported)
}
