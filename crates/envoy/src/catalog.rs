//! What is the same for every Envoy: the clusters, endpoints and listeners of each Service, encoded once.
//!
//! ```text
//!   Mesh ──▶ Catalog::follow ── what differs ──▶ sessions of Envoys
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Mesh, Namespace, PolicyName, Service, ServiceAccountName, ServiceName,
    ServicePort, Shared, Workload, WorkloadName, differences,
};
use heddle_xds::delta::Name;

use crate::gateway::Roles;
use crate::names::{ClusterName, GATEWAY, service_of};
use crate::{Kind, Packed, cluster, endpoints, listener, routes};

#[cfg(test)]
mod tests;

/// The resources of all Services of a mesh.
#[derive(Debug, Default)]
pub struct Catalog {
    mesh: Arc<Mesh>,
    generation: u64,
    services: BTreeMap<Name, OfService>,
    /// What every Envoy has.
    every: OfService,
    /// The accounts with a part in forwarding.
    roles: Arc<Roles>,
    /// What the workloads of an account use, as gateways have reported.
    learned: BTreeMap<ServiceAccountName, BTreeSet<Name>>,
    /// The Services at an address.
    addresses: BTreeMap<IpAddr, Name>,
    /// The generation in which policies last changed, or what is judged by them.
    judged: u64,
    /// Of workloads with an Envoy, what Services say of their ports.
    declared: BTreeMap<WorkloadName, Declared>,
}

/// The protocols of a workload's ports, as the ports of Services declare them.
pub(crate) type Declared = BTreeMap<(u16, ServiceName, u16), AppProtocol>;

/// A Service that a workload of a namespace calls, and those to which its routes lead. None if there is no such Service.
pub fn reached_by(mesh: &Mesh, name: &Name, caller: &Namespace) -> BTreeSet<Name> {
    let Some(service) = service(mesh, name) else {
        return BTreeSet::new();
    };
    let ports = service.ports.iter();
    let backends = ports.flat_map(|port| routes::backends(port, caller));
    let backends = backends.map(|backend| Name::from(backend.to_string()));
    backends.chain([name.clone()]).collect()
}

/// The Service of a name, `NAMESPACE/NAME`.
pub(crate) fn service<'m>(mesh: &'m Mesh, name: &str) -> Option<&'m Service> {
    mesh.service(&ServiceName::parse(name).ok()?)
}

/// The resources of one Service.
#[derive(Debug, Default)]
pub(crate) struct OfService {
    resources: [Vec<(Name, Packed)>; 3],
    /// The generation in which something other than its endpoints last changed.
    shaped: u64,
}

/// What one mesh changes.
#[derive(Debug, Default)]
pub struct Changed {
    /// The Services, as `NAMESPACE/NAME`, with the names of their resources that are new, other ones, or gone.
    pub services: BTreeMap<Name, Vec<(Kind, Name)>>,
    /// Whether a workload or a policy may have changed.
    pub has_others: bool,
    /// Workloads with an Envoy of which a Service says something else.
    pub(crate) declared: BTreeSet<WorkloadName>,
    /// Resources that every Envoy has, and that are new or other ones.
    pub(crate) every: Vec<(Kind, Name)>,
    /// Accounts whose workloads use something else.
    pub(crate) learned: BTreeSet<ServiceAccountName>,
}

/// The position of a shared type among a Service's resources.
fn position(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Cluster => Some(0),
        Kind::Endpoints => Some(1),
        Kind::Listener => Some(2),
        Kind::Secret | Kind::Routes => None,
    }
}

impl OfService {
    pub(crate) fn of(&self, kind: Kind) -> &[(Name, Packed)] {
        let resources = position(kind).and_then(|position| self.resources.get(position));
        resources.map_or(&[], Vec::as_slice)
    }

    /// The generation in which something other than its endpoints last changed.
    pub(crate) fn shaped(&self) -> u64 {
        self.shaped
    }

