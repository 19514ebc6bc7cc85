//! A node's status of other nodes.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::{Peer, PeerStatus, Protocol};

use super::links::{echo, relayed};
use super::pair::{Pair, Side};
use crate::policy::guarded;
use crate::support::{PATIENCE, over, quick, refusing, serve};

/// Waits until a node's status of a peer satisfies the condition.
pub(super) fn shows(side: &Side, peer: Peer, what: &str, is: impl Fn(&PeerStatus) -> bool) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let shown = side.proxy.observer().peers();
        let status = shown.get(&peer).copied().unwrap_or_default();
        if is(&status) {
            return;
        }
        assert!(Instant::now() < patience, "{what}: {status:?}");
        thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn links_are_shown_as_they_are() {
    let settings = quick(|timeouts| timeouts.upstream_idle = Duration::from_millis(500));
    let (pair, relay) = relayed(&settings, echo(), AppProtocol::Tcp);
    let other = Peer::At(relay.address);
    let caller = Peer::From(IpAddr::from(Ipv4Addr::LOCALHOST));
    assert!(pair.calling.proxy.observer().peers().is_empty());
    let mut client = pair.sending("shop", "hello");
    assert_eq!(client.exact(5), b"hello");
    let is_up = |shown: &PeerStatus| (shown.links_up, shown.links_cut, shown.streams) == (1, 0, 1);
    for (side, peer) in [(&pair.calling, other), (&pair.called, caller)] {
        shows(side, peer, "a link is up", is_up);
    }
    // A cut link that cannot be resumed yet is shown as cut, on both nodes …
    relay.is_dead(true);
    relay.cut();
    let is_cut = |shown: &PeerStatus| {
        let links = (shown.links_up, shown.links_cut, shown.streams);
        links == (0, 1, 1) && shown.cut_since.is_some()
    };
    for (side, peer) in [(&pair.calling, other), (&pair.called, caller)] {
        shows(side, peer, "a link is cut", is_cut);
    }
    shows(&pair.calling, other, "why", |shown| {
        shown
            .failure
            .is_some_and(|failure| failure.code == "link_lost")
    });
    // … and after it is resumed, the reason of the cut is still shown.
    relay.is_dead(false);
    client.send("again");
    assert_eq!(client.exact(5), b"again");
    shows(&pair.calling, other, "it is back", |shown| {
        is_up(shown) && shown.cut_since.is_none() && shown.failure.is_some()
    });
    shows(&pair.called, caller, "it is back", is_up);
    // A closed link disappears from the status, even without further events.
    drop(client);
    shows(&pair.calling, other, "it is over", |shown| {
        !shown.is_connected() && shown.failure.is_some()
    });
    shows(&pair.called, caller, "it is over", |shown| {
        *shown == PeerStatus::default()
    });
}

#[test]
fn a_node_that_is_not_there_is_shown_with_the_reason() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let settings = over(between_nodes);
        let absent = refusing();
        let mesh = guarded(echo(), AppProtocol::Http);
        let pair = Pair::by(&settings, mesh, |_| absent);
        assert_eq!(pair.get("shop").status(), 503);
        shows(&pair.calling, Peer::At(absent), "why", |shown| {
            let code = shown.failure.map(|failure| failure.code);
            code == Some("node_connect_failed") && !shown.is_connected()
        });
    }
}

#[test]
fn connections_of_other_kinds_are_shown_too() {
    for between_nodes in [Protocol::Http1, Protocol::Http2] {
        let settings = over(between_nodes);
        let (pair, relay) = relayed(&settings, serve(|_| "ok".into()), AppProtocol::Http);
        assert_eq!(pair.get("shop").status(), 200);
        shows(&pair.calling, Peer::At(relay.address), "one", |shown| {
            let expected = match between_nodes {
                Protocol::Http1 => (1, 0),
                _ => (0, 1),
            };
            (shown.http1_connections, shown.http2_connections) == expected
        });
    }
}
