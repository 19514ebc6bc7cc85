//! Endpoints with a limit of concurrent requests: which request is served, and which is queued.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{AppProtocol, Balancer, Line, Mesh};
use heddle_proxy::Settings;

use crate::nodes::pair::{Pair, node_name};
use crate::support::{Bed, Client, GET, PATIENCE, Upstream, get, mesh, refusing, serve, workers};

pub(crate) const WAITING: &str = "heddle_upstream_requests_waiting";

/// A mesh whose endpoints have these limits of concurrent requests.
pub(crate) fn limited(endpoints: &[(SocketAddr, u32)], line: Line) -> Mesh {
    let addresses: Vec<_> = endpoints.iter().map(|(address, _)| *address).collect();
    let mut mesh = mesh(&addresses, None);
    let service = &mut mesh.services[0];
    service.balancer = Balancer::LeastRequest;
    service.balancing.line = line;
    let written = &mut service.ports[0].endpoints;
    for (endpoint, (_, room)) in written.iter_mut().zip(endpoints) {
        endpoint.max_requests = Some(*room);
    }
    written.sort_by_key(|endpoint| endpoint.address);
    mesh.check_invariants().unwrap();
    mesh
}

pub(crate) fn line(max_waiting: u32, max_wait_ms: u64) -> Line {
    Line {
        max_waiting,
        max_wait_ms,
    }
}

/// A proxy for one endpoint with a limit of one request.
fn one_at_a_time(line: Line) -> (Upstream, Bed) {
    let upstream = Upstream::new();
    let bed = Bed::of(&limited(&[(upstream.address, 1)], line));
    (upstream, bed)
}

/// Answers the request that the endpoint has, then the queued one.
fn one_after_the_other(server: &mut Client, [served, waits]: [&mut Client; 2]) {
    server.answer("ok");
    assert_eq!(served.response().status(), 200);
    server.head();
    server.answer("ok");
    assert_eq!(waits.response().status(), 200);
}

fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

pub(crate) fn waiting(bed: &Bed, count: u32) {
    bed.expect(WAITING, &[], f64::from(count));
}

#[test]
fn requests_wait_for_room_and_are_served_as_they_came() {
    let (upstream, bed) = one_at_a_time(line(10, 10_000));
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..4 {
        let mut client = bed.client();
        match number {
            // A queued request keeps its body.
            2 => client.send("POST /2 HTTP/1.1\r\nHost: echo\r\nContent-Length: 4\r\n\r\nbody"),
            number => client.send(get(&format!("/{number}"))),
        }
        clients.push(client);
        waiting(&bed, number);
        if number == 0 {
            bed.expect("heddle_upstream_connections_active", &[], 1.0);
        }
    }
    let mut server = upstream.accept();
    for (number, client) in clients.iter_mut().enumerate() {
        let head = server.head();
        assert_eq!(path(&head), format!("/{number}"));
        if number == 2 {
            assert_eq!(server.exact(4), b"body");
        }
        server.answer("ok");
        assert_eq!(client.response().status(), 200);
    }
    assert!(upstream.is_quiet(), "one connection is enough");
    waiting(&bed, 0);
    bed.expect("heddle_upstream_requests_waited_total", &[], 3.0);
}

#[test]
fn a_queue_that_is_full_refuses() {
    let upstream = Upstream::new();
    let mesh = limited(&[(upstream.address, 1)], line(1, 10_000));
    let (bed, log) = Bed::logged(Settings::default(), &mesh);
    let [mut served, mut waits, mut refused] = [(); 3].map(|()| bed.client());
    served.send(GET);
    let mut server = upstream.asked();
    waits.send(GET);
    waiting(&bed, 1);
    for _ in 0..2 {
        assert_eq!(refused.ask(GET).verdict(), (503, "upstream_queue_full"));
        log.expect(&[
            r#""reason":"upstream_queue_full","blame":"heddle""#,
            r#""attempts":0"#,
        ]);
    }
    bed.expect_rejected("upstream_queue_full", 2.0);
    one_after_the_other(&mut server, [&mut served, &mut waits]);
}