    fn find(&self, kind: Kind, name: &str) -> Option<&Packed> {
        let mut resources = self.of(kind).iter();
        let (_, packed) = resources.find(|(known, _)| &**known == name)?;
        Some(packed)
    }
}

impl Catalog {
    /// Goes on to the next mesh, in time for what differs from the one before.
    pub fn follow(&mut self, mesh: Arc<Mesh>) -> Changed {
        self.generation += 1;
        let before = std::mem::replace(&mut self.mesh, mesh);
        let now = Arc::clone(&self.mesh);
        let mut changed = Changed {
            has_others: before.policies != now.policies
                || before.workloads.apart(&now.workloads).next().is_some()
                || now.workloads.apart(&before.workloads).next().is_some(),
            ..Changed::default()
        };
        let is_everywhere = before.nodes != now.nodes || before.trust_domain != now.trust_domain;
        // A node may be a gateway.
        let may_have_roles = is_everywhere || before.forwarding != now.forwarding;
        if changed.has_others || self.generation == 1 || may_have_roles {
            self.follow_roles(&before, &now, &mut changed);
        }
        if is_everywhere {
            for service in &now.services {
                self.put(&now, service, None, &mut changed);
            }
        }
        let order = |a: &Shared<Service>, b: &Shared<Service>| a.name.cmp(&b.name);
        for (old, new) in differences(&before.services, &now.services, order, Shared::eq) {
            let [was, is] = [(old, &*before), (new, &*now)].map(|(service, mesh)| {
                let policies = service.map(|service| policies_of(mesh, service));
                policies.unwrap_or_default()
            });
            if was != is {
                self.judged = self.generation;
            }
            match new {
                Some(new) => self.put(&now, new, old.map(|old| &**old), &mut changed),
                None => {
                    if let Some(old) = old {
                        self.remove(old, &mut changed);
                    }
                }
            }
        }
        changed
    }

    fn put(
        &mut self,
        mesh: &Mesh,
        service: &Service,
        old: Option<&Service>,
        changed: &mut Changed,
    ) {
        let name: Name = service.name.to_string().into();
        self.declare(old, Some(service), changed);
        let key = self.services.get_key_value(&name);
        let name = key.map_or(name, |(known, _)| Name::clone(known));
        let mut made = encoded(mesh, service);
        let is_reshaped = old.is_none_or(|old| !has_same_shape(old, service));
        let entry = self.services.entry(name.clone()).or_default();
        let differ = differing(entry, &made);
        made.shaped = match is_reshaped {
            true => self.generation,
            false => entry.shaped,
        };
        *entry = made;
        if is_reshaped || !differ.is_empty() {
            changed.services.entry(name).or_default().extend(differ);
        }
    }

    fn remove(&mut self, old: &Service, changed: &mut Changed) {
        self.declare(Some(old), None, changed);
        let Some((name, gone)) = self.services.remove_entry(old.name.to_string().as_str()) else {
            return;
        };
        let kinds = [Kind::Cluster, Kind::Endpoints, Kind::Listener].into_iter();
        let names = kinds.flat_map(|kind| gone.of(kind).iter().map(move |(name, _)| (kind, name)));
        let names = names.map(|(kind, name)| (kind, name.clone())).collect();
        changed.services.insert(name, names);
    }

