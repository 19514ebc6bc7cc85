//! The mesh of one node, from its resources.
//!
//! Resources arrive one by one, so what one refers to may be missing, or be older or newer than the reference. A mesh
//! must hold its invariants at any time; so what would break them is left out until it fits.
//!
//! A node that knows a thousand Services is told of one more at a time. So only what may have changed is joined anew
//! ([`Changed`]), and what is equal to what it was stays the same object ([`Shared`]), which spares whatever comes after
//! from looking at it. Joining too much is a waste and never wrong.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{Mesh, Node, NodeName, PolicyName, Service, ServiceName, Shared, WorkloadName};

use super::{Resource, Type};
use parts::Parts;
use place::Place;

mod parts;
mod place;
mod service;

/// The mesh of a node, from everything that the node has: MeshSettings, all Nodes, Addresses, Services and Endpoints,
/// the Workloads of the node, of a gateway those of other nodes too, and the Policies that they name. Their order does not matter. Of two resources with one
/// name the last one counts, and other Workloads of other nodes and Policies that no Workload names are ignored.
///
/// From all resources of a mesh the result is its [`Mesh::for_node`], with 0 as its generation. From any other ones
/// it is a mesh that holds its invariants, apart from policies: a workload stays although a policy that it names is
/// missing, and its guard refuses every call. What is missing has these effects:
///
/// - MeshSettings: `None`, because no identity is known.
/// - The Service of an endpoint, or its port: the endpoint is left out.
/// - The workload of an endpoint on this node, or the workload has another address or account: the endpoint is left
///   out.
/// - The Service of a backend, or its port: the backend is unresolved.
///
/// A cluster address of two Services belongs to the first of them by name. What has an identity too long for the
/// trust domain is left out.
pub fn join<'r>(
    resources: impl IntoIterator<Item = &'r Resource>,
    node: &NodeName,
) -> Option<Mesh> {
    let mut joined = JoinedMesh::new(node.clone());
    for resource in resources {
        joined.put(resource.clone());
    }
    joined.mesh().cloned()
}

/// The resources of a node, and the mesh that was joined from them last.
#[derive(Debug)]
pub(crate) struct JoinedMesh {
    node: NodeName,
    parts: Parts,
    changed: Changed,
    mesh: Mesh,
    /// Of how many Services and endpoints of the mesh an address is; `None` until it is of interest.
    at: Option<HashMap<IpAddr, u32>>,
    /// Addresses that have come to the mesh or gone from it since the last [`JoinedMesh::take_moved`], perhaps both.
    moved: BTreeSet<IpAddr>,
}

/// What has to be joined anew.
#[derive(Debug, Default)]
struct Changed {
    /// The settings are others, on which everything depends.
    all: bool,
    nodes: bool,
    addresses: bool,
    policies: bool,
    workloads: BTreeSet<WorkloadName>,
    /// Services that have other endpoints, or whose resource is another one.
    services: BTreeSet<ServiceName>,
    /// Services to which backends of others refer, and that have other ports now.
    targets: BTreeSet<ServiceName>,
}

impl JoinedMesh {
    /// Nothing yet.
    pub(crate) fn new(node: NodeName) -> Self {
        JoinedMesh {
            node,
            parts: Parts::default(),
            changed: Changed::default(),
            mesh: Mesh::default(),
            at: None,
            moved: BTreeSet::new(),
        }
    }

    /// Adds a resource, in place of one with its name.
    pub(crate) fn put(&mut self, resource: Resource) {
        let (parts, changed) = (&mut self.parts, &mut self.changed);
        match resource {
            Resource::MeshSettings(settings) => {
                changed.all |= parts.settings.as_ref() != Some(&settings);
                parts.settings = Some(settings);
            }
            Resource::Node(node) => {
                changed.nodes = true;
                parts.nodes.insert(node.name.clone(), node);
            }
            Resource::Address(address) => {
                changed.addresses = true;
                parts.addresses.insert(address.address, address);
            }
            Resource::Policy(policy) => {
                changed.policies = true;
                parts.policies.insert(policy.name.clone(), policy);
            }
            Resource::Workload(workload) => {
                changed.workloads.insert(workload.name.clone());
                parts.workloads.insert(workload.name.clone(), workload);
            }
            Resource::Service(service) => self.put_service(service),
            Resource::Endpoint(of) => {
                changed.services.insert(of.service.clone());
                let key = (of.service, of.port, of.endpoint.address);
                parts.endpoints.insert(key, of.endpoint);
            }
        }
    }

    /// Removes the resource of that type and name, if there is one.
    pub(crate) fn remove(&mut self, kind: Type, name: &str) {
        use super::name as read;
        let (parts, changed) = (&mut self.parts, &mut self.changed);
        match kind {
            Type::MeshSettings => {
                changed.all = true;
                parts.settings = None;
            }
            Type::Node => {
                changed.nodes = true;
                let node = read::node(name).ok();
                node.and_then(|node| parts.nodes.remove(&node));
            }
            Type::Address => {
                changed.addresses = true;
                let address = read::address(name).ok();
                address.and_then(|address| parts.addresses.remove(&address));
            }
            Type::Policy => {
                changed.policies = true;
                let policy = read::policy(name).ok();
                policy.and_then(|policy| parts.policies.remove(&policy));
            }
            Type::Workload => {
                if let Ok(workload) = read::workload(name) {
                    parts.workloads.remove(&workload);
                    changed.workloads.insert(workload);
                }
            }
            Type::Service => {
                if let Ok(service) = read::service(name) {
                    let before = parts.services.remove(&service);
                    self.service_changed(service, before.as_ref());
                }
            }
            Type::Endpoint => {
                if let Ok(of) = read::endpoint(name) {
                    changed.services.insert(of.service.clone());
                    let key = (of.service, of.port, of.address);
                    parts.endpoints.remove(&key);
                }
            }
        }
    }

