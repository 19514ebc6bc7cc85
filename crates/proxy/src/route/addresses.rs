//! Finds what the mesh has at an address: for connections whose destination is an address and not a name.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{AppProtocol, Cidr, Mesh, Service, ServicePort, WorkloadName};

use super::names::{Names, PortIndex};
use super::port::PortEntry;
use super::source::Changes;
use crate::heap::is_loose;

/// Everything of a mesh that has an address. The tables by address of a Service are copied from one snapshot to the next,
/// without the rows of what is gone and with those of what is new.
#[derive(Debug, Clone, Default)]
pub(crate) struct Addresses {
    services: HashMap<SocketAddr, PortIndex, RandomState>,
    clusters: HashSet<IpAddr, RandomState>,
    endpoints: HashMap<SocketAddr, PortIndex, RandomState>,
    /// The ports of each endpoint that several ports have; `endpoints` has the preferred one.
    contested: HashMap<SocketAddr, Vec<PortIndex>, RandomState>,
    /// Number of endpoints of other nodes, by address.
    remote: HashMap<IpAddr, u32, RandomState>,
    of_workloads: Arc<WorkloadAddresses>,
    others: Arc<Others>,
}

/// The addresses of the workloads of this node.
#[derive(Debug, Default)]
struct WorkloadAddresses {
    workloads: HashMap<IpAddr, WorkloadName, RandomState>,
    /// Only of those that this node serves: connections of and to the pods of others are refused.
    hosted: HashMap<WorkloadName, Box<[IpAddr]>, RandomState>,
    /// The addresses of those with an Envoy of their own: this node reaches only what Services have there.
    with_envoy: HashSet<IpAddr, RandomState>,
}

/// The addresses of workloads of other nodes.
#[derive(Debug, Default)]
struct Others {
    elsewhere: HashSet<IpAddr, RandomState>,
    /// Their further addresses, each with the address that Services list.
    further: HashMap<IpAddr, IpAddr, RandomState>,
    /// Where all addresses of the mesh are; empty if they may be any.
    ranges: Vec<Cidr>,
}

/// What is at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Service(PortIndex),
    /// An address of a Service, at a port that it does not have.
    NoPort,
    /// One endpoint of a Service.
    Endpoint(PortIndex),
    /// A port of a workload of this node that belongs to no Service.
    Workload(&'a WorkloadName),
    /// A port of a workload of another node, or of one with an Envoy of its own, that belongs to no Service.
    Elsewhere,
    /// Nothing of the mesh.
    Outside,
}

/// A further address of a workload of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beside<'a> {
    pub(crate) workload: &'a WorkloadName,
    pub(crate) address: IpAddr,
}

impl Addresses {
    /// The addresses of a mesh, from those of the mesh before. `before` and `now` are the names of both, `ports` the ports
    /// of this one.
    pub(super) fn followed_by(
        &self,
        mesh: &Mesh,
        changes: &Changes<'_>,
        (before, now): (&Names, &Names),
        ports: &[Arc<PortEntry>],
    ) -> Self {
        let mut next = self.clone();
        let mut contested = HashSet::default();
        for service in &changes.gone {
            for port in &service.ports {
                if let Some(index) = before.find(&service.name, port.port) {
                    next.remove(service, port, index, &mut contested);
                }
            }
        }
        for service in &changes.new {
            for port in &service.ports {
                if let Some(index) = now.find(&service.name, port.port) {
                    next.add(service, port, index, &mut contested);
                }
            }
        }
        for address in contested {
            next.settle(address, ports);
        }
        for address in changes.gone.iter().flat_map(|one| &one.addresses) {
            next.clusters.remove(address);
        }
        let new = changes.new.iter().flat_map(|one| &one.addresses);
        next.clusters.extend(new);
        next.fit();
        if changes.workloads {
            next.of_workloads = Arc::new(WorkloadAddresses::new(mesh));
        }
        if !self.others.are_of(mesh) {
            next.others = Arc::new(Others {
                elsewhere: mesh.elsewhere.iter().copied().collect(),
                further: mesh.further.iter().copied().collect(),
                ranges: mesh.address_ranges.clone(),
            });
        }
        next
    }

