//! What the agent does now, for metrics.

use std::collections::BTreeMap;

use heddle_model::Class;

use super::Agent;
use crate::arbiter::journal::Store;
use crate::counts::Counts;

/// What the agent does at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// What was written and refused.
    pub counts: Counts,
    /// How many settings are changed, by class and name.
    pub changes: BTreeMap<(&'static str, &'static str), u64>,
    /// Pods that are online.
    pub online: u64,
    /// Pods that are offline.
    pub offline: u64,
    /// Quota beyond the pods' own, in processors; `None` without turbo.
    pub turbo_cores: Option<f64>,
    /// Memory limit of each offline pod, in bytes; `None` where memory is left alone.
    pub memory_limit: Option<u64>,
    /// The level of the latency loop; `None` without an objective while nothing is limited.
    pub latency_level: Option<usize>,
    /// Evictions that were made.
    pub evictions: u64,
}

impl<S: Store> Agent<S> {
    /// Snapshots at what it does, and changes nothing.
    pub fn snapshot(&self) -> Snapshot {
        let mut changes = BTreeMap::new();
        for (key, held) in self.arbiter.held() {
            let name = (held.class.as_str(), key.knob.as_str());
            *changes.entry(name).or_default() += 1;
        }
        let is_offline = |pod: &&super::Pod| self.known_class(pod) == Class::Offline;
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let offline = self.pods.iter().filter(is_offline).count();
        Snapshot {
            counts: self.arbiter.counts(),
            changes,
            online: count(self.pods.len() - offline),
            offline: count(offline),
            turbo_cores: self.turbo.granted(),
            memory_limit: self.fssr.as_ref().map(super::Fssr::limit),
            latency_level: self.latency().map(|latency| latency.level),
            evictions: self.evictions.count(),
        }
    }
}
