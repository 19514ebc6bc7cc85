//! What the node has learned, and what each of it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use heddle_model::{Dependency, Mesh, Service};

use crate::status::LearnedStatus;

/// Adds the Services and endpoints that the mesh has of each, apart from those that their routes lead to.
pub(super) fn with_costs(
    learned: Vec<(Dependency, LearnedStatus)>,
    mesh: &Mesh,
) -> Vec<LearnedStatus> {
    let mut at: BTreeMap<IpAddr, Vec<&Service>> = BTreeMap::new();
    for service in &mesh.services {
        let ports = service.ports.iter().flat_map(|port| &port.endpoints);
        let endpoints = ports.map(|endpoint| endpoint.address.ip());
        let addresses = service.addresses.iter().copied().chain(endpoints);
        for address in addresses.collect::<BTreeSet<_>>() {
            at.entry(address).or_default().push(service);
        }
    }
    let each = learned.into_iter().map(|(dependency, status)| {
        let services = match &dependency {
            Dependency::Service(name) => mesh.service(name).into_iter().collect(),
            Dependency::Address(address) => at.get(address).cloned().unwrap_or_default(),
        };
        let ports = services.iter().flat_map(|service| &service.ports);
        LearnedStatus {
            services: services.len(),
            endpoints: ports.map(|port| port.endpoints.len()).sum(),
            ..status
        }
    });
    each.collect()
}
