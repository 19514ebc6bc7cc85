//! Finds what each mesh changes in the catalog, in time for what differs from the mesh before.
//!
//! What two meshes share is not looked at. What is another object in memory is compared by its content, so that a mesh
//! that was compiled as a whole changes only what is different in it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use foldhash::HashMap;
use heddle_model::{Difference, Mesh, Node, Policy, Service, Shared, Workload, differences};
use heddle_xds::delta::Name;
use heddle_xds::resources::{
    Holders, MAX_RESOURCE_BYTES, Resource, Type, of_mesh, of_service, policy_name,
};
use tracing::error;

use super::catalog::{Catalog, Change, Entry};
use super::changed::ChangedService;
use super::index::{Bound, address_of, nodes as nodes_of};

mod parts;

use parts::Parts;

/// The mesh of which the catalog is, and what is derived from it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    mesh: Arc<Mesh>,
    holders: Holders,
    parts: Parts,
}

impl Changes {
    /// What this mesh changes in the catalog, which has the mesh before: only this caller changes the catalog, and
    /// applies each change before it asks for the next. The catalog is locked for one resource at a time.
    pub(super) fn of(&mut self, mesh: Arc<Mesh>, catalog: &Mutex<Catalog>) -> Change {
        let before = std::mem::replace(&mut self.mesh, mesh);
        let mut finding = Finding {
            catalog,
            change: Change::default(),
            fresh: Default::default(),
            service: ChangedService::default(),
        };
        finding.put(&of_mesh(&self.mesh));
        for (old, new) in nodes(&before, &self.mesh) {
            let one = |node: &Node| Resource::Node(node.clone());
            finding.replace(old.map(one), new.map(one));
        }
        for (old, new) in policies(&before, &self.mesh) {
            let one = |policy: &Arc<Policy>| Resource::Policy(Arc::clone(policy));
            finding.replace(old.map(one), new.map(one));
        }
        let of_workloads = workloads(&before, &self.mesh);
        for (old, new) in &of_workloads {
            let one = |workload: &Shared<Workload>| Resource::Workload(workload.clone());
            finding.replace(old.map(one), new.map(one));
            old.iter().for_each(|old| self.holders.remove(old));
            new.iter().for_each(|new| self.holders.add(new));
        }
        for address in self.holders.take_changed() {
            finding.change.changed.addresses.insert(address);
            let nodes = self.holders.nodes(address);
            let nodes = nodes.map(|node| finding.name(Type::Node, node.as_str()));
            let nodes = nodes.collect();
            finding.change.holders.push((address, nodes));
            match self.holders.resource(address) {
                Some(resource) => drop(finding.put(&resource)),
                None => finding.remove(Type::Address, &address.to_string()),
            }
        }
        let of_services = services(&before, &self.mesh);
        for (old, new) in &of_services {
            finding.replace_service(*old, *new);
        }
        self.parts.follow_gateways(&self.mesh.forwarding.gateways);
        self.parts.follow(&of_workloads, &of_services, &finding);
        let mut change = finding.change;
        self.parts.take_changed(&mut change);
        change
    }
}

fn nodes<'m>(before: &'m Mesh, now: &'m Mesh) -> Vec<Difference<'m, Node>> {
    let order = |a: &Node, b: &Node| a.name.cmp(&b.name);
    differences(&before.nodes, &now.nodes, order, |a, b| a == b)
}

fn policies<'m>(before: &'m Mesh, now: &'m Mesh) -> Vec<Difference<'m, Arc<Policy>>> {
    let order = |a: &Arc<Policy>, b: &Arc<Policy>| a.name.cmp(&b.name);
    differences(&before.policies, &now.policies, order, Arc::eq)
}

fn workloads<'m>(before: &'m Mesh, now: &'m Mesh) -> Vec<Difference<'m, Shared<Workload>>> {
    let order = |a: &Shared<Workload>, b: &Shared<Workload>| a.name.cmp(&b.name);
    let (before, now) = (&before.workloads, &now.workloads);
    differences(before.apart(now), now.apart(before), order, Shared::eq)
}

fn services<'m>(before: &'m Mesh, now: &'m Mesh) -> Vec<Difference<'m, Shared<Service>>> {
    let order = |a: &Shared<Service>, b: &Shared<Service>| a.name.cmp(&b.name);
    let (before, now) = (&before.services, &now.services);
    differences(before, now, order, Shared::eq)
}

/// A change that is being found.
struct Finding<'c> {
    catalog: &'c Mutex<Catalog>,
    change: Change,
    /// Names that the catalog does not have yet.
    fresh: [HashMap<String, Name>; Type::ALL.len()],
    /// The Service that is being replaced.
    service: ChangedService,
}

