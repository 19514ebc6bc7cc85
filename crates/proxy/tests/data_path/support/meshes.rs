//! Meshes with one Service, `test/echo`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::{
    AppProtocol, Balancer, Balancing, Endpoint, Mesh, RouteRule, Service, ServiceName, ServicePort,
    WorkloadName,
};
use heddle_proxy::Entry;

pub(crate) fn service(name: &str, endpoints: &[SocketAddr]) -> Service {
    Service {
        name: ServiceName::parse(name).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::RoundRobin,
        balancing: Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: endpoints
                .iter()
                .map(|&address| Endpoint {
                    address,
                    weight: 1,
                    max_requests: None,
                    workload: None,
                    remote_workload: None,
                    account: None,
                    node: None,
                    has_envoy: false,
                })
                .collect(),
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

/// The echo Service with these endpoints and, if given, these rules.
pub(crate) fn mesh(endpoints: &[SocketAddr], routes: Option<Vec<RouteRule>>) -> Mesh {
    let mut echo = service("test/echo", endpoints);
    echo.ports[0].routes = routes;
    Mesh {
        generation: 1,
        services: vec![echo.into()],
        ..Mesh::default()
    }
}

/// The echo Service with endpoints of this protocol.
pub(crate) fn speaking(protocol: AppProtocol, endpoints: &[SocketAddr]) -> Mesh {
    let mut mesh = mesh(endpoints, None);
    mesh.services[0].ports[0].protocol = protocol;
    mesh
}

/// A listener for the echo Service and this caller.
pub(crate) fn echo_entry(caller: Option<WorkloadName>) -> Entry {
    Entry::Service {
        caller,
        service: ServiceName::parse("test/echo").unwrap(),
        port: 80,
    }
}
