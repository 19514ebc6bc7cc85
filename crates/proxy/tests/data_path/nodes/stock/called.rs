//! A node calls an endpoint with an Envoy of its own.

use std::thread;
use std::time::Duration;

use heddle_model::AppProtocol;
use heddle_proxy::{Protocol, Settings};
use heddle_transport::fixture::{DAY, NOW};

use super::{accept, accept_with, own, pair_with_envoy, shown, with_envoy};
use crate::nodes::pair::{Pair, id};
use crate::nodes::trust::denied;
use crate::support::{GET, Upstream, over};

/// A request after which the connection ends.
const LAST_GET: &str = "GET / HTTP/1.1\r\nHost: echo\r\nConnection: close\r\n\r\n";

#[test]
fn requests_go_straight_to_the_envoy_and_show_who_calls() {
    for between_nodes in Protocol::NODES {
        let upstream = Upstream::new();
        let mesh = with_envoy(&upstream, AppProtocol::Http);
        let pair = Pair::of(&over(between_nodes), mesh);
        let mut shop = pair.sending("shop", GET);
        let mut envoy = accept(&pair, &upstream);
        let head = envoy.head();
        assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("X-Forwarded-For: 127.0.0.1\r\n"), "{head}");
        let (peer, alpn) = shown(&envoy);
        assert_eq!((peer.id, alpn), (id("shop"), &b"http/1.1"[..]));
        envoy.answer("one");
        assert_eq!(shop.response().text(), "one");
        // The connection is used again, by this caller and not by another.
        for _ in 0..20 {
            shop.send(GET);
            envoy.head();
            envoy.answer("more");
            assert_eq!(shop.response().text(), "more");
        }
        let mut intruder = pair.sending("intruder", GET);
        let mut other = accept(&pair, &upstream);
        other.head();
        assert_eq!(shown(&other).0.id, id("intruder"));
        other.answer("two");
        assert_eq!(intruder.response().text(), "two");
        assert!(upstream.is_quiet());
    }
}

#[test]
fn bytes_go_both_ways_as_they_are() {
    let (upstream, pair) = pair_with_envoy(AppProtocol::Tcp);
    let mut shop = pair.sending("shop", "ping");
    let mut envoy = accept(&pair, &upstream);
    assert_eq!(envoy.exact(4), b"ping");
    let (peer, alpn) = shown(&envoy);
    assert_eq!((peer.id, alpn), (id("shop"), &b"heddle-bytes/1"[..]));
    envoy.send("pong");
    assert_eq!(shop.exact(4), b"pong");
    envoy.stream.conn.send_close_notify();
    drop(envoy);
    assert_eq!(shop.rest(), b"");
}

#[test]
fn a_caller_without_an_identity_calls_in_cleartext() {
    for protocol in [AppProtocol::Http, AppProtocol::Tcp] {
        let (upstream, pair) = pair_with_envoy(protocol);
        let mut client = pair.sending("unidentified", GET);
        let mut envoy = upstream.asked();
        envoy.answer("ok");
        assert_eq!(client.response().text(), "ok");
        // An Envoy that requires an identity closes.
        drop((client, envoy));
        let mut client = pair.sending("unidentified", LAST_GET);
        let refused = thread::spawn(move || client.rest());
        while !refused.is_finished() {
            let _closes = upstream.is_quiet();
            thread::park_timeout(Duration::from_millis(2));
        }
        let said = refused.join().unwrap();
        assert!(!said.starts_with(b"HTTP/1.1 2"), "{protocol:?}");
    }
}

#[test]
fn an_envoy_that_is_not_believed_gets_nothing() {
    let marked = |pair: &Pair| pair.authority.leaf(&id("echo"), NOW - DAY, NOW + DAY);
    for (reason, leaf) in [
        ("not_a_workload", &marked as &dyn Fn(&Pair) -> _),
        ("wrong_identity", &|pair: &Pair| own(pair, "other")),
    ] {
        let (upstream, pair) = pair_with_envoy(AppProtocol::Http);
        let client = pair.sending("shop", GET);
        let mut envoy = accept_with(&pair, &upstream, &leaf(&pair));
        let read = std::io::Read::read(&mut envoy.stream, &mut [0; 1]);
        assert!(matches!(read, Err(_) | Ok(0)), "{reason}");
        let mut client = client;
        assert_eq!(
            client.response().verdict(),
            (503, "peer_refused"),
            "{reason}"
        );
        pair.calling.expect_handshakes_refused(reason, 1.0);
    }
}

#[test]
fn trust_counts_for_connections_to_an_envoy() {
    let (upstream, pair) = pair_with_envoy(AppProtocol::Tcp);
    let mut shop = pair.sending("shop", "x");
    let mut envoy = accept(&pair, &upstream);
    envoy.exact(1);
    let trust = pair.trust(&[&pair.authority], denied(&id("echo")));
    let identities = pair.identities(&pair.calling, &pair.authority, &trust, NOW + DAY);
    pair.give(&pair.calling, identities);
    assert_eq!(shop.rest(), b"");
    assert_eq!(envoy.rest(), b"");
}

/// A node whose configuration is older may still call through the endpoint's node.
#[test]
fn a_node_does_not_stand_before_an_envoy() {
    for between_nodes in Protocol::NODES {
        let upstream = Upstream::new();
        let pair = Pair::of(
            &over(between_nodes),
            with_envoy(&upstream, AppProtocol::Http),
        );
        let older = crate::policy::guarded(upstream.address, AppProtocol::Http);
        let older = Pair::placed(older, pair.mesh_address);
        pair.apply_to(&pair.calling, &older);
        let gone = || pair.get("shop").verdict() == (503, "endpoint_gone");
        crate::support::wait_until("it is gone", crate::support::PATIENCE, gone);
        assert!(upstream.is_quiet(), "{between_nodes:?}");
    }
}

#[test]
fn an_envoy_on_the_callers_own_node_is_called_the_same_way() {
    let upstream = Upstream::new();
    let mut mesh = with_envoy(&upstream, AppProtocol::Http);
    for workload in mesh.workloads.iter_mut() {
        workload.node = None;
    }
    let pair = Pair::of(&Settings::default(), mesh);
    // Everything on the calling node.
    let mut mesh = pair.mesh.clone();
    let here = crate::nodes::pair::node_name("calling");
    for workload in mesh.workloads.iter_mut() {
        workload.node = Some(here.clone());
    }
    mesh.services[0].ports[0].endpoints[0].node = Some(here);
    pair.apply(&mesh);
    let mut shop = pair.sending("shop", GET);
    let mut envoy = accept(&pair, &upstream);
    envoy.head();
    assert_eq!(shown(&envoy).0.id, id("shop"));
    envoy.answer("here");
    assert_eq!(shop.response().text(), "here");
}
