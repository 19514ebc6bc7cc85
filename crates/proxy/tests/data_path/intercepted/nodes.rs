//! Connections of pods to other nodes: either through the other node's proxy, or refused.

use std::net::{IpAddr, SocketAddr};

use heddle_model::{AppProtocol, Node, NodeName};
use heddle_proxy::Entry;

use super::bed::{ECHO, SERVICE, listener, mesh, name, settings};
use crate::nodes::pair::Pair;
use crate::policy::{allow, workload};
use crate::support::{Client, GET, Upstream, serve_at};

/// A connection of a pod of the calling node to this destination.
fn dial(pair: &Pair, id: u64, caller: &str, going: SocketAddr) -> Client {
    let socket = listener(Some(going));
    let address = socket.local_addr().unwrap();
    let entry = Entry::Outbound {
        caller: name(caller),
    };
    pair.calling.proxy.listen(id, socket, entry);
    Client::connect(address)
}

fn status(mut client: Client) -> u16 {
    client.ask(GET).status()
}

#[test]
fn a_service_and_its_endpoint_are_called_in_the_callers_name() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let mut pair = Pair::of(&settings(), mesh(endpoint, AppProtocol::Http));
    pair.guard(allow("shop"));
    for (id, going) in [(100, SERVICE), (200, endpoint)] {
        assert_eq!(status(dial(&pair, id, "shop", going)), 200);
        assert_eq!(status(dial(&pair, id + 1, "intruder", going)), 403);
    }
    let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    let requests = "heddle_http_requests_total";
    pair.calling.expect(requests, &labels, 2.0);
    pair.called.expect(requests, &labels, 2.0);
}

#[test]
fn bytes_go_to_the_endpoint_that_was_dialled_and_arrive_under_its_service() {
    let upstream = Upstream::at(ECHO);
    let mut pair = Pair::of(&settings(), mesh(upstream.address, AppProtocol::Tcp));
    pair.guard(allow("shop"));
    let mut client = dial(&pair, 100, "shop", upstream.address);
    client.send("hello");
    assert_eq!(upstream.accept().exact(5), b"hello");
    assert_eq!(dial(&pair, 101, "intruder", upstream.address).rest(), b"");
    assert!(upstream.is_quiet());
    let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    let connections = "heddle_tcp_connections_total";
    pair.called.expect(connections, &labels, 1.0);
}

#[test]
fn an_endpoint_of_another_node_is_called_by_each_of_its_addresses() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let mut mesh = mesh(endpoint, AppProtocol::Http);
    let further: IpAddr = "fd00::9".parse().unwrap();
    for workload in mesh.workloads.iter_mut() {
        if workload.name == name("echo") {
            workload.more_addresses = vec![further];
        }
    }
    let mut pair = Pair::of(&settings(), mesh);
    pair.guard(allow("shop"));
    let dialled = SocketAddr::new(further, endpoint.port());
    assert_eq!(status(dial(&pair, 100, "shop", dialled)), 200);
    assert_eq!(status(dial(&pair, 101, "intruder", dialled)), 403);
    let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    pair.called
        .expect("heddle_http_requests_total", &labels, 1.0);
    // A port that no Service has is refused at every address.
    let other = SocketAddr::new(further, 9);
    assert_eq!(dial(&pair, 102, "shop", other).rest(), b"");
    pair.calling.expect_rejected("port_of_no_service", 1.0);
}

#[test]
fn nothing_goes_to_a_workload_of_another_node_in_the_clear() {
    let (known, own, lonely) = (
        Upstream::at(ECHO),
        Upstream::at(ECHO),
        Upstream::at("127.30.0.7:0"),
    );
    let mut mesh = mesh(known.address, AppProtocol::Tcp);
    // A workload of no Service, with a second address.
    let mut other = workload("lonely", lonely.address);
    other.more_addresses = vec![IpAddr::from([127, 30, 1, 7])];
    other.node = Some(NodeName::parse("called").unwrap());
    mesh.put_workload(other.into());
    let mut pair = Pair::of(&settings(), mesh);
    for workload in pair.mesh.workloads.iter_mut() {
        if workload.name == name("lonely") {
            workload.node = Some(NodeName::parse("called").unwrap());
        }
    }
    pair.apply(&pair.mesh);
    let further = SocketAddr::from(([127, 30, 1, 7], 80));
    let refused = [own.address, lonely.address, further];
    for (id, going) in (100..).zip(refused) {
        assert_eq!(dial(&pair, id, "shop", going).rest(), b"", "{going}");
    }
    pair.calling.expect_rejected("port_of_no_service", 3.0);
    assert!(own.is_quiet() && lonely.is_quiet());

    // A connection to a workload whose node is unknown is refused, too.
    pair.mesh.nodes = vec![Node {
        name: NodeName::parse("calling").unwrap(),
        address: ([127, 0, 0, 1], 1).into(),
    }];
    pair.apply(&pair.mesh);
    assert_eq!(dial(&pair, 200, "shop", known.address).rest(), b"");
    assert_eq!(dial(&pair, 201, "shop", SERVICE).rest(), b"");
    pair.calling.expect_rejected("endpoint_gone", 1.0);
    pair.calling.expect_rejected("no_endpoint", 1.0);
    assert!(known.is_quiet());
}
