//! Outbound connections of pods.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use heddle_model::{AppProtocol, Endpoint, ServiceName};
use heddle_proxy::Entry;

use super::bed::{ECHO, SERVICE, Steered, going_to, mesh, name};
use crate::dialled::{WITHOUT_HOST, host_seen};
use crate::policy::{account, allow, with};
use crate::support::{Client, GET, Upstream, serve_at, service};

#[test]
fn a_services_address_is_the_service() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let mesh = with(mesh(endpoint, AppProtocol::Http), allow("shop"));
    let steered = Steered::new(&mesh, &["echo", "shop"]);
    assert_eq!(steered.get(steered.dial("shop", SERVICE), "/"), 200);
    assert_eq!(steered.get(steered.dial("intruder", SERVICE), "/"), 403);
    let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    steered.expect("heddle_http_requests_total", &labels, 1.0);
    // Pooled connections for requests do not show a client's address.
    steered.expect_asked(&[(1, None)]);
}

#[test]
fn a_request_without_host_gets_what_was_dialled() {
    let endpoint = serve_at(ECHO, |head| head.to_owned());
    for protocol in [AppProtocol::Http, AppProtocol::Undeclared] {
        let steered = Steered::new(&mesh(endpoint, protocol), &["echo"]);
        for request in WITHOUT_HOST {
            let host = host_seen(steered.dial("shop", SERVICE), request);
            assert_eq!(host, "echo.test", "{request:?}");
            let host = host_seen(steered.dial("shop", endpoint), request);
            assert_eq!(host, endpoint.to_string(), "{request:?}");
            let host = host_seen(steered.arrive("echo", endpoint), request);
            assert_eq!(host, endpoint.to_string(), "{request:?}");
        }
    }
    // A destination outside the mesh gets the bytes unchanged.
    let outside = Upstream::at("127.0.0.1:0");
    let steered = Steered::new(&mesh(endpoint, AppProtocol::Http), &["shop"]);
    let _client = steered
        .dial("shop", outside.address)
        .sending(WITHOUT_HOST[0]);
    assert_eq!(outside.accept().head(), WITHOUT_HOST[0]);
}

#[test]
fn a_port_that_a_service_does_not_have_is_refused() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Tcp, &[]);
    assert_eq!(steered.dial("shop", (SERVICE.ip(), 81).into()).rest(), b"");
    steered.expect_rejected("unknown_port", 1.0);
    assert!(upstream.is_quiet());
}

#[test]
fn an_endpoints_own_address_is_exactly_that_endpoint() {
    for protocol in [AppProtocol::Tcp, AppProtocol::Http, AppProtocol::Undeclared] {
        let (one, other) = (Upstream::at(ECHO), Upstream::at("127.30.0.8:0"));
        let mut mesh = mesh(one.address, protocol);
        // The second endpoint is outside the mesh, and of the same Service.
        let endpoints = &mut mesh.services[0].ports[0].endpoints;
        endpoints.push(Endpoint {
            address: other.address,
            workload: None,
            remote_workload: None,
            account: None,
            ..endpoints[0].clone()
        });
        endpoints.sort_by_key(|endpoint| endpoint.address);
        mesh.check_invariants().unwrap();
        let steered = Steered::new(&mesh, &["echo"]);
        for upstream in [&one, &other, &one, &other] {
            let mut client = steered.dial("shop", upstream.address).sending(GET);
            let mut server = upstream.accept();
            assert!(server.head().starts_with("GET / HTTP/1.1"));
            // A request that is not answered may be tried again.
            server.answer("ok");
            assert_eq!(client.response().text(), "ok");
        }
        assert!(one.is_quiet() && other.is_quiet(), "{protocol:?}");
    }
}

