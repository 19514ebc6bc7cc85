//! What goes on when the configuration changes, and what does not.

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

/// A request that waited is served by the configuration of the moment when it is sent, and by no other.
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
