//! What there is to tell nodes: every resource of the mesh, encoded once for all of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use heddle_model::{Mesh, NodeName};
use heddle_xds::delta::{Name, Resources};
use heddle_xds::resources::{MAX_RESOURCE_BYTES, Resource, Type, policy_name, split};
use tracing::error;

/// Sets of changes that are kept. A stream that is further behind compares all versions.
const KEPT_CHANGES: usize = 256;

/// Every resource of the newest mesh.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    generation: u64,
    types: [HashMap<Name, Entry>; Type::ALL.len()],
    /// What is for each node alone.
    own: HashMap<NodeName, Arc<Own>>,
    /// What is for every node, where no workload names one.
    everyones: Option<Arc<Own>>,
    /// The newest changes, the last one that of `generation`.
    changes: VecDeque<Vec<(Type, Name)>>,
}

#[derive(Debug)]
struct Entry {
    version: u64,
    content: Bytes,
    /// The generation in which it was last found.
    found: u64,
}

/// The names of resources that are for one node only: its workloads, and the policies that select them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Own {
    workloads: BTreeSet<Name>,
    policies: BTreeSet<Name>,
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

impl Catalog {
    /// The number of meshes that were put up; 0 before the first.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Replaces the mesh, and finds what has changed. `resources` are those of the mesh.
    pub(super) fn put(&mut self, mesh: &Mesh, resources: Vec<Encoded>) {
        self.generation += 1;
        let mut names = Vec::new();
        for Encoded {
            kind,
            name,
            content,
        } in resources
        {
            self.set(kind, &name, content, &mut names);
        }
        let found = self.generation;
        for (kind, entries) in Type::ALL.into_iter().zip(&mut self.types) {
            entries.retain(|name, entry| {
                let is_there = entry.found == found;
                if !is_there {
                    names.push((kind, name.clone()));
                }
                is_there
            });
        }
        self.find_own(mesh);
        self.changes.push_back(names);
        if self.changes.len() > KEPT_CHANGES {
            self.changes.pop_front();
        }
    }

    fn set(&mut self, kind: Type, name: &str, content: Bytes, changed: &mut Vec<(Type, Name)>) {
        let found = self.generation;
        let entries = &mut self.types[kind as usize];
        match entries.get_mut(name) {
            Some(entry) if entry.content == content => entry.found = found,
            before => {
                let entry = Entry {
                    version: version(&content),
                    content,
                    found,
                };
                let name = Name::from(name);
                changed.push((kind, name.clone()));
                match before {
                    Some(before) => *before = entry,
                    None => drop(entries.insert(name, entry)),
                }
            }
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
        // Streams tell by the pointer whether there is another one.
        let shared = |before: Option<&Arc<Own>>, own: Own| match before {
            Some(before) if **before == own => Arc::clone(before),
            _ => Arc::new(own),
        };
        self.everyones = is_one_node.then(|| shared(self.everyones.as_ref(), everyones));
        let own = own.into_iter();
        let own = own.map(|(node, own)| {
            let own = shared(self.own.get(&node), own);
            (node, own)
        });
        self.own = own.collect();
    }

    /// The name as the catalog has it, so that equal names share their bytes.
    fn name(&self, kind: Type, name: &str) -> Name {
        let known = self.types[kind as usize].get_key_value(name);
        known.map_or_else(|| Name::from(name), |(known, _)| known.clone())
    }

    /// What is for this node alone.
    pub(super) fn own(&self, node: &NodeName) -> Arc<Own> {
        let own = self.everyones.as_ref().or_else(|| self.own.get(node));
        own.cloned().unwrap_or_default()
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

    /// Resources of a type, as a node may have them.
    pub(super) fn view<'c>(&'c self, kind: Type, own: &'c Own) -> View<'c> {
        View {
            entries: &self.types[kind as usize],
            own: own.names(kind),
        }
    }
}

/// Resources of a type, as one node may have them.
pub(super) struct View<'c> {
    entries: &'c HashMap<Name, Entry>,
    own: Option<&'c BTreeSet<Name>>,
}

impl Resources for View<'_> {
    type Content = Bytes;

    fn get(&self, name: &str) -> Option<(u64, Bytes)> {
        if self.own.is_some_and(|own| !own.contains(name)) {
            return None;
        }
        let entry = self.entries.get(name)?;
        Some((entry.version, entry.content.clone()))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let (own, all) = match self.own {
            Some(own) => (Some(own.iter()), None),
            None => (None, Some(self.entries.keys())),
        };
        own.into_iter().flatten().chain(all.into_iter().flatten())
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
