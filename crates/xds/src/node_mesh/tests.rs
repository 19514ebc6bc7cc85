mod names;

use std::net::SocketAddr;

use heddle_model::{Dependency, DependencyState, Node, NodeName, ServiceName, Shared, TrustDomain};

use super::{MAX_MESH_BYTES, MAX_VERSIONS_BYTES, NodeMesh, Update};
use crate::delta::WILDCARD;
use crate::proto::{DiscoveryRequest, DiscoveryResponse, Mark, Resource as Sent};
use crate::resources::{Resource, Settings, Type};

fn own() -> NodeName {
    NodeName::parse("own").unwrap()
}

/// A node of the mesh, as a resource.
fn node(name: &str, port: u16) -> Resource {
    Resource::Node(Node {
        name: NodeName::parse(name).unwrap(),
        address: SocketAddr::from(([192, 0, 2, 1], port)),
    })
}

fn settings() -> Resource {
    Resource::MeshSettings(Settings {
        trust_domain: TrustDomain::parse("cluster.local").unwrap(),
        single_node: false,
        address_ranges: Vec::new(),
        forwarding: Shared::default(),
    })
}

fn sent(resource: &Resource, version: &str) -> Sent {
    Sent {
        name: resource.name(),
        version: version.to_owned(),
        content: resource.encode(),
    }
}

fn response(kind: Type, resources: Vec<Sent>, nonce: &str) -> DiscoveryResponse {
    DiscoveryResponse {
        type_url: kind.type_url().to_owned(),
        resources,
        removed: Vec::new(),
        nonce: nonce.to_owned(),
        mark: None,
    }
}

fn mark(generation: u64) -> DiscoveryResponse {
    mark_of("first", generation, 0)
}

/// A mark that covers so many of the node's messages.
fn mark_of(epoch: &str, generation: u64, requests: u64) -> DiscoveryResponse {
    DiscoveryResponse {
        mark: Some(Mark {
            epoch: epoch.to_owned(),
            generation,
            requests,
        }),
        ..DiscoveryResponse::default()
    }
}

/// The first response of a call: the settings of the mesh.
fn first() -> DiscoveryResponse {
    response(Type::MeshSettings, vec![sent(&settings(), "1")], "1")
}

/// The ports of the nodes, which tell their versions apart.
fn ports(update: &Update) -> Vec<u16> {
    let nodes = update.mesh.nodes.iter();
    nodes.map(|node| node.address.port()).collect()
}

/// Everything that the node has to say.
fn said(mesh: &mut NodeMesh) -> Vec<DiscoveryRequest> {
    std::iter::from_fn(|| mesh.request()).collect()
}

/// A node that has settings and the nodes `a` and `b`.
fn begun() -> NodeMesh {
    let mut mesh = NodeMesh::new(own());
    mesh.connected();
    assert_eq!(said(&mut mesh).len(), Type::ALL.len());
    let all = response(Type::MeshSettings, vec![sent(&settings(), "1")], "1");
    assert_eq!(mesh.accept(all), Ok(None));
    let nodes = vec![sent(&node("a", 1), "1"), sent(&node("b", 1), "1")];
    assert_eq!(mesh.accept(response(Type::Node, nodes, "1")), Ok(None));
    let update = mesh.accept(mark(1)).unwrap().unwrap();
    assert_eq!(
        (update.epoch.as_str(), update.mesh.generation),
        ("first", 1)
    );
    assert_eq!(update.mesh.nodes.len(), 2);
    said(&mut mesh);
    mesh
}

#[test]
fn what_comes_is_used_at_the_mark() {
    let mut mesh = begun();
    let changed = vec![sent(&node("a", 2), "2")];
    assert_eq!(mesh.accept(response(Type::Node, changed, "2")), Ok(None));
    let mut gone = response(Type::Node, Vec::new(), "3");
    gone.removed = vec!["b".to_owned()];
    gone.mark = mark(2).mark;
    let update = mesh.accept(gone).unwrap().unwrap();
    let ports = ports(&update);
    assert_eq!((update.mesh.generation, ports), (2, vec![2]));
    let nonces: Vec<String> = said(&mut mesh).into_iter().map(|said| said.nonce).collect();
    assert_eq!(nonces, ["2", "3"]);
    // The same once more is no news; another generation of the same is told.
    assert_eq!(mesh.accept(mark(2)), Ok(None));
    assert!(mesh.accept(mark(3)).unwrap().is_some());
}

#[test]
fn a_resource_that_is_not_understood_is_refused_by_itself() {
    let mut mesh = begun();
    let broken = Sent {
        name: "a".to_owned(),
        version: "2".to_owned(),
        content: vec![0xff].into(),
    };
    let both = vec![broken, sent(&node("b", 2), "2")];
    mesh.accept(response(Type::Node, both, "2")).unwrap();
    let update = mesh.accept(mark(2)).unwrap().unwrap();
    let ports = ports(&update);
    assert_eq!(ports, [1, 2], "the last good one stays");
    let [answer] = &said(&mut mesh)[..] else {
        panic!("one answer");
    };
    assert!(
        answer.nonce == "2" && answer.refused.starts_with("a: "),
        "{answer:?}"
    );
}

