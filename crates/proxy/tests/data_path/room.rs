//! Callers that wait until an endpoint may have another connection.

use std::time::Duration;

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use crate::balancing::waiting;
use crate::nodes::pair::Pair;
use crate::policy::guarded;
use crate::support::{Bed, Client, GET, Upstream, bounded, get, quick, speaking};

const OPEN: &str = "heddle_upstream_connections_active";

/// Settings with this limit of connections to an endpoint.
fn at_most(connections: usize) -> Settings {
    bounded(|bounds| bounds.connections_per_endpoint = connections)
}

/// The same, with little time for a connection.
fn impatient(connections: usize) -> Settings {
    let mut settings = quick(|timeouts| timeouts.connect = Duration::from_millis(100));
    settings.bounds.connections_per_endpoint = connections;
    settings
}

/// A client of which the request waits, as one of `count`.
fn one_that_waits(bed: &Bed, request: impl AsRef<[u8]>, count: u32) -> Client {
    let client = bed.sending(request);
    waiting(bed, count);
    client
}

#[test]
fn callers_take_turns_in_the_order_in_which_they_came() {
    let (upstream, bed) = Bed::scripted_with(at_most(2));
    let mut first = [bed.sending(GET), bed.sending(GET)];
    let mut servers = [upstream.asked(), upstream.asked()];
    let with_body = "POST /2 HTTP/1.1\r\nHost: echo\r\nContent-Length: 4\r\n\r\nbody";
    let mut waits = [
        one_that_waits(&bed, get("/1"), 1),
        one_that_waits(&bed, with_body, 2),
        one_that_waits(&bed, get("/3"), 3),
    ];
    for number in 0..waits.len() {
        let server = &mut servers[0];
        server.answer("ok");
        let head = server.head();
        assert!(head.contains(&format!(" /{} ", number + 1)), "{head}");
        if number == 1 {
            assert_eq!(server.exact(4), b"body");
        }
    }
    servers.iter_mut().for_each(|server| server.answer("ok"));
    for client in first.iter_mut().chain(&mut waits) {
        assert_eq!(client.response().status(), 200);
    }
    assert!(upstream.is_quiet(), "two connections are all there are");
    waiting(&bed, 0);
    bed.expect(OPEN, &[], 2.0);
    bed.expect("heddle_upstream_requests_waited_total", &[], 3.0);
}

#[test]
fn a_connection_that_ends_makes_room_too() {
    let (upstream, bed) = Bed::scripted_with(at_most(1));
    let mut broken = bed.sending(GET);
    let server = upstream.asked();
    let mut waits = one_that_waits(&bed, GET, 1);
    drop(server);
    assert_eq!(broken.response().verdict(), (502, "upstream_reset"));
    let _server = upstream.answering("ok");
    assert_eq!(waits.response().body, b"ok");
}

#[test]
fn a_caller_that_waits_too_long_is_told_why() {
    let (upstream, bed) = Bed::scripted_with(impatient(1));
    let mut first = bed.sending(GET);
    let mut server = upstream.asked();
    let mut late = bed.client();
    assert_eq!(late.ask(GET).verdict(), (503, "upstream_overflow"));
    waiting(&bed, 0);
    server.answer("ok");
    assert_eq!(first.response().status(), 200);
    // Its connection goes on, and finds room now.
    late.send(GET);
    server.head();
    server.answer("ok");
    assert_eq!(late.response().status(), 200);
}

#[test]
fn a_caller_that_goes_away_leaves_the_queue() {
    let (upstream, bed) = Bed::scripted_with(at_most(1));
    let _first = bed.sending(GET);
    let mut server = upstream.asked();
    let gone = one_that_waits(&bed, get("/gone"), 1);
    let mut next = one_that_waits(&bed, get("/next"), 2);
    gone.reset();
    waiting(&bed, 1);
    server.answer("ok");
    assert!(server.head().contains(" /next "));
    server.answer("ok");
    assert_eq!(next.response().status(), 200);
}

#[test]
fn an_opaque_connection_waits_until_another_one_ends() {
    let upstream = Upstream::new();
    let mesh = speaking(AppProtocol::Tcp, &[upstream.address]);
    let bed = Bed::with(at_most(1), &mesh);
    let first = bed.client();
    let server = upstream.accept();
    let mut waits = one_that_waits(&bed, "hello", 1);
    drop((first, server));
    let mut server = upstream.accept();
    assert_eq!(server.exact(5), b"hello");
    server.send("world");
    assert_eq!(waits.exact(5), b"world");
}

#[test]
fn an_opaque_connection_that_waits_too_long_is_reset() {
    let upstream = Upstream::new();
    let mesh = speaking(AppProtocol::Tcp, &[upstream.address]);
    let bed = Bed::with(impatient(1), &mesh);
    let _first = bed.client();
    let _server = upstream.accept();
    bed.client().expect_reset();
    waiting(&bed, 0);
}

#[test]
fn at_another_node_one_callers_idle_connection_makes_room_for_anothers() {
    let upstream = Upstream::new();
    let mesh = guarded(upstream.address, AppProtocol::Http);
    let pair = Pair::unlike([&Settings::default(), &at_most(1)], mesh, None, |address| {
        address
    });
    let mut first = pair.sending("shop", GET);
    let mut server = upstream.asked();
    let mut waits = pair.sending("intruder", GET);
    pair.called
        .expect("heddle_upstream_requests_waiting", &[], 1.0);
    server.answer("ok");
    assert_eq!(first.response().status(), 200);
    // No other caller's request is sent over this one.
    assert_eq!(server.rest(), b"");
    let _server = upstream.answering("ok");
    assert_eq!(waits.response().status(), 200);
}
