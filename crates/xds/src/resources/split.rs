//! The resources of a mesh.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{Mesh, NodeName, Service, ServicePort, Workload, WorkloadName};

use super::{AddressOf, EndpointOf, Holder, Resource, Settings};

/// All resources of the whole mesh, as the control plane has it: [`Mesh::elsewhere`] and [`Mesh::further`] are empty,
/// and endpoints have their workload in [`heddle_model::Endpoint::workload`]. Types are in order, and the resources of
/// each type are in the order of the mesh, except that endpoints follow their Service.
pub fn split(mesh: &Mesh) -> impl Iterator<Item = Resource> + '_ {
    let mut holders = Holders::default();
    for workload in &mesh.workloads {
        holders.add(workload);
    }
    let addresses: BTreeSet<IpAddr> = holders.take_changed();
    let addresses = addresses.into_iter();
    let addresses = addresses.filter_map(move |address| holders.resource(address));
    std::iter::once(of_mesh(mesh))
        .chain(mesh.nodes.iter().cloned().map(Resource::Node))
        .chain(addresses)
        .chain(mesh.policies.iter().map(Arc::clone).map(Resource::Policy))
        .chain(mesh.workloads.iter().cloned().map(Resource::Workload))
        .chain(mesh.services.iter().flat_map(|service| of_service(service)))
}

/// What holds for the whole mesh.
pub fn of_mesh(mesh: &Mesh) -> Resource {
    let mut workloads = mesh.workloads.iter();
    Resource::MeshSettings(Settings {
        trust_domain: mesh.trust_domain.clone(),
        single_node: workloads.all(|workload| workload.node.is_none()),
        address_ranges: mesh.address_ranges.clone(),
        forwarding: mesh.forwarding.clone(),
    })
}

/// A Service and its endpoints.
pub fn of_service(service: &Service) -> impl Iterator<Item = Resource> + '_ {
    let endpoints = service.ports.iter().flat_map(|port| {
        let endpoints = port.endpoints.iter();
        endpoints.map(|endpoint| EndpointOf {
            service: service.name.clone(),
            port: port.port,
            endpoint: endpoint.clone(),
        })
    });
    std::iter::once(Resource::Service(without_endpoints(service)))
        .chain(endpoints.map(Resource::Endpoint))
}

/// Which workloads have which address, as workloads come and go. Nearly every address has one.
#[derive(Debug, Default)]
pub struct Holders {
    /// In the order of their workloads' names.
    by_address: HashMap<IpAddr, Vec<Holder>>,
    /// Addresses whose resources may have changed.
    changed: BTreeSet<IpAddr>,
}

impl Holders {
    /// A workload has come.
    pub fn add(&mut self, workload: &Workload) {
        for address in workload.all_addresses() {
            let holder = Holder {
                workload: workload.name.clone(),
                node: workload.node.clone(),
                first: (address != workload.address).then_some(workload.address),
            };
            let holders = self.by_address.entry(address).or_default();
            match position(holders, &workload.name) {
                Ok(at) => holders[at] = holder,
                Err(at) => {
                    holders.reserve_exact(1);
                    holders.insert(at, holder);
                }
            }
            self.changed.insert(address);
        }
    }

    /// A workload has gone.
    pub fn remove(&mut self, workload: &Workload) {
        for address in workload.all_addresses() {
            if let Some(holders) = self.by_address.get_mut(&address) {
                if let Ok(at) = position(holders, &workload.name) {
                    holders.remove(at);
                }
                if holders.is_empty() {
                    self.by_address.remove(&address);
                }
            }
            self.changed.insert(address);
        }
    }

    /// The addresses with a change since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.changed)
    }

    /// The nodes whose workloads have an address; one may come several times.
    pub fn nodes(&self, address: IpAddr) -> impl Iterator<Item = &NodeName> {
        let holders = self.by_address.get(&address).into_iter().flatten();
        holders.filter_map(|holder| holder.node.as_ref())
    }

    /// The resource of an address, if a workload has it.
    pub fn resource(&self, address: IpAddr) -> Option<Resource> {
        let holders = self.by_address.get(&address)?.clone();
        Some(Resource::Address(AddressOf { address, holders }))
    }
}

/// Where a workload is among the holders of an address, or belongs.
fn position(holders: &[Holder], workload: &WorkloadName) -> Result<usize, usize> {
    holders.binary_search_by(|holder| holder.workload.cmp(workload))
}

fn without_endpoints(service: &Service) -> Service {
    let port = |port: &ServicePort| ServicePort {
        name: port.name.clone(),
        port: port.port,
        protocol: port.protocol,
        endpoints: Vec::new(),
        routes: port.routes.clone(),
        consumer_routes: port.consumer_routes.clone(),
    };
    Service {
        name: service.name.clone(),
        headless: service.headless,
        addresses: service.addresses.clone(),
        balancer: service.balancer,
        balancing: service.balancing.clone(),
        ports: service.ports.iter().map(port).collect(),
    }
}