#[test]
fn a_workload_that_is_not_understood_is_named_until_it_is_or_is_gone() {
    let mut mesh = begun();
    let workload = |name: &str, content: Vec<u8>| Sent {
        name: name.to_owned(),
        version: "2".to_owned(),
        content: content.into(),
    };
    let broken = vec![
        workload("shop/web", vec![0xff]),
        workload("shop/cart", vec![0xff]),
    ];
    mesh.accept(response(Type::Workload, broken, "2")).unwrap();
    let update = mesh.accept(mark(2)).unwrap().unwrap();
    let names = |update: &Update| {
        let names = update.mesh.unreadable.iter();
        names.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(&update), ["shop/cart", "shop/web"]);
    assert_eq!(update.mesh.check_part(), Ok(()));
    let mut gone = response(Type::Workload, Vec::new(), "3");
    gone.removed = vec!["shop/web".to_owned()];
    mesh.accept(gone).unwrap();
    let update = mesh.accept(mark(3)).unwrap().unwrap();
    assert_eq!(names(&update), ["shop/cart"]);
}

#[test]
fn what_breaks_the_protocol_ends_the_call() {
    let mut unknown = response(Type::Node, Vec::new(), "2");
    unknown.type_url = "heddle.v1.Unknown".to_owned();
    let mut long = mark(2);
    long.mark.as_mut().unwrap().epoch = "x".repeat(65);
    for broken in [unknown, long] {
        assert!(begun().accept(broken).is_err());
    }
    let mut empty = NodeMesh::new(own());
    empty.connected();
    assert!(empty.accept(mark(1)).is_err(), "no settings");
}

#[test]
fn a_mesh_that_is_too_large_is_forgotten_so_that_a_smaller_one_is_taken() {
    let mut mesh = begun();
    mesh.bytes = MAX_MESH_BYTES + 1;
    assert!(mesh.accept(mark(2)).is_err());
    mesh.connected();
    let requests = said(&mut mesh);
    assert!(requests.iter().all(|one| one.initial_versions.is_empty()));
    let all = response(Type::MeshSettings, vec![sent(&settings(), "1")], "1");
    assert_eq!(mesh.accept(all), Ok(None));
    let update = mesh.accept(mark(3)).unwrap().unwrap();
    assert!(update.mesh.nodes.is_empty());
}

#[test]
fn what_a_failed_call_has_hidden_is_told_again() {
    let mut mesh = begun();
    mesh.connected();
    mesh.tell_again();
    assert!(mesh.accept(mark(1)).unwrap().is_some());
}

/// A resource that was refused in a call that began anew has no version that the next call could send.
#[test]
fn a_node_without_the_version_of_what_it_knows_begins_anew() {
    let mut mesh = begun();
    mesh.types[Type::Node as usize] = crate::delta::Subscription::new(true);
    mesh.connected();
    let requests = said(&mut mesh);
    assert!(requests.iter().all(|one| one.initial_versions.is_empty()));
}

#[test]
fn the_next_call_begins_with_versions() {
    let mut mesh = begun();
    mesh.connected();
    let requests = said(&mut mesh);
    let of_nodes = &requests[Type::Node as usize];
    assert_eq!(of_nodes.subscribe, [WILDCARD]);
    let names: Vec<&str> = of_nodes
        .initial_versions
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    // The control plane has nothing new: nothing is used anew.
    assert_eq!(mesh.accept(mark(1)), Ok(None));
}

#[test]
fn a_node_that_knows_too_much_begins_anew_and_keeps_what_it_uses_until_the_mark() {
    let mut mesh = begun();
    let many = MAX_VERSIONS_BYTES / 16;
    let nodes = (0..many).map(|number| sent(&node(&format!("n{number}"), 1), "1"));
    mesh.accept(response(Type::Node, nodes.collect(), "2"))
        .unwrap();
    let update = mesh.accept(mark(2)).unwrap().unwrap();
    assert_eq!(update.mesh.nodes.len(), many + 2);

    for _ in 0..2 {
        mesh.connected();
        let requests = said(&mut mesh);
        assert!(requests.iter().all(|one| one.initial_versions.is_empty()));
        let all = response(Type::MeshSettings, vec![sent(&settings(), "1")], "1");
        mesh.accept(all).unwrap();
        // The second call is the one that brings all.
    }
    let nodes = vec![sent(&node("a", 3), "3")];
    mesh.accept(response(Type::Node, nodes, "1")).unwrap();
    let update = mesh.accept(mark(3)).unwrap().unwrap();
    let ports = ports(&update);
    assert_eq!(ports, [3], "what has not come again does not exist");
    said(&mut mesh);
    mesh.connected();
    assert_eq!(
        said(&mut mesh)[Type::Node as usize].initial_versions.len(),
        1
    );
}

