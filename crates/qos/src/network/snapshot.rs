//! What is done to the network now, for metrics and status.

use std::collections::BTreeMap;

use super::Network;
use super::held::{Held, Key};
use super::kernel::Kernel;
use crate::arbiter::journal::Store;
use crate::counts::Counts;
use crate::remarks::NotDone;

/// Most remarks on interfaces.
const MAX_NOT_DONE: usize = 20;

/// What is done to the network at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// What was changed and refused.
    pub counts: Counts,
    /// How many parts are changed, by class and name.
    pub changes: BTreeMap<(&'static str, &'static str), u64>,
    /// The interfaces of the node where offline pods are limited.
    pub interfaces: Vec<InterfaceRates>,
    /// What is not done, and why: 20 at most, the rest is in the log.
    pub not_done: Vec<NotDone>,
}

/// An interface of the node.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceRates {
    /// Its name.
    pub name: String,
    /// What offline pods may send, in bytes per second.
    pub limit: u64,
    /// What online pods sent in the last 100 ms, in bytes per second.
    pub online: f64,
}

impl<K: Kernel, S: Store<Key, Held>> Network<K, S> {
    /// Snapshots at what it does, and changes nothing.
    pub fn snapshot(&self) -> Snapshot {
        let mut changes = BTreeMap::new();
        for (key, held) in self.keeper.held() {
            let name = (held.class.as_str(), key.part.as_str());
            *changes.entry(name).or_default() += 1;
        }
        let interfaces = self.uplinks.iter().map(|uplink| InterfaceRates {
            name: uplink.link.name.clone(),
            limit: uplink.rate,
            online: uplink.sending.online_rate(),
        });
        let missing = self.missing.iter().map(|(name, why)| NotDone {
            setting: "qos.network.interfaces".to_owned(),
            why: format!("{name}: {why}"),
        });
        let left_alone = self.left_alone.iter().map(|(key, pause)| NotDone {
            setting: key.to_string(),
            why: format!("{}; tried again in a minute", pause.why),
        });
        Snapshot {
            counts: self.counts,
            changes,
            interfaces: interfaces.collect(),
            not_done: missing.chain(left_alone).take(MAX_NOT_DONE).collect(),
        }
    }
}