#[test]
fn a_wait_that_is_too_long_is_refused_and_leaves_no_trace() {
    const PATIENT: Duration = Duration::from_millis(150);
    let (upstream, bed) = one_at_a_time(line(8, 150));
    let [mut served, mut tired] = [(); 2].map(|()| bed.client());
    served.send(GET);
    let mut server = upstream.asked();
    let began = Instant::now();
    assert_eq!(tired.ask(GET).verdict(), (503, "upstream_queue_timeout"));
    assert!(began.elapsed() >= PATIENT, "{:?}", began.elapsed());
    waiting(&bed, 0);
    server.answer("ok");
    assert_eq!(served.response().status(), 200);
    // The place is free again, and the connection of the refused request stays usable.
    tired.send(GET);
    server.head();
    server.answer("ok");
    assert_eq!(tired.response().status(), 200);
}

#[test]
fn a_client_that_leaves_waits_no_more() {
    let (upstream, bed) = one_at_a_time(line(2, 10_000));
    let [mut served, mut gone, mut last] = [(); 3].map(|()| bed.client());
    served.send(get("/served"));
    let mut server = upstream.asked();
    gone.send(get("/gone"));
    waiting(&bed, 1);
    last.send(get("/last"));
    waiting(&bed, 2);
    gone.reset();
    waiting(&bed, 1);
    bed.expect_rejected("client_gone", 1.0);
    server.answer("ok");
    assert_eq!(served.response().status(), 200);
    assert_eq!(path(&server.head()), "/last");
    server.answer("ok");
    assert_eq!(last.response().status(), 200);
    waiting(&bed, 0);
}

/// Back-pressure: regardless of weights, a request goes to an endpoint below its limit.
#[test]
fn requests_go_where_there_is_room() {
    let upstreams = [Upstream::new(), Upstream::new(), Upstream::new()];
    let rooms = [1, 2, 3];
    let endpoints: Vec<_> = upstreams.iter().map(|one| one.address).zip(rooms).collect();
    let bed = Bed::of(&limited(&endpoints, line(8, 10_000)));
    let mut clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    let mut servers: Vec<Vec<Client>> = Vec::new();
    for (upstream, room) in upstreams.iter().zip(rooms) {
        let accepted = (0..room).map(|_| upstream.accept());
        servers.push(accepted.collect());
    }
    for server in servers.iter_mut().flatten() {
        server.head();
    }
    assert!(upstreams.iter().all(Upstream::is_quiet));
    let mut seventh = bed.sending(get("/seventh"));
    waiting(&bed, 1);
    let freed = &mut servers[1][0];
    freed.answer("ok");
    assert_eq!(path(&freed.head()), "/seventh");
    freed.answer("ok");
    assert_eq!(seventh.response().status(), 200);
}

