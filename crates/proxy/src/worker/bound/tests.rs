use heddle_model::{Mesh, Node, NodeName, ServiceName};
use heddle_telemetry::Registry;

use super::*;
use crate::balance::{FULL_SHARE, Load};
use crate::settings::Bounds;
use crate::testing::service;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 8080).into()
}

/// A mesh of Services with one endpoint each, on another node.
fn mesh(services: &[(&str, u8)]) -> Mesh {
    let node = NodeName::parse("there").unwrap();
    let services = services.iter().map(|(name, last)| {
        let mut service = service(name, address(*last), Some(node.clone()));
        let endpoint = &mut service.ports[0].endpoints[0];
        endpoint.remote_workload = endpoint.workload.take();
        service.into()
    });
    Mesh {
        services: services.collect(),
        nodes: vec![Node {
            name: node.clone(),
            address: ([192, 0, 2, 1], 1).into(),
        }],
        ..Mesh::default()
    }
}

fn follow(bound: &Bound, mesh: &Mesh) -> Bound {
    let snapshot = bound.snapshot.followed_by(mesh, |_, _, _| {});
    bound.followed_by(Arc::new(snapshot))
}

fn port(bound: &Bound, name: &str) -> PortIndex {
    let service = ServiceName::new("test", name).unwrap();
    bound.snapshot.find(&service, 80).unwrap()
}

fn begun(mesh: &Mesh) -> (Bound, Rc<Upstreams>) {
    let stats = Registry::new().worker(&[]);
    let upstreams = Rc::new(Upstreams::new(Bounds::default(), 1_000, stats));
    let bound = Bound::new(
        Arc::new(Snapshot::new(mesh)),
        Arc::default(),
        Rc::clone(&upstreams),
    );
    (bound, upstreams)
}

const IDLE: Load = Load {
    cost: 1,
    share: FULL_SHARE,
    avoid: false,
    full: false,
};

/// Uses a port once.
fn choose(bound: &Bound, name: &str) -> Rc<Endpoint> {
    let port = port(bound, name);
    let mut random = Random::new(1);
    let Choice::At(index) = bound.choose(port, &mut random, None, |_, _| IDLE) else {
        panic!("an endpoint");
    };
    Rc::clone(bound.endpoint(port, index).unwrap())
}

#[test]
fn the_endpoints_of_a_port_are_looked_up_when_it_is_used_and_stay() {
    let mut mesh = mesh(&[("a", 1), ("b", 2), ("c", 3)]);
    let (mut bound, upstreams) = begun(&mesh);
    let is_known = |bound: &Bound, name| {
        let its = &bound.ports[port(bound, name).get()];
        its.endpoints.get().is_some()
    };
    let id = choose(&bound, "a").id;
    assert!(is_known(&bound, "a") && !is_known(&bound, "b"));
    // Another Service changes.
    let more = mesh.services[2].ports[0].endpoints.clone();
    mesh.services[1].ports[0].endpoints.clear();
    bound = follow(&bound, &mesh);
    upstreams.forget_unused();
    assert!(is_known(&bound, "a") && !is_known(&bound, "b"));
    assert_eq!(choose(&bound, "a").id, id);
    // The Service changes, and still has the endpoint.
    mesh.services[0].ports[0].endpoints.extend(more);
    bound = follow(&bound, &mesh);
    upstreams.forget_unused();
    assert!(is_known(&bound, "a"));
    let index = port(&bound, "a");
    assert_eq!(bound.at(index, address(1)).unwrap().id, id);
    assert_eq!(bound.ports[index.get()].turn.get(), 2, "turns go on");
}

#[test]
fn a_port_that_gets_the_index_of_another_begins_anew() {
    let first = mesh(&[("a", 1)]);
    let (bound, _upstreams) = begun(&first);
    let index = port(&bound, "a");
    choose(&bound, "a");
    let bound = follow(&bound, &mesh(&[("b", 2)]));
    assert_eq!(port(&bound, "b"), index);
    assert_eq!(bound.ports[index.get()].turn.get(), 0);
    assert_eq!(choose(&bound, "b").address, address(2));
}

/// An idle connection may come from another Worker before this one has used the port.
#[test]
fn what_comes_for_a_port_finds_its_entries() {
    let (bound, upstreams) = begun(&mesh(&[("a", 1)]));
    let place = bound.snapshot.port(port(&bound, "a")).cluster.endpoints[0].clone();
    bound.expect(&place);
    let id = upstreams.endpoint(&place).id;
    upstreams.forget_unused();
    assert_eq!(choose(&bound, "a").id, id);
}
