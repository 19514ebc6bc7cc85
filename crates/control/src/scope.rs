//! What a node may have of Services and endpoints that names what it uses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use foldhash::HashSet;
use heddle_xds::delta::Name;

use super::catalog::{Catalog, Own};
use super::changed::{Changed, ChangedService, Fingerprint};

/// The Services that one node uses, with what belongs to them. It has all endpoints of those.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Addresses that the node uses.
    addresses: BTreeSet<IpAddr>,
    pub(super) services: BTreeSet<Name>,
    /// Of the Services, each once.
    fingerprints: Box<[Fingerprint]>,
    /// The nodes on which any of that is.
    pub(super) nodes: BTreeSet<Name>,
}

impl Scope {
    /// For a node with these workloads, that subscribes to these Services and addresses.
    pub(super) fn new<'n>(
        catalog: &'n Catalog,
        own: &'n Own,
        services: impl Iterator<Item = &'n Name>,
        addresses: impl Iterator<Item = &'n Name>,
    ) -> Self {
        let mut scope = Scope {
            addresses: addresses.filter_map(|name| name.parse().ok()).collect(),
            ..Scope::default()
        };
        let index = catalog.index();
        let at = scope
            .addresses
            .iter()
            .flat_map(|address| index.at(*address));
        let used = own.services.iter().chain(services).chain(at);
        let mut used: Vec<Name> = used.cloned().collect();
        // A node can use each Service that it has, so what its routes lead to comes along as well.
        while let Some(service) = used.pop() {
            if !scope.services.insert(service.clone()) {
                continue;
            }
            // One that does not exist may come.
            if let Some(bound) = index.service(&service) {
                used.extend(bound.backends.iter().cloned());
                scope.nodes.extend(bound.nodes.iter().cloned());
            }
        }
        let addresses = scope.addresses.iter();
        let nodes = addresses.flat_map(|address| index.nodes_at(*address));
        scope.nodes.extend(nodes.cloned());
        // There is one for each node: sets that are built as a whole are packed.
        scope.services = scope.services.into_iter().collect();
        scope.nodes = scope.nodes.into_iter().collect();
        let names = scope.services.iter();
        let fingerprints: BTreeSet<_> = names.map(|name| Fingerprint::of(name)).collect();
        scope.fingerprints = fingerprints.into_iter().collect();
        scope
    }

    /// Whether a change of the mesh may change the scope.
    pub(super) fn depends_on(&self, changed: &Changed) -> bool {
        // Its routes may lead elsewhere. Endpoints come and go on the same nodes without a change of the scope, unless one
        // is what the node uses.
        let is_other = |service: &ChangedService| service.has_moved || service.has_itself();
        self.has_one_of(&changed.addresses) || self.used_of(changed).any(is_other)
    }

    /// What has changed of the Services that the node uses.
    pub(super) fn used_of<'c>(
        &'c self,
        changed: &'c Changed,
    ) -> impl Iterator<Item = &'c ChangedService> {
        changed.services.of(&self.services, &self.fingerprints)
    }

    /// Whether the node uses one of these addresses.
    pub(super) fn has_one_of(&self, addresses: &HashSet<IpAddr>) -> bool {
        match self.addresses.len() < addresses.len() {
            true => self.addresses.iter().any(|one| addresses.contains(one)),
            false => addresses.iter().any(|one| self.addresses.contains(one)),
        }
    }
}
