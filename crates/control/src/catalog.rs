//! What there is to tell nodes: every resource of the mesh, encoded once for all of them.
//!
//! ```text
//!   Mesh ──▶ Changes ── what differs ──▶ Catalog ──▶ every node's subscriptions
//!            (encodes that)              (quick, under a lock)
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use heddle_model::{NodeName, ServiceAccountName};
use heddle_xds::delta::{Name, Resources};
use heddle_xds::resources::Type;

use super::changed::Changed;
use super::index::{Bound, Index, service_of};

#[cfg(test)]
mod tests;

/// Sets of changes that are kept. A stream that is further behind compares the versions of all that its node may have.
const KEPT_CHANGES: usize = 256;
/// Names in one set of those, at most.
const KEPT_NAMES: usize = 10_000;

/// Every resource of the newest mesh.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    generation: u64,
    types: [HashMap<Name, Entry>; Type::ALL.len()],
    own: HashMap<NodeName, Arc<Own>>,
    /// What is for every node, where no workload names one.
    everyones: Option<Arc<Own>>,
    /// What is for a node without workloads: nothing.
    nothing: Arc<Own>,
    index: Index,
    /// The newest changes, the last one that of `generation`.
    changes: VecDeque<Arc<Changed>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) version: u64,
    pub(super) content: Bytes,
}

/// The names of resources that are for one node only: its workloads, and the policies that select them; the Services
/// that its workloads are endpoints of; and the accounts of those workloads.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) workloads: BTreeSet<Name>,
    pub(super) policies: BTreeSet<Name>,
    pub(super) services: BTreeSet<Name>,
    pub(super) accounts: BTreeSet<ServiceAccountName>,
    /// The node is a gateway, which judges by the policies of all workloads.
    pub(super) is_gateway: bool,
}

impl Own {
    /// Whether there is a workload.
    pub(super) fn has_workloads(&self) -> bool {
        !self.workloads.is_empty()
    }

    /// The names of this type, or `None` if resources of the type are for all nodes.
    pub(super) fn names(&self, kind: Type) -> Option<&BTreeSet<Name>> {
        match kind {
            Type::Workload | Type::Policy if self.is_gateway => None,
            Type::Workload => Some(&self.workloads),
            Type::Policy => Some(&self.policies),
            Type::MeshSettings | Type::Node | Type::Address | Type::Service | Type::Endpoint => {
                None
            }
        }
    }
}

/// What one mesh changes.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) changed: Changed,
    pub(super) set: Vec<(Type, Name, Entry)>,
    pub(super) removed: Vec<(Type, Name)>,
    /// What is for a node from now on; `None` for a node without workloads.
    pub(super) own: Vec<(NodeName, Option<Arc<Own>>)>,
    pub(super) everyones: Option<Arc<Own>>,
    /// The nodes whose workloads have an address.
    pub(super) holders: Vec<(IpAddr, Vec<Name>)>,
    /// What belongs to a Service; `None` for one that is gone.
    pub(super) bound: Vec<(Name, Option<Bound>)>,
}

impl Catalog {
    /// The number of meshes that were put up; 0 before the first.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Goes on to the next mesh, which takes time for what has changed only. Returns what has, unless that is too much to be
    /// kept.
    pub(super) fn apply(&mut self, mut change: Change) -> Option<Arc<Changed>> {
        self.generation += 1;
        for (kind, name, entry) in change.set {
            self.types[kind as usize].insert(name, entry);
        }
        for (kind, name) in change.removed {
            self.types[kind as usize].remove(&name);
        }
        let [before, now] = [&self.everyones, &change.everyones];
        // From one node that has everything to several, or back: then each gets another part.
        if before.as_ref().map(Arc::as_ptr) != now.as_ref().map(Arc::as_ptr) {
            change.changed.owners.is_any = true;
        }
        for (node, own) in change.own {
            match own {
                Some(own) => drop(self.own.insert(node, own)),
                None => drop(self.own.remove(&node)),
            }
        }
        self.everyones = change.everyones;
        for (address, nodes) in change.holders {
            self.index.put_address(address, nodes);
        }
        for (service, bound) in change.bound {
            self.index.put(service, bound);
        }
        self.keep(change.changed)
    }

