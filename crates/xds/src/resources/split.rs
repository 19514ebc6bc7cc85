//! The resources of a mesh.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use heddle_model::{Mesh, Service, ServicePort};

use super::{AddressOf, EndpointOf, Holder, Resource, Settings};

/// All resources of the whole mesh, as the control plane has it: [`Mesh::elsewhere`] and [`Mesh::further`] are empty,
/// and endpoints have their workload in [`heddle_model::Endpoint::workload`]. Types are in order, and the resources of
/// each type are in the order of the mesh.
pub fn split(mesh: &Mesh) -> impl Iterator<Item = Resource> + '_ {
    let workloads = mesh.workloads.iter();
    let settings = Settings {
        trust_domain: mesh.trust_domain.clone(),
        single_node: workloads.clone().all(|workload| workload.node.is_none()),
    };
    let nodes = mesh.nodes.iter().cloned().map(Resource::Node);
    let policies = mesh.policies.iter().map(Arc::clone).map(Resource::Policy);
    let services = mesh
        .services
        .iter()
        .map(|service| without_endpoints(service));
    std::iter::once(Resource::MeshSettings(settings))
        .chain(nodes)
        .chain(addresses(mesh).map(Resource::Address))
        .chain(policies)
        .chain(workloads.cloned().map(Resource::Workload))
        .chain(services.map(Resource::Service))
        .chain(endpoints(mesh).map(Resource::Endpoint))
}

fn addresses(mesh: &Mesh) -> impl Iterator<Item = AddressOf> + use<> {
    let mut addresses: BTreeMap<IpAddr, Vec<Holder>> = BTreeMap::new();
    // Workloads are sorted by name, so holders are, too.
    for workload in &mesh.workloads {
        for address in workload.all_addresses() {
            addresses.entry(address).or_default().push(Holder {
                workload: workload.name.clone(),
                node: workload.node.clone(),
                first: (address != workload.address).then_some(workload.address),
            });
        }
    }
    addresses
        .into_iter()
        .map(|(address, holders)| AddressOf { address, holders })
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

fn endpoints(mesh: &Mesh) -> impl Iterator<Item = EndpointOf> + '_ {
    let ports = mesh.services.iter().flat_map(|service| {
        let ports = service.ports.iter();
        ports.map(move |port| (service, port))
    });
    ports.flat_map(|(service, port)| {
        let endpoints = port.endpoints.iter();
        endpoints.map(move |endpoint| EndpointOf {
            service: service.name.clone(),
            port: port.port,
            endpoint: endpoint.clone(),
        })
    })
}
