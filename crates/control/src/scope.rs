//! What a node may have of Services and endpoints that names what it uses.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;

use foldhash::HashSet;
use heddle_xds::delta::Name;
use heddle_xds::resources::Type;

use super::catalog::{Catalog, Own};
use super::changed::{Changed, ChangedService, Fingerprint};
use super::index::Index;

#[cfg(test)]
mod tests;

/// Names above this number are not kept apart: then the whole scope is found anew.
const MAX_TOUCHED: usize = if cfg!(test) { 4 } else { 1_000 };

/// The Services that one node uses, with what belongs to them. It has all endpoints of those.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Addresses that the node uses.
    addresses: BTreeSet<IpAddr>,
    pub(super) services: BTreeSet<Name>,
    /// One of each Service, in no order.
    fingerprints: Vec<Fingerprint>,
    /// The nodes on which any of that is.
    pub(super) nodes: BTreeSet<Name>,
    /// The number of Services when the sets were last packed.
    packed: usize,
}

/// What a node has named, or has ceased to name, since its scope was found.
#[derive(Debug)]
pub(super) enum Touched {
    All,
    These(BTreeSet<(Type, Name)>),
}

impl Touched {
    /// Nothing.
    pub(super) const NONE: Touched = Touched::These(BTreeSet::new());

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Touched::These(names) if names.is_empty())
    }

    pub(super) fn add<'n>(&mut self, kind: Type, names: impl Iterator<Item = &'n Name>) {
        if let Touched::These(touched) = self {
            touched.extend(names.map(|name| (kind, name.clone())));
            if touched.len() > MAX_TOUCHED {
                *self = Touched::All;
            }
        }
    }
}

/// What a scope has more than before.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) services: Vec<Name>,
    pub(super) nodes: Vec<Name>,
}

impl Scope {
    /// For a node with these workloads, that subscribes to these Services and addresses.
    pub(super) fn new<'n>(
        catalog: &'n Catalog,
        own: &'n Own,
        services: impl Iterator<Item = &'n Name>,
        addresses: impl Iterator<Item = &'n Name>,
    ) -> Self {
        let mut scope = Scope::default();
        let mut added = Added::default();
        let index = catalog.index();
        let used = own.services.iter().chain(services);
        scope.reach(index, used.cloned().collect(), &mut added);
        for address in addresses.filter_map(address) {
            scope.reach_address(index, address, &mut added);
        }
        scope.pack();
        scope
    }

    /// Goes on with what the node names now of these (`true`), or does not name any more (`false`). It takes time for these
    /// names only. The catalog must not have changed for the scope since. Returns what is new in the scope; `None` if it
    /// has to be found anew, because what the node has ceased to name exists: something else that it uses may belong to it
    /// as well.
    pub(super) fn follow<'n>(
        &mut self,
        catalog: &Catalog,
        touched: impl Iterator<Item = (Type, &'n Name, bool)> + Clone,
    ) -> Option<Added> {
        let index = catalog.index();
        let mut left = touched.clone().filter(|(_, _, is_named)| !is_named);
        if left.any(|(kind, name, _)| exists(index, kind, name)) {
            return None;
        }
        let mut added = Added::default();
        for (kind, name, is_named) in touched {
            match (kind, is_named) {
                (Type::Service, true) => self.reach(index, vec![name.clone()], &mut added),
                // Nothing belongs to it, and no route leads to it.
                (Type::Service, false) => self.leave(name),
                (Type::Address, true) => {
                    let address = address(name).into_iter();
                    address.for_each(|one| self.reach_address(index, one, &mut added));
                }
                (Type::Address, false) => {
                    let address = address(name);
                    address.map(|address| self.addresses.remove(&address));
                }
                // Of no other type does a name make a difference.
                _ => {}
            }
        }
        if self.services.len() > 2 * self.packed {
            self.pack();
        }
        Some(added)
    }

    /// Adds Services, with what belongs to them.
    fn reach(&mut self, index: &Index, mut used: Vec<Name>, added: &mut Added) {
        // A node can use each Service that it has, so what its routes lead to comes along as well.
        while let Some(service) = used.pop() {
            if !self.services.insert(service.clone()) {
                continue;
            }
            self.fingerprints.push(Fingerprint::of(&service));
            // One that does not exist may come.
            if let Some(bound) = index.service(&service) {
                used.extend(bound.backends.iter().cloned());
                self.reach_nodes(bound.nodes.iter(), added);
            }
            added.services.push(service);
        }
    }

    fn reach_address(&mut self, index: &Index, address: IpAddr, added: &mut Added) {
        if self.addresses.insert(address) {
            self.reach(index, index.at(address).cloned().collect(), added);
            self.reach_nodes(index.nodes_at(address), added);
        }
    }

    fn reach_nodes<'n>(&mut self, nodes: impl Iterator<Item = &'n Name>, added: &mut Added) {
        for node in nodes {
            if self.nodes.insert(node.clone()) {
                added.nodes.push(node.clone());
            }
        }
    }

    fn leave(&mut self, service: &Name) {
        if self.services.remove(service) {
            let fingerprint = Fingerprint::of(service);
            let at = self.fingerprints.iter().position(|one| *one == fingerprint);
            at.map(|at| self.fingerprints.swap_remove(at));
        }
    }

    /// There is one scope for each node: sets that are built as a whole are packed.
    fn pack(&mut self) {
        self.packed = self.services.len();
        self.services = mem::take(&mut self.services).into_iter().collect();
        self.nodes = mem::take(&mut self.nodes).into_iter().collect();
        self.fingerprints.shrink_to_fit();
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

/// Whether something has that name or address, to which others may belong.
pub(super) fn exists(index: &Index, kind: Type, name: &Name) -> bool {
    match kind {
        Type::Service => index.service(name).is_some(),
        Type::Address => address(name).is_some_and(|address| {
            let (mut services, mut nodes) = (index.at(address), index.nodes_at(address));
            services.next().is_some() || nodes.next().is_some()
        }),
        _ => false,
    }
}

/// The address of that name, which only its usual form is a name of.
fn address(name: &Name) -> Option<IpAddr> {
    let address: IpAddr = name.parse().ok()?;
    (address.to_string() == **name).then_some(address)
}
