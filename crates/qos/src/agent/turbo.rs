//! Quota turbo for the pods that asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::Class;

use super::node::SHORTEST;
use super::plan::step;
use super::{Agent, Now, Pod};
use crate::arbiter::journal::Store;
use crate::arbiter::{Change, Key};
use crate::cgroup::{ControlGroup, CpuFiles, Knob, System, Value};
use crate::controllers::turbo::{NodeSample, Sample, Settings, Turbo};

/// The pods with turbo, and the controller of their groups.
#[derive(Debug)]
pub(super) struct TurboPods {
    controller: Option<Turbo<ControlGroup>>,
    pods: Vec<TurboPod>,
    /// Counters of the pods' leaves.
    files: BTreeMap<ControlGroup, CpuFiles>,
    sampled: Option<Duration>,
}

#[derive(Debug)]
struct TurboPod {
    name: String,
    class: Class,
    /// Groups with a quota: its containers', or its own when it has none.
    leaves: Vec<Leaf>,
    /// Its own group, when that is not a leaf and has a quota.
    parent: Option<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    group: ControlGroup,
    period_us: u64,
    origin_us: u64,
    quota_us: u64,
}

impl Leaf {
    /// Quota beyond its own, in processors.
    fn granted(&self) -> f64 {
        (self.quota_us as f64 - self.origin_us as f64) / self.period_us as f64
    }
}

