//! What there is to tell nodes: every resource of the mesh, encoded once for all of them.
//!
//! ```text
//!   Mesh ──▶ encoded ──▶ Changes ── what differs ──▶ Catalog ──▶ every node's subscriptions
//!            (slow)      (slow, its own table)       (quick, under a lock)
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use heddle_model::{Mesh, NodeName};
use heddle_xds::delta::{Name, Resources};
use heddle_xds::resources::{MAX_RESOURCE_BYTES, Resource, Type, policy_name, split};
use tracing::error;

use super::index::Index;

/// Sets of changes that are kept. A stream that is further behind compares all versions.
const KEPT_CHANGES: usize = 256;

/// Every resource of the newest mesh.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    generation: u64,
    types: [HashMap<Name, Entry>; Type::ALL.len()],
    of_nodes: OfNodes,
    /// `None` while no node names what it uses.
    index: Option<Arc<Index>>,
    /// The newest changes, the last one that of `generation`.
    changes: VecDeque<Vec<(Type, Name)>>,
}

#[derive(Debug)]
struct Entry {
    version: u64,
    content: Bytes,
}

/// What is for one node alone.
#[derive(Debug, Default, Clone)]
struct OfNodes {
    own: HashMap<NodeName, Arc<Own>>,
    /// What is for every node, where no workload names one.
    everyones: Option<Arc<Own>>,
    /// What is for a node without workloads: nothing.
    nothing: Arc<Own>,
}

/// The names of resources that are for one node only: its workloads, and the policies that select them; and the Services
/// that its workloads are endpoints of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Own {
    workloads: BTreeSet<Name>,
    policies: BTreeSet<Name>,
    pub(super) services: BTreeSet<Name>,
}

impl Own {
    /// The names of this type, or `None` if resources of the type are for all nodes.
    pub(super) fn names(&self, kind: Type) -> Option<&BTreeSet<Name>> {
        match kind {
            Type::Workload => Some(&self.workloads),
            Type::Policy => Some(&self.policies),
            Type::MeshSettings | Type::Node | Type::Address | Type::Service | Type::Endpoint => {
                None
            }
        }
    }
}

/// A resource as nodes get it.
#[derive(Debug)]
pub(super) struct Encoded {
    kind: Type,
    name: String,
    content: Bytes,
}

/// The resources of a mesh. What is too large for nodes is left out: a workload whose policy is missing refuses every
/// call.
pub(super) fn encoded(mesh: &Mesh) -> Vec<Encoded> {
    let encode = |resource: Resource| Encoded {
        kind: resource.kind(),
        name: resource.name(),
        content: resource.encode(),
    };
    let fits = |one: &Encoded| {
        let bytes = one.content.len();
        if bytes > MAX_RESOURCE_BYTES {
            error!(
                kind = one.kind.message_name(),
                name = one.name,
                bytes,
                "a resource is too large to be sent: nodes go on without it"
            );
        }
        bytes <= MAX_RESOURCE_BYTES
    };
    split(mesh).map(encode).filter(fits).collect()
}

/// Finds what each mesh changes in the catalog. It has a table of its own, so that the catalog, from which all nodes are
/// served, is changed at once when all is known.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of meshes.
    generation: u64,
    types: [HashMap<Name, Known>; Type::ALL.len()],
    of_nodes: OfNodes,
    /// `None` while no node names what it uses.
    index: Option<Arc<Index>>,
}

#[derive(Debug)]
struct Known {
    content: Bytes,
    /// The generation in which it was last found.
    found: u64,
}

/// What one mesh changes.
#[derive(Debug)]
pub(super) struct Change {
    set: Vec<(Type, Name, Entry)>,
    removed: Vec<(Type, Name)>,
    of_nodes: OfNodes,
    index: Option<Arc<Index>>,
}

impl Changes {
    /// What this mesh changes. `resources` are those of the mesh. `on_demand`: there are nodes that name what they use.
    pub(super) fn of(&mut self, mesh: &Mesh, resources: Vec<Encoded>, on_demand: bool) -> Change {
        self.generation += 1;
        let found = self.generation;
        let (mut set, mut removed) = (Vec::new(), Vec::new());
        for Encoded {
            kind,
            name,
            content,
        } in resources
        {
            let known = &mut self.types[kind as usize];
            match known.get_mut(name.as_str()) {
                Some(before) if before.content == content => before.found = found,
                before => {
                    let entry = Entry {
                        version: version(&content),
                        content: content.clone(),
                    };
                    let now = Known { content, found };
                    let name = Name::from(name);
                    set.push((kind, name.clone(), entry));
                    match before {
                        Some(before) => *before = now,
                        None => drop(known.insert(name, now)),
                    }
                }
            }
        }
        for (kind, known) in Type::ALL.into_iter().zip(&mut self.types) {
            let gone = known.extract_if(|_, one| one.found != found);
            removed.extend(gone.map(|(name, _)| (kind, name)));
        }
        self.find_own(mesh);
        let is_indexed = |kind: Type| matches!(kind, Type::Service | Type::Endpoint);
        let mut changed = set.iter().map(|(kind, ..)| *kind);
        let mut gone = removed.iter().map(|(kind, _)| *kind);
        let is_old = self.index.is_none() || changed.any(is_indexed) || gone.any(is_indexed);
        if on_demand && is_old {
            let endpoints = self.types[Type::Endpoint as usize].keys();
            let name = |service: &str| self.name(Type::Service, service);
            self.index = Some(Arc::new(Index::new(mesh, endpoints, name)));
        }
        Change {
            set,
            removed,
            index: self.index.clone(),
            of_nodes: self.of_nodes.clone(),
        }
    }

