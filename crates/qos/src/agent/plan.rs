//! What the groups of a pod should have.

use heddle_model::Class;

use super::{Agent, Pod};
use crate::arbiter::journal::Store;
use crate::arbiter::{Change, Key, Step};
use crate::cgroup::{ControlGroup, Knob, Value};
use crate::controllers::burst::bursts;

impl<S: Store> Agent<S> {
    /// The changes for a pod, apart from quota and memory, which follow samples.
    pub(super) fn changes(&mut self, pod: &Pod, class: Class) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.settings.preemption && class == Class::Offline {
            let idle = step(&pod.group, Knob::CpuShare, Value::Idle);
            let is_ours = self.arbiter.held().contains_key(&idle.key);
            if !is_ours && matches!(self.arbiter.value(&idle.key), Ok(Value::Idle)) {
                let why = "cpu.idle was 1 before: it stays so when the agent stops. If an agent has left it, and its state \
                           folder is lost, write 0 to it";
                self.notes.pod("qos.preemption", &pod.name, why);
            }
            // Its containers are below this group, those that come later, too.
            changes.push(Change {
                pod: pod.name.clone(),
                class,
                why: "offline: it yields the processors to every online pod".to_owned(),
                steps: vec![idle],
            });
        }
        match pod.qos.quota_burst_us {
            Some(wish_us) if self.settings.burst && !self.latency.limits(&pod.group) => {
                changes.extend(self.burst(pod, class, wish_us));
            }
            _ => {}
        }
        changes
    }

    /// What its containers may save up.
    fn burst(&mut self, pod: &Pod, class: Class, wish_us: u64) -> Option<Change> {
        let containers = self.containers(&pod.group);
        let quotas: Vec<Option<u64>> = containers.iter().map(|group| self.origin(group)).collect();
        let (each, of_pod) = bursts(wish_us, &quotas, self.origin(&pod.group));
        let amounts = containers.iter().zip(each).chain([(&pod.group, of_pod)]);
        let amounts = amounts.filter(|(_, us)| *us > 0);
        let steps: Vec<Step> = amounts
            .map(|(group, us)| step(group, Knob::CpuBurst, Value::Amount(us)))
            .collect();
        (!steps.is_empty()).then(|| Change {
            pod: pod.name.clone(),
            class,
            why: format!("quota burst of {wish_us} us"),
            steps,
        })
    }

    /// Memory limits of all offline pods: never more than they have without us.
    pub(super) fn memory_changes(&self, limit: u64) -> Vec<Change> {
        let changes = self.offline_pods().filter_map(|pod| {
            let mut step = step(&pod.group, Knob::Memory, Value::whole_pages(limit));
            let own = self.arbiter.original(&step.key).ok()?;
            let is_lower = step.value < own;
            step.value = step.value.min(own);
            // A limit that is no longer below the pod's own is given back.
            (is_lower || self.arbiter.held().contains_key(&step.key)).then(|| Change {
                pod: pod.name.clone(),
                class: Class::Offline,
                why: "offline: its memory follows what is free".to_owned(),
                steps: vec![step],
            })
        });
        changes.collect()
    }

    /// The groups of a pod's containers.
    pub(super) fn containers(&mut self, pod: &ControlGroup) -> Vec<ControlGroup> {
        let found = self.containers.of(pod, self.arbiter.groups());
        found.map_or(Vec::new(), <[ControlGroup]>::to_vec)
    }

    /// The quota of a group without us, in microseconds.
    pub(super) fn origin(&self, group: &ControlGroup) -> Option<u64> {
        let key = Key {
            group: group.clone(),
            knob: Knob::CpuQuota,
        };
        self.arbiter.original(&key).ok()?.amount()
    }
}

pub(super) fn step(group: &ControlGroup, knob: Knob, value: Value) -> Step {
    Step {
        key: Key {
            group: group.clone(),
            knob,
        },
        value,
    }
}