/// Limits are per node: Workers share them, and no queued request is lost between Workers.
#[test]
fn several_workers_share_what_an_endpoint_takes() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 60;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let endpoint = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        serve(move |_| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            "ok".into()
        })
    };
    let bed = Bed::with(workers(4, 4), &limited(&[(endpoint, 3)], line(64, 10_000)));
    bed.expect("heddle_worker_config_generation", &[], 4.0);
    let address = bed.address;
    let clients = (0..CLIENTS).map(|_| {
        thread::spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..REQUESTS {
                assert_eq!(client.ask(GET).status(), 200);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    // The endpoint decrements `now` before its response arrives, so the maximum cannot be overestimated.
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?} at once");
    let requests = (CLIENTS * REQUESTS) as f64;
    bed.expect("heddle_http_requests_total", &["status=\"2"], requests);
    let waited = bed.metric("heddle_upstream_requests_waited_total", &[]);
    assert!(waited > 100.0, "only {waited} waited");
    waiting(&bed, 0);
}

#[test]
fn who_waits_is_served_by_an_endpoint_that_is_new() {
    let (old, new) = (Upstream::new(), Upstream::new());
    let bed = Bed::of(&limited(&[(old.address, 1)], line(8, 10_000)));
    let mut served = bed.sending(GET);
    let mut busy = old.asked();
    let mut waits = bed.sending(get("/waits"));
    waiting(&bed, 1);
    // A new configuration without a change for this request leaves it queued.
    let mut same = limited(&[(old.address, 1)], line(8, 10_000));
    same.generation = 2;
    bed.apply(&same);
    waiting(&bed, 1);
    bed.proxy.apply(&limited(
        &[(old.address, 1), (new.address, 1)],
        line(8, 10_000),
    ));
    let mut server = new.accept();
    assert_eq!(path(&server.head()), "/waits");
    server.answer("ok");
    assert_eq!(waits.response().status(), 200);
    waiting(&bed, 0);
    busy.answer("ok");
    assert_eq!(served.response().status(), 200);
}

#[test]
fn an_upgraded_connection_keeps_its_place() {
    let (upstream, bed) = one_at_a_time(line(8, 10_000));
    let mut chat =
        bed.sending("GET / HTTP/1.1\r\nHost: echo\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n");
    let server = upstream.replying(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n",
    );
    assert!(chat.head().starts_with("HTTP/1.1 101"));
    bed.expect("heddle_tcp_connections_active", &[], 1.0);
    let mut waits = bed.sending(GET);
    waiting(&bed, 1);
    drop(chat);
    drop(server);
    let _server = upstream.answering("ok");
    assert_eq!(waits.response().status(), 200);
}

/// An endpoint that refuses connections has room, but must not keep requests from one that works.
#[test]
fn a_dead_endpoint_is_not_waited_for() {
    let upstream = Upstream::new();
    let endpoints = [(refusing(), 5), (upstream.address, 1)];
    let bed = Bed::of(&limited(&endpoints, line(8, 10_000)));
    let mut served = bed.sending(GET);
    let mut server = upstream.asked();
    let mut waits = bed.sending(GET);
    // The dead endpoint may be tried first.
    waiting(&bed, 1);
    one_after_the_other(&mut server, [&mut served, &mut waits]);
}

/// The endpoint's own node applies the limit to requests of other nodes, too.
#[test]
fn the_node_of_an_endpoint_holds_its_limit_for_others() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let mut part = pair.mesh.for_node(&node_name("called"));
    let service = &mut part.services[0];
    service.balancing.line = line(1, 10_000);
    service.ports[0].endpoints[0].max_requests = Some(1);
    part.generation = 100;
    part.check_invariants().unwrap();
    pair.called.proxy.apply(&part);
    pair.called
        .expect("heddle_worker_config_generation", &[], 100.0);
    let [mut served, mut waits, mut refused] = [(); 3].map(|()| pair.client("shop"));
    served.send(GET);
    let mut server = upstream.asked();
    waits.send(GET);
    pair.called.expect(WAITING, &[], 1.0);
    assert_eq!(refused.ask(GET).verdict(), (503, "upstream_queue_full"));
    one_after_the_other(&mut server, [&mut served, &mut waits]);
}

/// The caller's node applies the limit to an endpoint of another node, too.
#[test]
fn an_endpoint_of_another_node_is_waited_for_on_the_callers_side() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Http);
    pair.mesh.services[0].ports[0].endpoints[0].max_requests = Some(1);
    pair.apply(&pair.mesh);
    let mut served = pair.sending("shop", GET);
    let mut server = upstream.asked();
    let mut waits = pair.sending("shop", GET);
    pair.calling.expect(WAITING, &[], 1.0);
    pair.called.expect(WAITING, &[], 0.0);
    one_after_the_other(&mut server, [&mut served, &mut waits]);
}

/// The limit counts requests, not TCP connections.
#[test]
fn bytes_take_no_place() {
    let upstream = Upstream::new();
    let mut mesh = limited(&[(upstream.address, 1)], line(0, 1));
    mesh.services[0].ports[0].protocol = AppProtocol::Tcp;
    let bed = Bed::of(&mesh);
    let clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
    let servers: Vec<Client> = (0..3).map(|_| upstream.accept()).collect();
    bed.expect("heddle_tcp_connections_active", &[], 3.0);
    drop((clients, servers));
}

/// A drain serves queued requests, too.
#[test]
fn who_waits_is_served_while_the_proxy_drains() {
    let (upstream, bed) = one_at_a_time(line(8, 10_000));
    let mut served = bed.sending(GET);
    let mut server = upstream.asked();
    let mut waits = bed.sending(GET);
    waiting(&bed, 1);
    let drain = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(bed.proxy.drain(PATIENCE))
    });
    server.answer("ok");
    assert_eq!(served.response().status(), 200);
    let mut server = match server.try_head() {
        Some(_) => server,
        None => upstream.asked(),
    };
    server.answer("ok");
    assert_eq!(waits.response().status(), 200);
    assert_eq!(drain.join().unwrap().cut, 0);
}