/// A control plane that serves no node on demand sends all Services, and gives no number of requests.
#[test]
fn an_older_control_plane_is_asked_for_everything() {
    let mut mesh = NodeMesh::on_demand(own());
    let address = Dependency::Address([10, 0, 0, 1].into());
    mesh.want(&address);
    mesh.connected();
    assert!(mesh.is_on_demand());
    said(&mut mesh);
    mesh.accept(first()).unwrap();
    assert_eq!(mesh.accept(mark(1)), Ok(None), "not without the addresses");
    let asked = said(&mut mesh);
    let all = |one: &DiscoveryRequest| {
        one.type_url == Type::Address.type_url()
            && one.subscribe.iter().any(|name| name == WILDCARD)
    };
    assert!(asked.iter().any(all), "{asked:?}");
    let update = mesh.accept(mark(1)).unwrap().unwrap();
    assert_eq!(update.mesh.named, None, "it has everything");
    // The next one may be newer.
    mesh.connected();
    assert!(mesh.is_on_demand());
    let named = |one: &DiscoveryRequest| one.subscribe == ["10.0.0.1"];
    assert!(
        said(&mut mesh).iter().any(named),
        "what it uses is named again"
    );
    let update = mesh.accept(mark_of("second", 1, 9)).unwrap().unwrap();
    assert_eq!(update.mesh.named, Some(Vec::new().into()));
}

#[test]
fn what_is_said_before_a_name_is_read_is_no_answer() {
    let mut mesh = NodeMesh::on_demand(own());
    mesh.connected();
    let begun = said(&mut mesh).len() as u64;
    mesh.accept(first()).unwrap();
    let service = Dependency::Service(ServiceName::new("shop", "echo").unwrap());
    let mark = |requests| mark_of("first", 1, requests);
    mesh.accept(mark(begun)).unwrap().unwrap();
    said(&mut mesh);
    mesh.want(&service);
    // About an earlier use of the same name.
    let mut gone = response(Type::Service, Vec::new(), "1");
    gone.removed = vec!["shop/echo".to_owned()];
    mesh.accept(gone).unwrap();
    let update = mesh.accept(mark(begun + 1)).unwrap();
    assert!(update.is_none_or(|update| update.mesh.named == Some(Vec::new().into())));
    assert_eq!(mesh.state(&service), None);
    // The answer to the first response, and the name.
    let sent = said(&mut mesh).len() as u64;
    let update = mesh.accept(mark(begun + 1 + sent)).unwrap().unwrap();
    let named = vec![(service.clone(), DependencyState::Absent)];
    assert_eq!(update.mesh.named, Some(named.into()));
    mesh.forget(&service);
    let update = mesh.accept(mark(begun + 1 + sent)).unwrap().unwrap();
    assert_eq!(update.mesh.named, Some(Vec::new().into()));
}

/// An address that is no workload's is known by the Services that have it; while one of these cannot be read, it may be that
/// one's.
#[test]
fn an_address_is_there_if_a_service_has_it() {
    let mut mesh = NodeMesh::on_demand(own());
    let addresses = [1, 2].map(|last| Dependency::Address([10, 96, 0, last].into()));
    addresses.iter().for_each(|one| assert!(mesh.want(one)));
    mesh.connected();
    let begun = said(&mut mesh).len() as u64;
    mesh.accept(first()).unwrap();
    let mut absent = response(Type::Address, Vec::new(), "1");
    absent.removed = vec!["10.96.0.1".to_owned(), "10.96.0.2".to_owned()];
    mesh.accept(absent).unwrap();
    let service = Resource::Service(heddle_model::Service {
        name: ServiceName::new("shop", "echo").unwrap(),
        headless: false,
        addresses: vec![[10, 96, 0, 1].into()],
        balancer: Default::default(),
        balancing: Default::default(),
        ports: Vec::new(),
    });
    mesh.accept(response(Type::Service, vec![sent(&service, "1")], "1"))
        .unwrap();
    let marked = mark_of("first", 1, begun);
    mesh.accept(marked.clone()).unwrap().unwrap();
    let states = |mesh: &NodeMesh| addresses.each_ref().map(|one| mesh.state(one));
    use DependencyState::{Absent, There, Unreadable};
    assert_eq!(states(&mesh), [Some(There), Some(Absent)]);
    let broken = Sent {
        name: "shop/newer".to_owned(),
        version: "1".to_owned(),
        content: vec![0xff].into(),
    };
    mesh.accept(response(Type::Service, vec![broken], "2"))
        .unwrap();
    mesh.accept(marked.clone()).unwrap().unwrap();
    assert_eq!(states(&mesh), [Some(There), Some(Unreadable)]);
    let mut gone = response(Type::Service, Vec::new(), "3");
    gone.removed = vec!["shop/newer".to_owned()];
    mesh.accept(gone).unwrap();
    mesh.accept(marked).unwrap().unwrap();
    assert_eq!(states(&mesh), [Some(There), Some(Absent)]);
}