    /// Follows what is forwarded by which Envoys, and judged by which policies.
    fn follow_roles(&mut self, before: &Mesh, now: &Mesh, changed: &mut Changed) {
        let roles = Roles::of(now);
        if *self.roles != roles || self.generation == 1 {
            self.roles = Arc::new(roles);
            changed.has_others = true;
            let mut every = OfService::default();
            let [clusters, assignments, _] = &mut every.resources;
            let gateway = self.roles.cluster();
            let has_gateways = gateway.is_some();
            for cluster in cluster::fixed().into_iter().chain(gateway) {
                clusters.push((cluster.name.as_str().into(), Packed::new(&cluster)));
            }
            if has_gateways {
                assignments.push((GATEWAY.into(), Packed::new(&self.roles.assignment())));
            }
            changed.every = differing(&self.every, &every);
            self.every = every;
        }
        let judged = |workload: &Workload| (workload.policies.clone(), workload.mode);
        let order = |a: &Shared<Workload>, b: &Shared<Workload>| a.name.cmp(&b.name);
        let (old, new) = (&before.workloads, &now.workloads);
        let differ = differences(old.apart(new), new.apart(old), order, Shared::eq);
        let mut differ = differ.into_iter();
        let is_judged_otherwise = before.policies != now.policies
            || differ.any(|(old, new)| {
                old.map(|one| judged(one)) != new.map(|one| judged(one))
                    && [old, new]
                        .into_iter()
                        .flatten()
                        .any(|one| !one.policies.is_empty())
            });
        if is_judged_otherwise {
            self.judged = self.generation;
        }
    }

    /// Follows what a Service says of the ports of workloads with an Envoy.
    fn declare(&mut self, old: Option<&Service>, new: Option<&Service>, changed: &mut Changed) {
        for gone in old.into_iter().flat_map(|service| &service.addresses) {
            self.addresses.remove(gone);
        }
        if let Some(service) = new {
            let name = Name::from(service.name.to_string());
            let here = service.addresses.iter().map(|ip| (*ip, name.clone()));
            self.addresses.extend(here);
        }
        let [old, new] = [old, new].map(|service| service.map(said).unwrap_or_default());
        for (workload, at, protocol) in old.difference(&new) {
            let Some(declared) = self.declared.get_mut(workload) else {
                continue;
            };
            if declared.get(at) == Some(protocol) {
                declared.remove(at);
            }
            if declared.is_empty() {
                self.declared.remove(workload);
            }
            changed.declared.insert(workload.clone());
        }
        for (workload, at, protocol) in new.difference(&old) {
            let declared = self.declared.entry(workload.clone()).or_default();
            declared.insert(at.clone(), *protocol);
            changed.declared.insert(workload.clone());
        }
    }

    /// What Services say of the ports of a workload with an Envoy.
    pub(crate) fn declared(&self, workload: &WorkloadName) -> Option<&Declared> {
        self.declared.get(workload)
    }

    /// The mesh of which this is.
    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// Whether there has been no mesh yet.
    pub fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Counts the meshes, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The names of all Services, as `NAMESPACE/NAME`.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.services.keys()
    }

    pub(crate) fn service(&self, name: &str) -> Option<&OfService> {
        self.services.get(name)
    }

    /// What every Envoy has.
    pub(crate) fn every(&self, kind: Kind) -> &[(Name, Packed)] {
        self.every.of(kind)
    }

    pub(crate) fn roles(&self) -> &Arc<Roles> {
        &self.roles
    }

    /// The generation in which policies last changed, or what is judged by them.
    pub(crate) fn judged(&self) -> u64 {
        self.judged
    }

    /// The Service at an address.
    pub fn service_at(&self, ip: IpAddr) -> Option<&Name> {
        self.addresses.get(&ip)
    }

    /// Whether the account is that of lazy workloads.
    pub fn is_lazy(&self, account: &ServiceAccountName) -> bool {
        self.roles.lazy.contains(account)
    }

    /// What the workloads of an account use, as `NAMESPACE/NAME`.
    pub fn learned(&self, account: &ServiceAccountName) -> Option<&BTreeSet<Name>> {
        self.learned.get(account)
    }

    /// How many resources an Envoy that knows a Service has of it, and their bytes.
    pub fn cost(&self, service: &str) -> (usize, usize) {
        let resources = self.services.get(service);
        let resources = resources.into_iter().flat_map(|service| &service.resources);
        let bytes = resources.flatten().map(|(_, packed)| packed.content.len());
        bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
    }

    /// Replaces what the workloads of an account use.
    pub fn set_learned(&mut self, account: &ServiceAccountName, uses: BTreeSet<Name>) -> Changed {
        self.learned.insert(account.clone(), uses);
        Changed {
            learned: BTreeSet::from([account.clone()]),
            ..Changed::default()
        }
    }

    /// A resource of a Service, with the Service's name.
    pub(crate) fn find(&self, kind: Kind, name: &str) -> Option<(&Name, &Packed)> {
        let (service, of) = self.services.get_key_value(service_of(name)?)?;
        Some((service, of.find(kind, name)?))
    }
}

