//! Parts of meshes for the tests of several modules.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use heddle_model::{
    AppProtocol, Balancer, Balancing, Endpoint, Mode, NodeName, Service, ServiceAccountName,
    ServiceName, ServicePort, Workload, WorkloadName,
};

/// The service account `test/NAME`.
pub(crate) fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("test", name).unwrap()
}

/// The Service `test/NAME`, whose port 80 speaks HTTP and has one endpoint: the workload of the same name.
pub(crate) fn service(name: &str, endpoint: SocketAddr, node: Option<NodeName>) -> Service {
    Service {
        name: ServiceName::new("test", name).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::RoundRobin,
        balancing: Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: vec![Endpoint {
                address: endpoint,
                weight: 1,
                max_requests: None,
                workload: WorkloadName::new("test", name).ok(),
                remote_workload: None,
                account: Some(account(name)),
                node,
                has_envoy: false,
            }],
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

/// The workload `test/NAME`, with a service account of the same name.
pub(crate) fn workload(name: &str, address: SocketAddr, node: Option<NodeName>) -> Workload {
    Workload {
        name: WorkloadName::new("test", name).unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: account(name),
        address: address.ip(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}
