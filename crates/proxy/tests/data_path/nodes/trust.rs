//! Changes of trust while connections are open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{AppProtocol, SpiffeId};
use heddle_proxy::Protocol;
use heddle_transport::Denied;
use heddle_transport::fixture::{Authority, DAY, NOW};

use super::pair::{Pair, Side, id};
use crate::policy::{allow, policy};
use crate::support::{Client, GET, Upstream, over, serve};

/// Time limit for closing a connection that is no longer allowed.
const SOON: Duration = Duration::from_secs(1);
/// The limit for an expired certificate: Workers check once a second, and a busy machine adds to that.
pub(super) const EXPIRED: Duration = Duration::from_millis(2_500);

pub(crate) fn denied(who: &SpiffeId) -> Denied {
    Denied {
        ids: [who.clone()].into(),
        ..Denied::default()
    }
}

/// A TCP connection of a caller through to the endpoint.
fn joined(pair: &Pair, upstream: &Upstream, caller: &str) -> (Client, Client) {
    let client = pair.sending(caller, caller);
    let mut server = upstream.accept();
    assert_eq!(server.exact(caller.len()), caller.as_bytes());
    (client, server)
}

#[test]
fn a_denied_caller_is_cut_off_at_once_and_no_other() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let (mut shop, mut shops) = joined(&pair, &upstream, "shop");
    let (mut intruder, _intruders) = joined(&pair, &upstream, "intruder");
    let trust = pair.trust(&[&pair.authority], denied(&id("intruder")));
    let began = Instant::now();
    pair.called_trusts(&trust);
    assert_eq!(intruder.rest(), b"");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    pair.called.expect_rejected("identity_revoked", 1.0);
    // A new connection is refused, and the other caller's connection continues.
    assert_eq!(pair.sending("intruder", "x").rest(), b"");
    pair.called.expect_handshakes_refused("denied", 1.0);
    shop.send("more");
    assert_eq!(shops.exact(4), b"more");
}

#[test]
fn a_request_under_way_of_a_denied_caller_ends() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let mut client = pair.sending("intruder", GET);
    let mut server = upstream.asked();
    let trust = pair.trust(&[&pair.authority], denied(&id("intruder")));
    let began = Instant::now();
    pair.called_trusts(&trust);
    assert_eq!(client.response().verdict(), (503, "identity_revoked"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(server.rest(), b"");
}

#[test]
fn a_change_of_policies_ends_live_flows_from_other_nodes() {
    let (upstream, mut pair) = Pair::scripted(AppProtocol::Tcp);
    let (mut shop, mut shops) = joined(&pair, &upstream, "shop");
    let (mut intruder, _intruders) = joined(&pair, &upstream, "intruder");
    let began = Instant::now();
    pair.guard(allow("shop"));
    assert_eq!(intruder.rest(), b"");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    shop.send("more");
    assert_eq!(shops.exact(4), b"more");
    let none = policy("none", heddle_model::PolicyAction::Allow, Vec::new());
    pair.guard(vec![none]);
    assert_eq!(shop.rest(), b"");
}

/// A pair with one connection for each flow, instead of a link.
fn by_connections() -> (Upstream, Pair) {
    Pair::scripted_with(&over(Protocol::Http1), AppProtocol::Tcp)
}

#[test]
fn a_connection_ends_with_the_certificates_that_it_was_made_with() {
    let (upstream, pair) = by_connections();
    pair.identify(&pair.authority, NOW + 100);
    let (mut old, _server) = joined(&pair, &upstream, "shop");
    // Renewed in time, which only helps new connections.
    pair.identify(&pair.authority, NOW + DAY);
    let (mut new, mut server) = joined(&pair, &upstream, "shop");
    let began = Instant::now();
    pair.time.fetch_add(200, Ordering::Relaxed);
    assert_eq!(old.rest(), b"");
    assert!(began.elapsed() < EXPIRED, "{:?}", began.elapsed());
    new.send("more");
    assert_eq!(server.exact(4), b"more");
    // The node that checks first reports it.
    let rejected =
        |side: &Side| side.metric("heddle_tcp_connections_failed_total", &["identity_revoked"]);
    assert!(rejected(&pair.calling) + rejected(&pair.called) >= 1.0);
}

#[test]
fn a_root_that_is_dropped_takes_along_what_it_vouched_for() {
    let (upstream, pair) = by_connections();
    let (old, new) = (&pair.authority, &Authority::new());
    let both = pair.trust(&[old, new], Denied::default());
    let give = |side, authority, trust: &_| {
        pair.give(side, pair.identities(side, authority, trust, NOW + DAY));
    };
    give(&pair.called, old, &both);
    give(&pair.calling, old, &both);
    let (mut by_old, _server) = joined(&pair, &upstream, "shop");
    give(&pair.called, new, &both);
    give(&pair.calling, new, &both);
    let (mut by_new, mut server) = joined(&pair, &upstream, "shop");
    let alone = pair.trust(&[new], Denied::default());
    let began = Instant::now();
    give(&pair.called, new, &alone);
    assert_eq!(by_old.rest(), b"");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    by_new.send("more");
    assert_eq!(server.exact(4), b"more");
}

#[test]
fn nothing_is_begun_on_what_ends_soon() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    pair.identify(&pair.authority, NOW + 20);
    for _ in 0..3 {
        assert_eq!(pair.get("shop").status(), 200);
    }
    // One handshake for each request: the certificates expire too soon for their connection to be reused.
    pair.called.expect("heddle_handshakes_total", &[], 3.0);
}

#[test]
fn no_request_notices_that_leaves_are_renewed_and_the_root_is_replaced() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let (old, new) = (&pair.authority, &Authority::new());
    let stop = AtomicBool::new(false);
    // These certificates expire so soon that a moment later new requests avoid connections made with them.
    let soon = NOW + 31;
    pair.identify(old, soon);
    thread::scope(|scope| {
        let loads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = pair.client("shop");
                    let mut requests = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let response = client.ask(GET);
                        assert_eq!(response.status(), 200, "request {requests}: {response:?}");
                        requests += 1;
                    }
                    requests
                })
            })
            .collect();
        let pause = |ms| thread::park_timeout(Duration::from_millis(ms));
        let both = pair.trust(&[old, new], Denied::default());
        let sides = [&pair.calling, &pair.called];
        let give = |authority, trust: &_, until| {
            for side in sides {
                pair.give(side, pair.identities(side, authority, trust, until));
                pause(50);
            }
        };
        // Renewed a few times; then the rotation begins, switches and finishes, one node after the other.
        let alone = pair.trust(&[old], Denied::default());
        for _ in 0..3 {
            give(old, &alone, soon);
        }
        give(old, &both, soon);
        give(new, &both, NOW + DAY);
        pause(1_500);
        let alone = pair.trust(&[new], Denied::default());
        give(new, &alone, NOW + DAY);
        stop.store(true, Ordering::Relaxed);
        for load in loads {
            assert!(load.join().unwrap() > 10);
        }
    });
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_handshakes_refused_total", &[], 0.0);
        side.expect("heddle_requests_rejected_total", &[], 0.0);
    }
}
