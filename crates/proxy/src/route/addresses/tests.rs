use std::collections::BTreeMap;

use heddle_model::{
    Balancer, Endpoint, Mode, NodeName, Service, ServiceAccountName, ServiceName, ServicePort,
    Workload,
};

use super::*;
use crate::route::Snapshot;

fn endpoint(address: &str, place: Option<&str>) -> Endpoint {
    let account = ServiceAccountName::parse("a/default").unwrap();
    Endpoint {
        address: address.parse().unwrap(),
        weight: 1,
        max_requests: None,
        workload: None,
        remote_workload: None,
        account: place.map(|_| account),
        node: place.map(|node| NodeName::parse(node).unwrap()),
        has_envoy: false,
    }
}

fn service(name: &str, address: Option<&str>, protocol: AppProtocol, at: Vec<Endpoint>) -> Service {
    Service {
        name: ServiceName::parse(name).unwrap(),
        headless: address.is_none(),
        addresses: address
            .map(|text| text.parse().unwrap())
            .into_iter()
            .collect(),
        balancer: Balancer::default(),
        balancing: heddle_model::Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol,
            endpoints: at,
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

fn here(name: &str, addresses: &[&str]) -> Workload {
    let mut addresses = addresses.iter().map(|text| text.parse().unwrap());
    Workload {
        name: WorkloadName::parse(name).unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::parse("a/default").unwrap(),
        address: addresses.next().unwrap(),
        uses: Vec::new(),
        more_addresses: addresses.collect(),
        ports: Vec::new(),
        weight: 1,
        node: Some(NodeName::parse("here").unwrap()),
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    }
}

#[test]
fn every_address_of_a_mesh_is_found_as_what_it_is() {
    use AppProtocol::{Http, Tcp, Undeclared};
    let own = Endpoint {
        workload: Some(WorkloadName::parse("a/w").unwrap()),
        ..endpoint("10.0.0.1:8080", Some("here"))
    };
    let there = || endpoint("10.0.1.1:8080", Some("there"));
    let outside = || endpoint("192.0.2.1:5432", None);
    let mut mesh = Mesh {
        generation: 1,
        services: vec![
            service("a/1", Some("10.96.0.1"), Undeclared, vec![own, outside()]).into(),
            service("a/2", Some("fd00:96::2"), Http, vec![there(), outside()]).into(),
            service("a/3", Some("10.96.0.3"), Tcp, vec![outside()]).into(),
            service("a/4", None, Undeclared, vec![there()]).into(),
        ],
        workloads: vec![here("a/w", &["10.0.0.1", "fd00::1"]).into()].into(),
        ..Mesh::default()
    };
    mesh.elsewhere = vec!["10.0.1.9".parse().unwrap()];
    mesh.check_invariants().unwrap();
    let snapshot = Snapshot::new(&mesh);
    let port = |name: &str| {
        snapshot
            .find(&ServiceName::parse(name).unwrap(), 80)
            .unwrap()
    };
    let w = WorkloadName::parse("a/w").unwrap();
    let table = [
        ("10.96.0.1:80", Found::Service(port("a/1"))),
        ("[fd00:96::2]:80", Found::Service(port("a/2"))),
        ("10.96.0.1:81", Found::NoPort),
        ("10.0.0.1:8080", Found::Endpoint(port("a/1"))),
        ("10.0.0.1:9", Found::Workload(&w)),
        ("[fd00::1]:9", Found::Workload(&w)),
        // A headless Service is preferred, then one that declares its protocol, then the first by name.
        ("10.0.1.1:8080", Found::Endpoint(port("a/4"))),
        ("192.0.2.1:5432", Found::Endpoint(port("a/2"))),
        ("10.0.1.1:9", Found::Elsewhere),
        ("10.0.1.9:80", Found::Elsewhere),
        ("192.0.2.1:80", Found::Outside),
        ("[::1]:80", Found::Outside),
    ];
    for (address, found) in table {
        let address: SocketAddr = address.parse().unwrap();
        assert_eq!(snapshot.addresses.find(address), found, "{address}");
    }
    let addresses = &snapshot.addresses;
    assert_eq!(addresses.first_of(&w), Some([10, 0, 0, 1].into()));
    assert_eq!(addresses.of(&w, false), "fd00::1".parse().ok());
    let stranger = WorkloadName::parse("a/v").unwrap();
    assert!(addresses.has(&w) && !addresses.has(&stranger));
}