    fn keep(&mut self, mut changed: Changed) -> Option<Arc<Changed>> {
        changed.count();
        if self.changes.len() == KEPT_CHANGES {
            self.changes.pop_front();
        }
        // Of so many, versions are compared as quickly: they are not kept for as long as many generations last.
        if changed.size() > KEPT_NAMES {
            self.changes.clear();
            return None;
        }
        let changed = Arc::new(changed);
        self.changes.push_back(Arc::clone(&changed));
        Some(changed)
    }

    /// What is for this node alone.
    pub(super) fn own(&self, node: &NodeName) -> Arc<Own> {
        let own = self.everyones.as_ref().or_else(|| self.own.get(node));
        Arc::clone(own.unwrap_or(&self.nothing))
    }

    /// The nodes with workloads, and how many each has.
    pub(super) fn placed(&self) -> BTreeMap<NodeName, usize> {
        let placed = self.own.iter();
        let placed = placed.map(|(node, own)| (node.clone(), own.workloads.len()));
        placed.collect()
    }

    /// What has changed since a generation; `None` when that is not known any more, or when there are more than `at_most`
    /// names to look up: of one change all that have changed, but `at_most_each`, since the fewer of those that have changed
    /// and those that a node uses are looked up in the others.
    pub(super) fn changes_since(
        &self,
        generation: u64,
        at_most_each: usize,
        at_most: usize,
    ) -> Option<impl Iterator<Item = &Changed> + Clone> {
        let behind = usize::try_from(self.generation.checked_sub(generation)?).ok()?;
        let first = self.changes.len().checked_sub(behind)?;
        let changes = self.changes.iter().skip(first).map(|changed| &**changed);
        let looked_up = changes
            .clone()
            .map(|changed| changed.size().min(at_most_each));
        (looked_up.sum::<usize>() <= at_most).then_some(changes)
    }

    /// Which Services belong together.
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// A resource, with its name as all that refer to it have it.
    pub(super) fn get(&self, kind: Type, name: &str) -> Option<(&Name, &Entry)> {
        self.types[kind as usize].get_key_value(name)
    }

    /// Resources of a type, as a node may have them.
    pub(super) fn view<'c>(&'c self, kind: Type, part: Part<'c>) -> View<'c> {
        View {
            entries: &self.types[kind as usize],
            index: &self.index,
            part,
        }
    }
}

/// Which resources of a type a node may have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'c> {
    All,
    /// Those of these names.
    Named(&'c BTreeSet<Name>),
    /// The endpoints of these Services.
    EndpointsOf(&'c BTreeSet<Name>),
}

impl Part<'_> {
    pub(super) fn has(self, name: &str) -> bool {
        match self {
            Part::All => true,
            Part::Named(names) => names.contains(name),
            Part::EndpointsOf(services) => {
                service_of(name).is_some_and(|service| services.contains(service))
            }
        }
    }
}

/// Resources of a type, as one node may have them.
pub(super) struct View<'c> {
    entries: &'c HashMap<Name, Entry>,
    index: &'c Index,
    part: Part<'c>,
}

impl Resources for View<'_> {
    type Content = Bytes;

    fn get(&self, name: &str) -> Option<(u64, &Bytes)> {
        if !self.part.has(name) {
            return None;
        }
        let entry = self.entries.get(name)?;
        Some((entry.version, &entry.content))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let (all, named, of) = match self.part {
            Part::All => (Some(self.entries.keys()), None, None),
            Part::Named(names) => (None, Some(names.iter()), None),
            Part::EndpointsOf(services) => (None, None, Some(services.iter())),
        };
        let bound = of.into_iter().flatten();
        let bound = bound.filter_map(|service| self.index.service(service));
        let endpoints = bound.flat_map(|bound| &bound.endpoints);
        all.into_iter()
            .flatten()
            .chain(named.into_iter().flatten())
            .chain(endpoints)
    }

    fn bytes(content: &Bytes) -> usize {
        content.len()
    }
}
