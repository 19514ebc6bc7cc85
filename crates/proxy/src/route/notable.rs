//! The ports that are looked at again for each snapshot, so that all others need not be.

use std::collections::BTreeSet;

use super::names::PortIndex;
use super::port::PortEntry;

/// Indices of ports.
#[derive(Debug, Clone, Default)]
pub(super) struct Notable {
    /// With rules, which lead to other ports.
    pub(super) with_rules: BTreeSet<PortIndex>,
    /// With endpoints that are workloads of this node.
    pub(super) with_workloads: BTreeSet<PortIndex>,
    /// With endpoints that cannot be reached.
    pub(super) unreached: BTreeSet<PortIndex>,
}

impl Notable {
    /// Another port has this index now, or another version of the same.
    pub(super) fn note(&mut self, index: PortIndex, port: &PortEntry) {
        let endpoints = port.written().into_iter();
        let mut endpoints = endpoints.flat_map(|(_, port)| &port.endpoints);
        let sets = [
            (&mut self.with_rules, !port.rules.is_empty()),
            (
                &mut self.with_workloads,
                endpoints.any(|one| one.workload.is_some()),
            ),
            (&mut self.unreached, !port.unreached.is_empty()),
        ];
        for (set, has) in sets {
            match has {
                true => set.insert(index),
                false => set.remove(&index),
            };
        }
    }
}