impl TurboPods {
    pub(super) fn new(settings: Option<Settings>) -> Self {
        TurboPods {
            controller: settings.map(Turbo::new),
            pods: Vec::new(),
            files: BTreeMap::new(),
            sampled: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Quota beyond the groups' own, in processors; `None` when turbo is off.
    pub(super) fn granted(&self) -> Option<f64> {
        self.controller.as_ref()?;
        let leaves = self.pods.iter().flat_map(|pod| &pod.leaves);
        // The sum of none would be -0.
        Some(leaves.map(Leaf::granted).fold(0.0, |all, one| all + one))
    }

    /// Samples of all leaves whose counters can be read.
    fn samples(&mut self, groups: &System) -> BTreeMap<ControlGroup, Sample> {
        let leaves = self.pods.iter().flat_map(|pod| &pod.leaves);
        let mut files = std::mem::take(&mut self.files);
        let mut samples = BTreeMap::new();
        for leaf in leaves {
            let open = files.remove(&leaf.group);
            // Files of a group that is gone are not read again: another group may have its path.
            let read = open.and_then(|open| Some((open.read().ok()?, open)));
            let read = read.or_else(|| {
                let open = groups.cpu_files(&leaf.group).ok()?;
                Some((open.read().ok()?, open))
            });
            let Some((counters, open)) = read else {
                continue;
            };
            self.files.insert(leaf.group.clone(), open);
            let sample = Sample {
                period_us: leaf.period_us,
                quota_us: leaf.quota_us,
                origin_us: leaf.origin_us,
                counters,
            };
            samples.insert(leaf.group.clone(), sample);
        }
        samples
    }
}

impl<S: Store> Agent<S> {
    /// Looks at the groups of pods with turbo again, and returns the knobs that may differ from their origin. A pod whose
    /// limit has ended in this sweep gets its own quotas first, and has turbo from the next sweep on.
    pub(super) fn refresh_turbo<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p Pod>,
    ) -> BTreeSet<Key> {
        let wanted = pods.filter(|pod| pod.qos.quota_turbo);
        self.turbo.pods = match self.turbo.controller {
            Some(_) => wanted.filter_map(|pod| self.turbo_pod(pod)).collect(),
            None => Vec::new(),
        };
        let key = |group: &ControlGroup| Key {
            group: group.clone(),
            knob: Knob::CpuQuota,
        };
        let groups = self
            .turbo
            .pods
            .iter()
            .flat_map(|pod| pod.leaves.iter().chain(&pod.parent).map(|leaf| &leaf.group));
        groups.map(key).collect()
    }

    fn turbo_pod(&mut self, pod: &Pod) -> Option<TurboPod> {
        if self.latency.limits(&pod.group) {
            return None;
        }
        let mut limited = self.containers(&pod.group);
        limited.retain(|container| self.origin(container).is_some());
        let leaf = |group: ControlGroup| {
            let key = Key {
                group: group.clone(),
                knob: Knob::CpuQuota,
            };
            if self.left_alone.has(&key) {
                return None;
            }
            Some(Leaf {
                origin_us: self.origin(&group)?,
                quota_us: self.arbiter.value(&key).ok()?.amount()?,
                period_us: self.arbiter.groups().cpu_period_us(&group).ok()?,
                group,
            })
        };
        let (leaves, parent): (Vec<Leaf>, _) = match limited.is_empty() {
            true => (leaf(pod.group.clone()).into_iter().collect(), None),
            false => (
                limited.into_iter().filter_map(leaf).collect(),
                leaf(pod.group.clone()),
            ),
        };
        // The latency loop has limited it until now: turbo, which never goes below the origin, would keep such a quota.
        let is_low = |leaf: &Leaf| leaf.quota_us < leaf.origin_us;
        if leaves.iter().chain(&parent).any(is_low) {
            return None;
        }
        (!leaves.is_empty()).then(|| TurboPod {
            name: pod.name.clone(),
            class: self.known_class(pod),
            leaves,
            parent,
        })
    }

    /// Lets quotas follow their use.
    pub(super) fn turbo(&mut self, now: Now) {
        let last = self.turbo.sampled;
        if last.is_some_and(|last| now.since.saturating_sub(last) < SHORTEST) {
            return;
        }
        self.turbo.sampled = Some(now.since);
        let Ok(used) = self.node.used() else {
            return;
        };
        let node = NodeSample {
            at: now.since,
            used,
            processors: self.node.processors(),
        };
        let samples = self.turbo.samples(self.arbiter.groups());
        let Some(controller) = &mut self.turbo.controller else {
            return;
        };
        let decided = controller.step(node, &samples);
        let mut pods = std::mem::take(&mut self.turbo.pods);
        for pod in &mut pods {
            if let Some(change) = pod.change(&decided, used)
                && self.apply(&change, now)
            {
                pod.follow(&decided);
            }
        }
        self.turbo.pods = pods;
    }
}

impl TurboPod {
    /// The quotas of all its groups, if one of them changes.
    fn change(&self, decided: &BTreeMap<ControlGroup, u64>, used: f64) -> Option<Change> {
        let quota = |leaf: &Leaf| decided.get(&leaf.group).copied().unwrap_or(leaf.quota_us);
        if self.leaves.iter().all(|leaf| quota(leaf) == leaf.quota_us) {
            return None;
        }
        let mut steps = Vec::with_capacity(self.leaves.len() + 1);
        let mut granted = 0.0;
        for leaf in &self.leaves {
            steps.push(step(
                &leaf.group,
                Knob::CpuQuota,
                Value::Amount(quota(leaf)),
            ));
            granted += (quota(leaf) as f64 - leaf.origin_us as f64) / leaf.period_us as f64;
        }
        if let Some(parent) = &self.parent {
            // Whole microseconds.
            let more = (granted * parent.period_us as f64) as u64;
            let all = Value::Amount(parent.origin_us.saturating_add(more));
            steps.push(step(&parent.group, Knob::CpuQuota, all));
        }
        Some(Change {
            pod: self.name.clone(),
            class: self.class,
            why: format!("quota turbo: {granted:.2} processors more, the node is {used:.0} % busy"),
            steps,
        })
    }

    fn follow(&mut self, decided: &BTreeMap<ControlGroup, u64>) {
        for leaf in &mut self.leaves {
            if let Some(quota) = decided.get(&leaf.group) {
                leaf.quota_us = *quota;
            }
        }
    }
}
