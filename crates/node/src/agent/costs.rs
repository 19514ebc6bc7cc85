//! What a node has of the mesh because of what it has learned.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use heddle_model::{Dependency, Mesh, Service};

/// Finds the Services and endpoints of a mesh that belong to what a node has named.
pub(crate) struct Costs<'m> {
    mesh: &'m Mesh,
    at: BTreeMap<IpAddr, Vec<&'m Service>>,
}

impl<'m> Costs<'m> {
    pub(crate) fn new(mesh: &'m Mesh) -> Self {
        let mut at: BTreeMap<IpAddr, Vec<&Service>> = BTreeMap::new();
        for service in &mesh.services {
            let ports = service.ports.iter().flat_map(|port| &port.endpoints);
            let endpoints = ports.map(|endpoint| endpoint.address.ip());
            let addresses = service.addresses.iter().copied().chain(endpoints);
            for address in addresses.collect::<BTreeSet<_>>() {
                at.entry(address).or_default().push(service);
            }
        }
        Costs { mesh, at }
    }

    /// Numbers of Services and endpoints, without those that routes lead to.
    pub(crate) fn of(&self, dependency: &Dependency) -> (usize, usize) {
        let sum = |services: &[&Service]| {
            let ports = services.iter().flat_map(|service| &service.ports);
            let endpoints = ports.map(|port| port.endpoints.len()).sum();
            (services.len(), endpoints)
        };
        match dependency {
            Dependency::Service(name) => sum(self.mesh.service(name).as_slice()),
            Dependency::Address(address) => sum(self.at.get(address).map_or(&[], Vec::as_slice)),
        }
    }
}
