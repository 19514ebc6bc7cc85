//! What a mesh changes of the one before: the names of it, for the streams of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use foldhash::{HashMap, HashSet};
use heddle_model::NodeName;
use heddle_xds::delta::Name;
use heddle_xds::resources::Type;

/// Fingerprints that are looked up in the time in which one name is found in an ordered set.
const FINGERPRINTS_PER_NAME: usize = 32;

/// The names of what one mesh changes, as sets: a stream looks up what its node uses, or goes through what has changed,
/// whichever is less.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Resources that any node may have.
    pub(super) common: Names,
    /// Addresses that lead elsewhere than before: those of other workloads, of Services, and of endpoints.
    pub(super) addresses: HashSet<IpAddr>,
    /// Workloads and policies, and the nodes that may have them.
    pub(super) own: Names,
    pub(super) owners: Owners,
    pub(super) services: ChangedServices,
    size: usize,
}

/// Services of which something has changed.
#[derive(Debug, Default)]
pub(super) struct ChangedServices {
    by_fingerprint: HashMap<Fingerprint, Vec<(Name, ChangedService)>>,
}

impl ChangedServices {
    /// Adds a Service, once.
    pub(super) fn insert(&mut self, name: Name, changed: ChangedService) {
        let fingerprint = Fingerprint::of(&name);
        let same = self.by_fingerprint.entry(fingerprint).or_default();
        same.push((name, changed));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ChangedService> {
        let all = self.by_fingerprint.values().flatten();
        all.map(|(_, changed)| changed)
    }

    /// What has changed of the Services with these names, which have these fingerprints.
    pub(super) fn of<'c>(
        &'c self,
        names: &'c BTreeSet<Name>,
        fingerprints: &'c [Fingerprint],
    ) -> impl Iterator<Item = &'c ChangedService> {
        // A few names are found among many sooner than many fingerprints among a few.
        let are_many = fingerprints.len() > FINGERPRINTS_PER_NAME * self.by_fingerprint.len();
        let looked_up = if are_many { &[] } else { fingerprints };
        let looked_up = looked_up
            .iter()
            .filter_map(|one| self.by_fingerprint.get(one));
        let gone_through = are_many.then_some(&self.by_fingerprint).into_iter();
        let gone_through = gone_through.flat_map(|all| all.values());
        let found = looked_up.chain(gone_through).flatten();
        let found = found.filter(|(name, _)| names.contains(name));
        found.map(|(_, changed)| changed)
    }
}

/// A number for a name: the same for the same name, and nearly always another one for another name. Each change is compared
/// with what each node uses, and numbers lie side by side in memory, where each name is somewhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of(name: &str) -> Self {
        Fingerprint(FixedState::default().hash_one(name))
    }
}

/// Names of resources.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<Type, HashSet<Name>>);

impl Names {
    pub(super) fn insert(&mut self, kind: Type, name: Name) {
        self.0.entry(kind).or_default().insert(name);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Type, &HashSet<Name>)> {
        self.0.iter().map(|(kind, names)| (*kind, names))
    }

    fn len(&self) -> usize {
        self.0.values().map(HashSet::len).sum()
    }
}

/// The nodes that some resources are for.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Any node may be one.
    pub(super) is_any: bool,
    pub(super) nodes: HashSet<NodeName>,
}

/// What has changed of a Service.
#[derive(Debug, Default)]
pub(super) struct ChangedService {
    /// Its resource and those of its endpoints, as far as they have changed.
    pub(super) changed: Vec<(Type, Name)>,
    /// Whether its endpoints are on other nodes than before.
    pub(super) has_moved: bool,
}

impl ChangedService {
    /// Whether its own resource is among them.
    pub(super) fn has_itself(&self) -> bool {
        self.changed.iter().any(|(kind, _)| *kind == Type::Service)
    }
}

impl Changed {
    /// The changed resources that a node may have, apart from Services and endpoints. `has_all`: it has those of all nodes.
    pub(super) fn of_node(
        &self,
        node: &NodeName,
        has_all: bool,
    ) -> impl Iterator<Item = (Type, &HashSet<Name>)> {
        let own = (has_all || self.is_of(node)).then_some(&self.own);
        let own = own.into_iter().flat_map(Names::iter);
        self.common.iter().chain(own)
    }

    /// How many names and addresses there are; 0 until they are counted.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether what is for this node alone may have changed.
    pub(super) fn is_of(&self, node: &NodeName) -> bool {
        self.owners.is_any || self.owners.nodes.contains(node)
    }

    /// Counts what there is, once nothing more is added.
    pub(super) fn count(&mut self) {
        let services = self.services.iter();
        let of_services = services.map(|one| 1 + one.changed.len());
        let others = self.common.len() + self.addresses.len() + self.own.len();
        self.size = others + of_services.sum::<usize>();
    }
}