/// The policies of a Service's endpoints, with the ports that they are about.
fn policies_of<'m>(mesh: &'m Mesh, service: &Service) -> BTreeSet<(u16, u16, &'m [PolicyName])> {
    let endpoints = service.ports.iter().flat_map(|port| {
        let endpoints = port.endpoints.iter();
        endpoints.map(|endpoint| (port.port, endpoint))
    });
    let policies = endpoints.filter_map(|(port, endpoint)| {
        let workload = mesh.workload(endpoint.workload_name()?)?;
        let policies = workload.policies.as_slice();
        (!policies.is_empty()).then(|| (port, endpoint.address.port(), policies))
    });
    policies.collect()
}

/// The resources that are new, other ones, or gone.
fn differing(old: &OfService, new: &OfService) -> Vec<(Kind, Name)> {
    let mut differ = Vec::new();
    for kind in [Kind::Cluster, Kind::Endpoints, Kind::Listener] {
        let gone = old.of(kind).iter();
        let gone = gone.filter(|(name, _)| new.find(kind, name).is_none());
        differ.extend(gone.map(|(name, _)| (kind, name.clone())));
        let other = new.of(kind).iter();
        let other = other.filter(|(name, packed)| old.find(kind, name) != Some(packed));
        differ.extend(other.map(|(name, _)| (kind, name.clone())));
    }
    differ
}

/// What a Service says of the ports of workloads with an Envoy.
fn said(service: &Service) -> BTreeSet<(WorkloadName, (u16, ServiceName, u16), AppProtocol)> {
    let mut said = BTreeSet::new();
    for port in &service.ports {
        let endpoints = port.endpoints.iter().filter(|one| one.has_envoy);
        said.extend(endpoints.filter_map(|endpoint| {
            let at = (endpoint.address.port(), service.name.clone(), port.port);
            Some((endpoint.workload_name()?.clone(), at, port.protocol))
        }));
    }
    said
}

fn encoded(mesh: &Mesh, service: &Service) -> OfService {
    let mut made = OfService::default();
    let [clusters, assignments, listeners] = &mut made.resources;
    for port in &service.ports {
        for flavour in cluster::flavours(port) {
            let name = ClusterName {
                service: &service.name,
                port: port.port,
                flavour: *flavour,
            };
            let name: Name = name.to_string().into();
            let cluster = cluster::of_port(&mesh.trust_domain, service, port, *flavour);
            // Without one the Service is reached through a gateway only.
            let Some(cluster) = cluster else { continue };
            clusters.push((name.clone(), Packed::new(&cluster)));
            let assignment = endpoints::assignment(mesh, port, &name);
            assignments.push((name, Packed::new(&assignment)));
        }
        for listener in listener::of_service(service, port) {
            listeners.push((listener.name.as_str().into(), Packed::new(&listener)));
        }
    }
    made
}

/// Whether two versions of a Service differ in nothing that routes are made of.
fn has_same_shape(one: &Service, other: &Service) -> bool {
    let same = |a: &ServicePort, b: &ServicePort| {
        a.port == b.port
            && a.protocol == b.protocol
            && a.routes == b.routes
            && a.consumer_routes == b.consumer_routes
    };
    one.addresses == other.addresses
        && one.balancer == other.balancer
        && one.balancing == other.balancing
        && one.ports.len() == other.ports.len()
        && one.ports.iter().zip(&other.ports).all(|(a, b)| same(a, b))
}