    /// Finds what is for each node alone. The names are those of the resources.
    fn find_own(&mut self, mesh: &Mesh) {
        let mut own: HashMap<NodeName, Own> = HashMap::new();
        let mut everyones = Own::default();
        let is_one_node = mesh.workloads.iter().all(|one| one.node.is_none());
        for workload in &mesh.workloads {
            let of = match &workload.node {
                Some(node) => own.entry(node.clone()).or_default(),
                None if is_one_node => &mut everyones,
                None => continue,
            };
            let name = workload.name.to_string();
            of.workloads.insert(self.name(Type::Workload, &name));
            for policy in &workload.policies {
                of.policies
                    .insert(self.name(Type::Policy, &policy_name(policy)));
            }
        }
        for service in &mesh.services {
            let endpoints = service.ports.iter().flat_map(|port| &port.endpoints);
            let endpoints = endpoints.filter(|endpoint| endpoint.workload.is_some());
            let nodes: BTreeSet<Option<&NodeName>> =
                endpoints.map(|endpoint| endpoint.node.as_ref()).collect();
            let name = self.name(Type::Service, &service.name.to_string());
            for node in nodes {
                let of = match node {
                    Some(node) => own.get_mut(node),
                    None => is_one_node.then_some(&mut everyones),
                };
                if let Some(of) = of {
                    of.services.insert(name.clone());
                }
            }
        }
        // Streams tell by the pointer whether there is another one.
        let shared = |before: Option<&Arc<Own>>, own: Own| match before {
            Some(before) if **before == own => Arc::clone(before),
            _ => Arc::new(own),
        };
        let before = &self.of_nodes;
        let everyones = is_one_node.then(|| shared(before.everyones.as_ref(), everyones));
        let own = own.into_iter();
        let own = own.map(|(node, own)| {
            let own = shared(before.own.get(&node), own);
            (node, own)
        });
        let own = own.collect();
        (self.of_nodes.own, self.of_nodes.everyones) = (own, everyones);
    }

    /// The name as the table has it, so that equal names share their bytes.
    fn name(&self, kind: Type, name: &str) -> Name {
        let known = self.types[kind as usize].get_key_value(name);
        known.map_or_else(|| Name::from(name), |(known, _)| known.clone())
    }
}

impl Catalog {
    /// The number of meshes that were put up; 0 before the first.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Goes on to the next mesh, which takes time for what has changed only. Returns what is to be dropped without a lock.
    pub(super) fn apply(&mut self, change: Change) -> impl Sized + use<> {
        self.generation += 1;
        let mut names = Vec::new();
        for (kind, name, entry) in change.set {
            names.push((kind, name.clone()));
            self.types[kind as usize].insert(name, entry);
        }
        for (kind, name) in change.removed {
            self.types[kind as usize].remove(&name);
            names.push((kind, name));
        }
        self.changes.push_back(names);
        if self.changes.len() > KEPT_CHANGES {
            self.changes.pop_front();
        }
        let of_nodes = mem::replace(&mut self.of_nodes, change.of_nodes);
        (of_nodes, mem::replace(&mut self.index, change.index))
    }

    /// What is for this node alone.
    pub(super) fn own(&self, node: &NodeName) -> Arc<Own> {
        let OfNodes {
            own,
            everyones,
            nothing,
        } = &self.of_nodes;
        let own = everyones.as_ref().or_else(|| own.get(node));
        Arc::clone(own.unwrap_or(nothing))
    }

    /// The names of what has changed since a generation; `None` when that is not known any more.
    pub(super) fn changes_since(
        &self,
        generation: u64,
    ) -> Option<impl Iterator<Item = &(Type, Name)>> {
        let behind = usize::try_from(self.generation.checked_sub(generation)?).ok()?;
        let known = self.changes.len();
        let changes = || self.changes.iter().skip(known - behind).flatten();
        (behind <= known).then(changes)
    }

    /// Which Services belong together; `None` while no node asks.
    pub(super) fn index(&self) -> Option<&Index> {
        self.index.as_deref()
    }

    /// Resources of a type, as a node may have them: those of these names, or all.
    pub(super) fn view<'c>(&'c self, kind: Type, names: Option<&'c BTreeSet<Name>>) -> View<'c> {
        View {
            entries: &self.types[kind as usize],
            names,
        }
    }
}

/// Resources of a type, as one node may have them.
pub(super) struct View<'c> {
    entries: &'c HashMap<Name, Entry>,
    names: Option<&'c BTreeSet<Name>>,
}

impl Resources for View<'_> {
    type Content = Bytes;

    fn get(&self, name: &str) -> Option<(u64, Bytes)> {
        if self.names.is_some_and(|names| !names.contains(name)) {
            return None;
        }
        let entry = self.entries.get(name)?;
        Some((entry.version, entry.content.clone()))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let (some, all) = match self.names {
            Some(names) => (Some(names.iter()), None),
            None => (None, Some(self.entries.keys())),
        };
        some.into_iter().flatten().chain(all.into_iter().flatten())
    }

    fn bytes(content: &Bytes) -> usize {
        content.len()
    }
}

/// A hash of a resource's content: the first 64 bits of its SHA-256. Two contents of one resource have the same version
/// only if a writer of the object has searched for them, and then a node keeps the older one.
fn version(content: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = heddle_authority::sha256(&[content]);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