impl Finding<'_> {
    fn replace(&mut self, old: Option<Resource>, new: Option<Resource>) {
        match (old, new) {
            (_, Some(new)) => drop(self.put(&new)),
            (Some(old), None) => self.remove(old.kind(), &old.name()),
            (None, None) => {}
        }
    }

    /// Replaces a Service and its endpoints.
    fn replace_service(&mut self, old: Option<&Shared<Service>>, new: Option<&Shared<Service>>) {
        let Some(service) = new.or(old) else { return };
        let name = self.name(Type::Service, &service.name.to_string());
        let bound = self.replace_parts(old, new);
        self.change.bound.push((name.clone(), bound));
        let mut service = std::mem::take(&mut self.service);
        service.has_moved = old.map(|old| nodes_of(old)) != new.map(|new| nodes_of(new));
        let changed = &mut self.change.changed;
        let addresses = |of: Option<&Shared<Service>>| of.map(|of| of.addresses.clone());
        let [before, now] = [old, new].map(addresses);
        if service.has_itself() || before != now {
            let both = before.into_iter().chain(now);
            changed.addresses.extend(both.flatten());
        }
        if service.has_moved || !service.changed.is_empty() {
            changed.services.insert(name, service);
        }
    }

    /// Replaces the resources of a Service. Returns what belongs to it from now on; `None` if it is gone.
    fn replace_parts(
        &mut self,
        old: Option<&Shared<Service>>,
        new: Option<&Shared<Service>>,
    ) -> Option<Bound> {
        let resources = |service| of_service(service).map(|one| (one.kind(), one.name()));
        let mut gone: BTreeSet<(Type, String)> =
            old.into_iter().flat_map(|old| resources(old)).collect();
        let mut endpoints = Vec::new();
        for resource in new.into_iter().flat_map(|new| of_service(new)) {
            let (kind, name) = (resource.kind(), resource.name());
            gone.remove(&(kind, name));
            let name = self.put(&resource);
            if kind == Type::Endpoint {
                endpoints.extend(name);
            }
        }
        gone.iter()
            .for_each(|(kind, name)| self.remove(*kind, name));
        new.map(|new| Bound::of(new, endpoints, |kind, name| self.name(kind, name)))
    }

    /// Puts a resource into the catalog, unless it is as it was. Returns its name; `None` if it is too large for nodes,
    /// and left out: a workload whose policy is missing refuses every call.
    fn put(&mut self, resource: &Resource) -> Option<Name> {
        let (kind, name, content) = (resource.kind(), resource.name(), resource.encode());
        let bytes = content.len();
        if bytes > MAX_RESOURCE_BYTES {
            let kind_name = kind.message_name();
            error!(
                kind = kind_name,
                name, bytes, "a resource is too large to be sent: nodes go on without it"
            );
            self.remove(kind, &name);
            return None;
        }
        if let Some((known, before)) = self.known(kind, &name)
            && before == content
        {
            return Some(known);
        }
        let version = version(&content);
        let name = self.name(kind, &name);
        let fresh = &mut self.fresh[kind as usize];
        fresh.insert(name.to_string(), name.clone());
        let entry = Entry { version, content };
        self.note(kind, &name);
        self.change.set.push((kind, name.clone(), entry));
        Some(name)
    }

    fn remove(&mut self, kind: Type, name: &str) {
        if let Some((name, _)) = self.known(kind, name) {
            self.note(kind, &name);
            self.change.removed.push((kind, name));
        }
    }

    /// The name and the content of a resource as the catalog has them.
    fn known(&self, kind: Type, name: &str) -> Option<(Name, Bytes)> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, entry) = catalog.get(kind, name)?;
        Some((name.clone(), entry.content.clone()))
    }

    /// Notes a change where streams look for it.
    fn note(&mut self, kind: Type, name: &Name) {
        let changed = &mut self.change.changed;
        let name = name.clone();
        match kind {
            Type::MeshSettings | Type::Node | Type::Address => changed.common.insert(kind, name),
            Type::Workload => changed.own.insert(kind, name),
            Type::Policy => {
                changed.own.insert(kind, name);
                // It may select workloads that are as they were.
                changed.owners.is_any = true;
            }
            Type::Service | Type::Endpoint => {
                changed.addresses.extend(address_of(&name));
                self.service.changed.push((kind, name));
            }
        }
    }

    /// The name as the catalog has it or will have it, so that equal names share their bytes.
    fn name(&self, kind: Type, name: &str) -> Name {
        let fresh = self.fresh[kind as usize].get(name).cloned();
        let known = fresh.or_else(|| self.known(kind, name).map(|(known, _)| known));
        known.unwrap_or_else(|| Name::from(name))
    }
}

/// A hash of a resource's content: the first 64 bits of its SHA-256. Two contents of one resource have the same version
/// only if a writer of the object has searched for them, and then a node keeps the older one.
fn version(content: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = heddle_authority::sha256(&[content]);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