#[test]
fn policies_stand_before_every_port_of_a_workload() {
    // The workload has two ports, of which one belongs to a Service; the test dials each by the pod's address.
    let (known, own) = (Upstream::at(ECHO), Upstream::at(ECHO));
    let mesh = with(mesh(known.address, AppProtocol::Tcp), allow("shop"));
    let steered = Steered::new(&mesh, &["echo"]);
    for upstream in [&known, &own] {
        let _client = steered.dial("shop", upstream.address).sending("hello");
        assert_eq!(upstream.accept().exact(5), b"hello");
        assert_eq!(steered.dial("intruder", upstream.address).rest(), b"");
        assert!(upstream.is_quiet());
    }
    steered.expect_rejected("policy_denied", 2.0);
    let own = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    steered.expect("heddle_tcp_connections_total", &own, 2.0);
}

#[test]
fn what_is_under_way_to_a_port_of_no_service_ends_when_it_is_not_allowed_any_more() {
    let (known, own) = (Upstream::at(ECHO), Upstream::at(ECHO));
    let open = mesh(known.address, AppProtocol::Tcp);
    let steered = Steered::new(&open, &["echo"]);
    let mut client = steered.dial("intruder", own.address).sending("hello");
    let mut server = own.accept();
    assert_eq!(server.exact(5), b"hello");
    steered.apply(&with(open, allow("shop")));
    assert_eq!(client.rest(), b"");
    assert_eq!(server.rest(), b"");
    steered.expect_rejected("policy_revoked", 1.0);
}