    fn remove(
        &mut self,
        service: &Service,
        port: &ServicePort,
        index: PortIndex,
        contested: &mut HashSet<SocketAddr, RandomState>,
    ) {
        for address in &service.addresses {
            self.services.remove(&SocketAddr::new(*address, port.port));
        }
        for endpoint in &port.endpoints {
            let address = endpoint.address;
            match self.contested.get_mut(&address) {
                Some(claims) => {
                    claims.retain(|claim| *claim != index);
                    contested.insert(address);
                }
                None => {
                    self.endpoints.remove(&address);
                }
            }
            if endpoint.workload.is_none()
                && endpoint.node.is_some()
                && let Some(number) = self.remote.get_mut(&address.ip())
            {
                *number -= 1;
                if *number == 0 {
                    self.remote.remove(&address.ip());
                }
            }
        }
    }

    fn add(
        &mut self,
        service: &Service,
        port: &ServicePort,
        index: PortIndex,
        contested: &mut HashSet<SocketAddr, RandomState>,
    ) {
        for address in &service.addresses {
            let address = SocketAddr::new(*address, port.port);
            self.services.insert(address, index);
        }
        for endpoint in &port.endpoints {
            let address = endpoint.address;
            if let Some(claims) = self.contested.get_mut(&address) {
                claims.push(index);
                contested.insert(address);
            } else if let Some(other) = self.endpoints.insert(address, index) {
                self.contested.insert(address, vec![other, index]);
                contested.insert(address);
            }
            if endpoint.workload.is_none() && endpoint.node.is_some() {
                *self.remote.entry(address.ip()).or_default() += 1;
            }
        }
    }

    /// Gives back room for what is gone.
    fn fit(&mut self) {
        for table in [&mut self.services, &mut self.endpoints] {
            if is_loose(table.capacity(), table.len()) {
                table.shrink_to_fit();
            }
        }
        if is_loose(self.remote.capacity(), self.remote.len()) {
            self.remote.shrink_to_fit();
        }
        if is_loose(self.clusters.capacity(), self.clusters.len()) {
            self.clusters.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.endpoints.capacity() + self.remote.capacity()
    }

    /// Decides which port a contested endpoint's address leads to. A headless Service is preferred, because clients of a
    /// headless Service dial endpoints directly; then one that declares its protocol; then the first by name.
    fn settle(&mut self, address: SocketAddr, ports: &[Arc<PortEntry>]) {
        let claims = self.contested.get(&address).map_or(&[][..], Vec::as_slice);
        let rank = |index: &&PortIndex| {
            let port = &ports[index.get()];
            let is_headless = port.written().is_some_and(|(service, _)| service.headless);
            let is_declared = port.protocol != AppProtocol::Undeclared;
            (is_headless, is_declared, Reverse(&port.name))
        };
        match claims.iter().max_by_key(rank) {
            Some(best) => self.endpoints.insert(address, *best),
            None => self.endpoints.remove(&address),
        };
        if claims.len() < 2 {
            self.contested.remove(&address);
        }
    }

    /// Finds what is at an address. A Service takes precedence over its endpoints, and this node over other nodes.
    pub(crate) fn find(&self, address: SocketAddr) -> Found<'_> {
        let ip = address.ip();
        if let Some(index) = self.services.get(&address) {
            Found::Service(*index)
        } else if self.clusters.contains(&ip) {
            Found::NoPort
        } else if let Some(index) = self.endpoints.get(&address) {
            Found::Endpoint(*index)
        } else if let Some(workload) = self.of_workloads.workloads.get(&ip) {
            match self.of_workloads.with_envoy.contains(&ip) {
                true => Found::Elsewhere,
                false => Found::Workload(workload),
            }
        } else if self.remote.contains_key(&ip) || self.others.elsewhere.contains(&ip) {
            Found::Elsewhere
        } else {
            Found::Outside
        }
    }