    fn put_service(&mut self, service: Service) {
        let name = service.name.clone();
        let before = self.parts.services.insert(name.clone(), service);
        self.service_changed(name, before.as_ref());
    }

    /// The resource of a Service is another one now, or gone.
    fn service_changed(&mut self, name: ServiceName, before: Option<&Service>) {
        let others = self.parts.follow(&name, before);
        self.changed.services.extend(others);
        self.changed.services.insert(name.clone());
        self.changed.targets.insert(name);
    }

    /// The mesh of the resources that there are now, with 0 as its generation; `None` without settings.
    pub(crate) fn mesh(&mut self) -> Option<&Mesh> {
        let settings = self.parts.settings.clone()?;
        let changed = mem::take(&mut self.changed);
        let place = Place {
            settings: &settings,
            node: &self.node.clone(),
        };
        let (parts, mesh) = (&self.parts, &mut self.mesh);
        if changed.all || changed.nodes {
            let can_be = |node: &&Node| place.can_be_node(&node.name);
            mesh.nodes = parts.nodes.values().filter(can_be).cloned().collect();
        }
        if changed.all || changed.addresses {
            (mesh.elsewhere, mesh.further) = parts.elsewhere(&place);
        }
        if changed.all || changed.policies || !changed.workloads.is_empty() {
            mesh.workloads = parts.workloads(&place).cloned().collect();
            let mut own = mesh.workloads.iter();
            let judged: Vec<_> = match own.any(|own| settings.forwarding.is_at(own)) {
                true => parts.judged(&place).cloned().collect(),
                false => Vec::new(),
            };
            if *mesh.judged != judged {
                mesh.judged = judged.into();
            }
            let named = mesh.workloads.iter().chain(mesh.judged.iter());
            let named = named.flat_map(|one| &one.policies);
            let named: BTreeSet<&PolicyName> = named.collect();
            let policies = parts.policies.iter();
            let policies = policies.filter(|(name, _)| named.contains(*name));
            mesh.policies = policies.map(|(_, policy)| Arc::clone(policy)).collect();
        }
        let services = match changed.all {
            true => {
                let before = mesh.services.iter().map(|service| &service.name);
                parts.services.keys().chain(before).cloned().collect()
            }
            false => {
                let mut services = changed.services;
                services.extend(parts.referring(&changed.targets));
                services.extend(parts.with_endpoints(&changed.workloads));
                services
            }
        };
        mesh.trust_domain = settings.trust_domain.clone();
        mesh.address_ranges.clone_from(&settings.address_ranges);
        mesh.forwarding = settings.forwarding.clone();
        for service in &services {
            self.join_service(&place, service);
        }
        Some(&self.mesh)
    }

    fn join_service(&mut self, place: &Place<'_>, name: &ServiceName) {
        let services = &mut self.mesh.services;
        let at = services.binary_search_by(|one| one.name.cmp(name));
        let joined = self.parts.service(place, name);
        let (before, now) = match (at, joined) {
            (Ok(at), Some(now)) if *services[at] == now => return,
            (Ok(at), Some(now)) => {
                let now = Shared::from(now);
                let before = mem::replace(&mut services[at], now.clone());
                (Some(before), Some(now))
            }
            (Ok(at), None) => (Some(services.remove(at)), None),
            (Err(at), Some(now)) => {
                let now = Shared::from(now);
                services.insert(at, now.clone());
                (None, Some(now))
            }
            (Err(_), None) => return,
        };
        if let Some(at) = &mut self.at {
            if let Some(now) = &now {
                count(at, now, &mut self.moved);
            }
            if let Some(before) = &before {
                discount(at, before, &mut self.moved);
            }
            // A node may forget most of what it has known.
            if at.capacity() > 4 * at.len().max(16) {
                at.shrink_to_fit();
            }
        }
    }

    /// From now on [`JoinedMesh::has_address`] knows the addresses of the mesh.
    pub(crate) fn find_addresses(&mut self) {
        let services = &self.mesh.services;
        self.at.get_or_insert_with(|| {
            let mut at = HashMap::new();
            for service in services {
                count(&mut at, service, &mut self.moved);
            }
            at
        });
    }

    /// The addresses of which [`JoinedMesh::has_address`] may say something else than at the last call.
    pub(crate) fn take_moved(&mut self) -> BTreeSet<IpAddr> {
        mem::take(&mut self.moved)
    }

    /// Whether an address is a cluster address of a Service of the mesh, or that of an endpoint.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.at.as_ref().is_some_and(|at| at.contains_key(&address))
    }
}

/// The cluster addresses of a Service, and the addresses of its endpoints.
fn addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let endpoints = service.endpoints().map(|endpoint| endpoint.address.ip());
    service.addresses.iter().copied().chain(endpoints)
}

/// Counts the addresses of a Service. Those that are new are among `moved` then.
fn count(at: &mut HashMap<IpAddr, u32>, service: &Service, moved: &mut BTreeSet<IpAddr>) {
    for address in addresses(service) {
        let number = at.entry(address).or_default();
        if *number == 0 {
            moved.insert(address);
        }
        *number += 1;
    }
}

/// The reverse. Addresses that are gone are among `moved` then.
fn discount(at: &mut HashMap<IpAddr, u32>, service: &Service, moved: &mut BTreeSet<IpAddr>) {
    for address in addresses(service) {
        if let Some(number) = at.get_mut(&address) {
            *number -= 1;
            if *number == 0 {
                at.remove(&address);
                moved.insert(address);
            }
        }
    }
}
