//! Effects of a new configuration, and state that it must not change.

use std::net::SocketAddr;

use heddle_model::{Filters, HeaderEdits};

use crate::balancing::{limited, line, waiting};
use crate::support::{Bed, GET, Upstream, get, mesh, serve, to_echo};

#[test]
fn turns_go_on_where_they_were() {
    let mut endpoints: Vec<SocketAddr> = (0..3u8).map(|n| serve(move |_| n.to_string())).collect();
    endpoints.sort();
    let bed = Bed::new(&endpoints);
    let mut client = bed.client();
    let mut seen = std::collections::BTreeSet::new();
    for generation in 2..5 {
        seen.insert(client.ask(GET).body);
        let mut next = mesh(&endpoints, None);
        next.generation = generation;
        bed.apply(&next);
    }
    assert_eq!(seen.len(), 3, "each had one of three requests: {seen:?}");
}

/// A queued request is sent by the configuration at the time of sending, not by an older one.
#[test]
fn who_waits_is_not_changed_by_a_route_that_is_gone() {
    let (old, new) = (Upstream::new(), Upstream::new());
    let marked = Filters {
        response: HeaderEdits {
            set: vec![("x-route".into(), "old".into())],
            ..HeaderEdits::default()
        },
        ..Filters::default()
    };
    let mut before = limited(&[(old.address, 1)], line(8, 10_000));
    let routes = vec![to_echo("", marked)];
    before.services[0].ports[0].routes = Some(routes);
    let bed = Bed::of(&before);
    let [mut served, mut waits] = [(); 2].map(|()| bed.client());
    served.send(GET);
    let mut busy = old.asked();
    waits.send(get("/waits"));
    waiting(&bed, 1);
    let endpoints = [(old.address, 1), (new.address, 1)];
    bed.proxy.apply(&limited(&endpoints, line(8, 10_000)));
    let _server = new.answering("ok");
    let response = waits.response();
    assert_eq!(response.status(), 200);
    assert_eq!(response.field("x-route"), None);
    busy.answer("ok");
    assert_eq!(served.response().field("x-route"), Some("old"));
}

/// A client's connection remembers its last endpoint, and that keeps the endpoint's connections open.
#[test]
fn a_connection_to_an_endpoint_is_kept_as_long_as_snapshots_have_it() {
    let (upstream, other) = (Upstream::new(), Upstream::new());
    let with = |generation, endpoints: &[SocketAddr]| {
        let mut mesh = mesh(endpoints, None);
        mesh.generation = generation;
        mesh
    };
    let bed = Bed::of(&with(1, &[upstream.address]));
    let idle = |count| bed.expect("heddle_upstream_connections_idle", &[], count);
    let mut client = bed.sending(GET);
    let mut server = upstream.answering("first");
    assert_eq!(client.response().body, b"first");
    idle(1.0);
    bed.apply(&with(2, &[upstream.address]));
    client.send(GET);
    server.head();
    server.answer("second");
    assert_eq!(client.response().body, b"second");
    assert!(upstream.is_quiet(), "by the same connection");
    idle(1.0);
    bed.apply(&with(3, &[other.address]));
    idle(1.0);
    client.send(GET);
    let _theirs = other.answering("third");
    assert_eq!(client.response().body, b"third");
    assert_eq!(server.rest(), b"", "it is closed");
    idle(1.0);
    drop(client);
    bed.apply(&with(4, &[upstream.address]));
    idle(0.0);
}

#[test]
fn a_request_under_way_ends_where_it_began() {
    let (upstream, other) = (Upstream::new(), Upstream::new());
    let bed = Bed::new(&[upstream.address]);
    let mut client = bed.sending(GET);
    let mut server = upstream.asked();
    let mut next = mesh(&[other.address], None);
    next.generation = 2;
    bed.apply(&next);
    server.answer("late");
    assert_eq!(client.response().body, b"late");
    drop(client);
    assert_eq!(server.rest(), b"", "nothing is kept for it");
}