    /// Whether all that the mesh has at an address is known without having asked for it: of workloads of this node, since
    /// their Services are always known, and of known Services.
    pub(super) fn is_settled(&self, address: IpAddr) -> bool {
        self.of_workloads.workloads.contains_key(&address) || self.clusters.contains(&address)
    }

    /// Whether the mesh has nothing at an address, because it is outside of the mesh's ranges.
    pub(super) fn is_outside(&self, address: IpAddr) -> bool {
        self.others.is_outside(address)
    }

    /// Whether connections to an address lead to that port.
    pub(super) fn leads_to(&self, address: SocketAddr, index: PortIndex) -> bool {
        let found = self.services.get(&address);
        found == Some(&index) || self.endpoints.get(&address) == Some(&index)
    }

    /// The address that Services list: for a further address of a workload of another node, its first address; else the
    /// address itself.
    pub(crate) fn known_as(&self, address: SocketAddr) -> SocketAddr {
        let is_here = self.of_workloads.workloads.contains_key(&address.ip());
        match self.others.further.get(&address.ip()) {
            Some(first) if !is_here => SocketAddr::new(*first, address.port()),
            _ => address,
        }
    }

    /// The address of the other family of a workload of this node, if it has one.
    pub(crate) fn beside(&self, address: IpAddr) -> Option<Beside<'_>> {
        let workload = self.of_workloads.workloads.get(&address)?;
        let address = self.of(workload, !address.is_ipv4())?;
        Some(Beside { workload, address })
    }

    /// Whether `workload` is on this node.
    pub(crate) fn has(&self, workload: &WorkloadName) -> bool {
        self.of_workloads.hosted.contains_key(workload)
    }

    /// The address that Services list for a workload of this node.
    pub(crate) fn first_of(&self, workload: &WorkloadName) -> Option<IpAddr> {
        self.of_workloads.hosted.get(workload)?.first().copied()
    }

    /// Whether an address is one of a workload of this node.
    pub(crate) fn is_of(&self, address: IpAddr, workload: &WorkloadName) -> bool {
        let all = self.of_workloads.hosted.get(workload);
        all.is_some_and(|all| all.contains(&address))
    }

    /// An address of a workload of this node, of one family.
    pub(crate) fn of(&self, workload: &WorkloadName, is_ipv4: bool) -> Option<IpAddr> {
        let mut all = self.of_workloads.hosted.get(workload)?.iter();
        all.find(|address| address.is_ipv4() == is_ipv4).copied()
    }
}

impl Others {
    /// Whether nothing of the mesh can be at an address.
    fn is_outside(&self, address: IpAddr) -> bool {
        let mut ranges = self.ranges.iter();
        !self.ranges.is_empty() && !ranges.any(|range| range.contains(address))
    }

    fn are_of(&self, mesh: &Mesh) -> bool {
        let (elsewhere, further) = (&self.elsewhere, &self.further);
        let mut pairs = mesh.further.iter();
        mesh.address_ranges == self.ranges
            && mesh.elsewhere.len() == elsewhere.len()
            && mesh.further.len() == further.len()
            && mesh.elsewhere.iter().all(|one| elsewhere.contains(one))
            && pairs.all(|(one, first)| further.get(one) == Some(first))
    }
}

impl WorkloadAddresses {
    fn new(mesh: &Mesh) -> Self {
        let mut addresses = WorkloadAddresses::default();
        for workload in &mesh.workloads {
            let all: Box<[IpAddr]> = workload.all_addresses().collect();
            if workload.proxy.is_envoy() {
                addresses.with_envoy.extend(&all);
            }
            for &address in &all {
                let name = workload.name.clone();
                addresses.workloads.entry(address).or_insert(name);
            }
            if !workload.proxy.is_envoy() {
                addresses.hosted.insert(workload.name.clone(), all);
            }
        }
        addresses
    }
}

#[cfg(test)]
mod tests;