#[test]
fn what_the_mesh_does_not_know_is_dialled_from_within_the_caller() {
    let outside = Upstream::at("127.30.0.100:0");
    let (_upstream, steered) = Steered::scripted(AppProtocol::Http, &["echo", "shop"]);
    let mut client = steered
        .dial("shop", outside.address)
        .sending("GET / HTTP/1.1\r\n");
    let mut server = outside.accept();
    assert_eq!(server.exact(16), b"GET / HTTP/1.1\r\n");
    server.send("what it likes");
    drop(server);
    assert_eq!(client.rest(), b"what it likes");
    steered.expect_asked(&[(2, None)]);
    let labels = ["source=\"test/shop\"", "destination_service=\"external\""];
    steered.expect("heddle_tcp_connections_total", &labels, 1.0);
    // The proxy makes no connection on behalf of a pod that does not exist.
    let (_, refusing) = steered.outbound("intruder", Some(outside.address));
    match TcpStream::connect(refusing) {
        Ok(client) => assert_eq!(Client::of(client).rest(), b""),
        // The reset may come before the client knows that it is connected.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    steered.expect_rejected("pod_gone", 1.0);
    assert!(outside.is_quiet());
}

#[test]
fn what_leads_nowhere_is_refused() {
    let (upstream, steered) = Steered::scripted(AppProtocol::Tcp, &["echo", "shop"]);
    let unknown = steered.outbound("shop", None).1;
    assert_eq!(Client::connect(unknown).rest(), b"");
    steered.expect_rejected("original_destination_unknown", 1.0);
    assert_eq!(steered.dial("stranger", upstream.address).rest(), b"");
    steered.expect_rejected("workload_not_in_mesh", 1.0);
    let source = "source=\"test/stranger\"";
    let unknown = [source, "destination_service=\"unknown\""];
    let failed = "heddle_tcp_connections_failed_total";
    steered.expect(failed, &unknown, 1.0);
    assert!(upstream.is_quiet());
}

#[test]
fn a_pod_that_dials_its_listener_is_not_led_in_a_circle() {
    let (_upstream, steered) = Steered::scripted(AppProtocol::Tcp, &["shop"]);
    // An IPv4 listener and a dual-stack listener.
    for (id, bound) in [(1_000, "127.0.0.1:0"), (1_001, "[::]:0")] {
        let socket = TcpListener::bind(bound).unwrap();
        let port = socket.local_addr().unwrap().port();
        let dialled = SocketAddr::from(([127, 0, 0, 1], port));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        going_to(dialled, dialled);
        going_to(SocketAddr::from((mapped, port)), dialled);
        let caller = name("shop");
        steered.proxy.listen(id, socket, Entry::Outbound { caller });
        assert_eq!(Client::connect(dialled).rest(), b"");
    }
    steered.expect_rejected("original_destination_unknown", 2.0);
}

#[test]
fn of_several_services_a_headless_one_is_meant() {
    let upstream = Upstream::at(ECHO);
    let mut mesh = mesh(upstream.address, AppProtocol::Http);
    let mut headless = service("test/zero", &[upstream.address]);
    headless.headless = true;
    headless.ports[0].protocol = AppProtocol::Tcp;
    headless.ports[0].endpoints[0] = mesh.services[0].ports[0].endpoints[0].clone();
    assert_eq!(
        headless.ports[0].endpoints[0].account,
        Some(account("echo"))
    );
    mesh.services.push(headless.into());
    mesh.check_invariants().unwrap();
    let steered = Steered::new(&mesh, &["echo"]);
    let _client = steered.dial("shop", upstream.address).sending("no request");
    assert_eq!(upstream.accept().exact(10), b"no request");
    let zero = ServiceName::parse("test/zero").unwrap();
    let label = format!("destination_service=\"{zero}\"");
    steered.expect("heddle_tcp_connections_total", &[&label], 1.0);
}

#[test]
fn nothing_is_outside_before_there_is_a_configuration() {
    let upstream = Upstream::at(ECHO);
    let address: SocketAddr = upstream.address;
    let steered = Steered::new(&heddle_model::Mesh::default(), &["shop"]);
    assert_eq!(steered.dial("shop", address).rest(), b"");
    steered.expect_rejected("workload_not_in_mesh", 1.0);
    assert!(upstream.is_quiet());
}

#[test]
fn an_address_that_has_changed_hands_is_not_called_any_more() {
    let endpoint = serve_at(ECHO, |_| "ok".into());
    let own = serve_at(ECHO, |_| "own".into());
    let mut mesh = mesh(endpoint, AppProtocol::Http);
    let steered = Steered::new(&mesh, &["echo"]);
    let mut clients = [steered.dial("shop", endpoint), steered.dial("shop", own)];
    let mut ask = || clients.each_mut().map(|client| client.ask(GET).status());
    assert_eq!(ask(), [200, 200]);
    mesh.generation += 1;
    mesh.workloads[0].address = [127, 30, 0, 10].into();
    mesh.services[0].ports[0].endpoints[0]
        .address
        .set_ip([127, 30, 0, 10].into());
    mesh.elsewhere = vec![endpoint.ip()];
    mesh.check_invariants().unwrap();
    steered.apply(&mesh);
    assert_eq!(ask(), [503, 503]);
    steered.expect_rejected("endpoint_gone", 2.0);
}

#[test]
fn what_was_intercepted_moves_like_any_other() {
    let (upstream, outside) = (Upstream::at(ECHO), Upstream::at("127.30.0.100:0"));
    let own = Upstream::at(ECHO);
    let mesh = mesh(upstream.address, AppProtocol::Undeclared);
    let steered = Steered::with(2, &mesh, &["echo", "shop"]);
    let going = [SERVICE, upstream.address, own.address, outside.address];
    let servers = [&upstream, &upstream, &own, &outside];
    let mut flows: Vec<_> = going
        .into_iter()
        .zip(servers)
        .map(|(going, server)| {
            let client = steered.dial("shop", going).sending("SSH-2.0-a_client\r\n");
            let mut server = server.accept();
            assert_eq!(server.exact(18), b"SSH-2.0-a_client\r\n");
            (client, server)
        })
        .collect();
    // The protocol of this connection is not known yet.
    let mut silent = steered.dial("shop", SERVICE);
    let mut shown = upstream.accept();
    for round in 1..5 {
        steered.proxy.rotate();
        // A connection that arrives at a Worker before the order to move moves along with its others.
        steered.expect_at_least("heddle_connections_moved_total", f64::from(5 * round));
        for (client, server) in &mut flows {
            client.send("ping");
            assert_eq!(server.exact(4), b"ping");
            server.send("pong");
            assert_eq!(client.exact(4), b"pong");
        }
    }
    silent.send(GET);
    assert!(shown.head().starts_with("GET / HTTP/1.1"), "on its own");
}
