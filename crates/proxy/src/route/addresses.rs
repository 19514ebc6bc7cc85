//! Finds what the mesh has at an address: for connections whose destination is an address and not a name.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use foldhash::fast::RandomState;
use heddle_model::{AppProtocol, Mesh, Service, ServicePort, WorkloadName};

use super::PortIndex;

/// Everything of a mesh that has an address.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    services: HashMap<SocketAddr, PortIndex, RandomState>,
    clusters: HashSet<IpAddr, RandomState>,
    endpoints: HashMap<SocketAddr, PortIndex, RandomState>,
    /// Workloads of this node.
    workloads: HashMap<IpAddr, WorkloadName, RandomState>,
    hosted: HashMap<WorkloadName, Box<[IpAddr]>, RandomState>,
    /// Addresses of workloads of other nodes.
    elsewhere: HashSet<IpAddr, RandomState>,
    /// Their further addresses, each with the address that Services list.
    further: HashMap<IpAddr, IpAddr, RandomState>,
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
    /// A port of a workload of another node that belongs to no Service.
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
    /// `ports` come in the order of their indices.
    pub(super) fn new<'m>(
        mesh: &'m Mesh,
        ports: impl Iterator<Item = (PortIndex, &'m Service, &'m ServicePort)>,
    ) -> Self {
        let mut addresses = Addresses::default();
        let mut ranks: HashMap<SocketAddr, (bool, bool), RandomState> = HashMap::default();
        for (index, service, port) in ports {
            for &address in &service.addresses {
                let address = SocketAddr::new(address, port.port);
                addresses.services.insert(address, index);
            }
            // If several Services have this endpoint, a headless one is preferred, because clients of a headless
            // Service dial endpoints directly; then one that declares its protocol; then the first by name.
            let is_declared = port.protocol != AppProtocol::Undeclared;
            let rank = (service.headless, is_declared);
            for endpoint in &port.endpoints {
                let address = endpoint.address;
                if ranks.get(&address).is_none_or(|&before| before < rank) {
                    ranks.insert(address, rank);
                    addresses.endpoints.insert(address, index);
                }
                if endpoint.workload.is_none() && endpoint.node.is_some() {
                    addresses.elsewhere.insert(address.ip());
                }
            }
        }
        let clusters = mesh.services.iter().flat_map(|service| &service.addresses);
        addresses.clusters.extend(clusters);
        addresses.elsewhere.extend(&mesh.elsewhere);
        addresses.further.extend(mesh.further.iter().copied());
        for workload in &mesh.workloads {
            let all: Box<[IpAddr]> = workload.all_addresses().collect();
            for &address in &all {
                let name = workload.name.clone();
                addresses.workloads.entry(address).or_insert(name);
            }
            addresses.hosted.insert(workload.name.clone(), all);
        }
        addresses
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
        } else if let Some(workload) = self.workloads.get(&ip) {
            Found::Workload(workload)
        } else if self.elsewhere.contains(&ip) {
            Found::Elsewhere
        } else {
            Found::Outside
        }
    }

    /// Whether all that the mesh has at an address is known without having asked for it: of workloads of this node, since
    /// their Services are always known, and of known Services.
    pub(super) fn is_settled(&self, address: IpAddr) -> bool {
        self.workloads.contains_key(&address) || self.clusters.contains(&address)
    }

    /// The cluster addresses of some ports, and those of their endpoints.
    pub(super) fn of_ports(
        &self,
        is_one: impl Fn(PortIndex) -> bool,
    ) -> impl Iterator<Item = IpAddr> {
        let services = self.services.iter().chain(&self.endpoints);
        let chosen = services.filter(move |(_, index)| is_one(**index));
        chosen.map(|(address, _)| address.ip())
    }

    /// The address that Services list: for a further address of a workload of another node, its first address; else the
    /// address itself.
    pub(crate) fn known_as(&self, address: SocketAddr) -> SocketAddr {
        let is_here = self.workloads.contains_key(&address.ip());
        match self.further.get(&address.ip()) {
            Some(first) if !is_here => SocketAddr::new(*first, address.port()),
            _ => address,
        }
    }

    /// The address of the other family of a workload of this node, if it has one.
    pub(crate) fn beside(&self, address: IpAddr) -> Option<Beside<'_>> {
        let workload = self.workloads.get(&address)?;
        let address = self.of(workload, !address.is_ipv4())?;
        Some(Beside { workload, address })
    }

    /// Whether `workload` is on this node.
    pub(crate) fn has(&self, workload: &WorkloadName) -> bool {
        self.hosted.contains_key(workload)
    }

    /// The address that Services list for a workload of this node.
    pub(crate) fn first_of(&self, workload: &WorkloadName) -> Option<IpAddr> {
        self.hosted.get(workload)?.first().copied()
    }

    /// Whether an address is one of a workload of this node.
    pub(crate) fn is_of(&self, address: IpAddr, workload: &WorkloadName) -> bool {
        let all = self.hosted.get(workload);
        all.is_some_and(|all| all.contains(&address))
    }

    /// An address of a workload of this node, of one family.
    pub(crate) fn of(&self, workload: &WorkloadName, is_ipv4: bool) -> Option<IpAddr> {
        let mut all = self.hosted.get(workload)?.iter();
        all.find(|address| address.is_ipv4() == is_ipv4).copied()
    }
}

#[cfg(test)]
mod tests;
