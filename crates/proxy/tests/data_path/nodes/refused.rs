//! Peers that a node refuses, and how it reports the reason.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use heddle_model::{AppProtocol, Mode, SpiffeId, TrustDomain};
use heddle_proxy::Protocol;
use heddle_transport::fixture::{Authority, DAY, NOW};
use heddle_transport::{Denied, Identities, Session, Trust};

use super::pair::{Pair, domain, id, node_name};
use super::trust::denied;
use crate::policy::{account, allow};
use crate::support::{GET, PATIENCE, bounded, quick, serve};

/// A client of the protocol between nodes that a test drives by hand.
pub(super) struct Intruder {
    stream: TcpStream,
    session: Session,
    pub(super) heard: Vec<u8>,
    pub(super) closed: bool,
}

impl Intruder {
    /// Connects, and runs the handshake until it completes or fails.
    fn connect(at: SocketAddr, session: Session) -> Intruder {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut intruder = Intruder {
            stream,
            session,
            heard: Vec::new(),
            closed: false,
        };
        // In TLS the client speaks first.
        intruder.take(&mut []);
        while intruder.session.peer().is_none() && !intruder.closed {
            intruder.read();
        }
        intruder
    }

    fn read(&mut self) {
        let mut bytes = [0; 16384];
        let n = self.stream.read(&mut bytes).unwrap_or(0);
        self.closed |= n == 0;
        self.take(&mut bytes[..n]);
    }

    fn take(&mut self, cipher: &mut [u8]) {
        let mut out = Vec::new();
        let heard = &mut self.heard;
        let taken = self.session.receive(cipher, &mut out, &mut |plain| {
            heard.extend_from_slice(plain);
        });
        self.closed |= taken.map_or(true, |received| received.closed);
        let _gone = self.stream.write_all(&out);
    }

    pub(super) fn send(&mut self, plain: &[u8]) {
        let mut out = vec![0; heddle_transport::MAX_SEALED];
        let n = self.session.seal(plain, &mut out).unwrap();
        let _gone = self.stream.write_all(&out[..n]);
    }

    /// Waits for the next application bytes or the end: a TLS session also receives messages of its own.
    pub(super) fn hear(&mut self) {
        while self.heard.is_empty() && !self.closed {
            self.read();
        }
    }

    /// Everything received until the connection ends.
    pub(super) fn rest(mut self) -> Vec<u8> {
        while !self.closed {
            self.read();
        }
        self.heard
    }
}

/// The first bytes of a caller that has authenticated as the shop.
pub(super) fn preface(kind: u8, endpoint: SocketAddr, name: &str) -> Vec<u8> {
    use heddle_wire::preface::{Kind, Preface};
    let mut bytes = Vec::new();
    let kind = if kind == 1 { Kind::Http } else { Kind::Bytes };
    let written = Preface {
        kind,
        endpoint,
        namespace: "test",
        service: name,
        port: 80,
        caller: Some("shop"),
    }
    .write_to(&mut bytes);
    written.unwrap();
    bytes
}

fn identities(
    pair: &Pair,
    authority: &Authority,
    who: &SpiffeId,
    from: u64,
    until: u64,
) -> Identities {
    let trust = pair.trust(&[&pair.authority], Denied::default());
    let leaf = authority.leaf(who, from, until);
    Identities::new(trust, pair.clock(), Arc::clone(&leaf), [leaf]).unwrap()
}

/// A peer that calls as this workload, with a valid leaf certificate.
pub(super) fn intruder(pair: &Pair, who: &str, protocol: Protocol) -> Intruder {
    let identities = identities(pair, &pair.authority, &id(who), NOW - DAY, NOW + DAY);
    let session = identities.connect(Some(&account(who)), &account("echo"), protocol);
    Intruder::connect(pair.mesh_address, session.unwrap())
}

fn as_shop(pair: &Pair) -> Intruder {
    intruder(pair, "shop", Protocol::Http1)
}

#[test]
fn a_peer_that_is_not_believed_is_refused_with_a_reason() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let other = Authority::new();
    let foreign = TrustDomain::parse("elsewhere.test").unwrap();
    let foreign = SpiffeId::workload(foreign, account("shop"));
    let (day_before, day_after) = (NOW - DAY, NOW + DAY);
    let own = &pair.authority;
    let cases = [
        (
            "unknown_authority",
            &other,
            id("shop"),
            day_before,
            day_after,
        ),
        ("wrong_trust_domain", own, foreign, day_before, day_after),
        ("not_yet_valid", own, id("shop"), NOW + 3600, day_after),
    ];
    for (reason, authority, who, from, until) in cases {
        // With its own clock, its certificate is valid to itself.
        let identities = identities(&pair, authority, &who, from, until);
        let session = identities
            .connect(None, &account("echo"), Protocol::Http1)
            .unwrap();
        let mut intruder = Intruder::connect(pair.mesh_address, session);
        intruder.send(&preface(1, ([127, 0, 0, 1], 1).into(), "echo"));
        assert_eq!(intruder.rest(), b"", "{reason}");
        pair.called.expect_handshakes_refused(reason, 1.0);
    }
    // With the correct clock, a peer with an expired certificate would not even begin the handshake.
    let session = {
        let identities = identities(&pair, own, &id("shop"), day_before, NOW + 10);
        identities
            .connect(Some(&account("shop")), &account("echo"), Protocol::Http1)
            .unwrap()
    };
    pair.time.fetch_add(60, Ordering::Relaxed);
    let mut intruder = Intruder::connect(pair.mesh_address, session);
    intruder.send(&preface(1, ([127, 0, 0, 1], 1).into(), "echo"));
    assert_eq!(intruder.rest(), b"");
    pair.called.expect_handshakes_refused("expired", 1.0);
}

/// The authority signed it, and programs may authenticate as a workload with it; but only a node may speak for
/// others.
#[test]
fn a_workloads_own_certificate_is_refused_on_a_connection_that_claims_to_be_a_nodes() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let trust = pair.trust(&[&pair.authority], Denied::default());
    let own = (pair.authority).leaf_for(None, &id("shop"), NOW - DAY, NOW + DAY);
    let identities = Identities::new(trust, pair.clock(), Arc::clone(&own), [own]).unwrap();
    for (count, protocol) in (1..).zip(Protocol::NODES) {
        let session = identities.connect(Some(&account("shop")), &account("echo"), protocol);
        let mut intruder = Intruder::connect(pair.mesh_address, session.unwrap());
        intruder.send(&preface(1, ([127, 0, 0, 1], 1).into(), "echo"));
        assert_eq!(intruder.rest(), b"", "{protocol:?}");
        pair.called
            .expect_handshakes_refused("not_a_node", f64::from(count));
    }
    // The calling node does not accept such a program in place of a node either.
    let trust = pair.trust(&[&pair.authority], Denied::default());
    let own = (pair.authority).leaf_for(None, &id("echo"), NOW - DAY, NOW + DAY);
    let other = Identities::new(trust, pair.clock(), Arc::clone(&own), [own]);
    pair.give(&pair.called, other.unwrap());
    assert_eq!(pair.get("shop").verdict(), (503, "peer_refused"));
}

#[test]
fn plaintext_and_nonsense_are_no_handshake() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0; 100],
        &[0xff; 5000],
    ] {
        let mut stream = TcpStream::connect(pair.mesh_address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _gone = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        // At most a TLS alert (RFC 8446 section 6).
        assert!(answer.len() <= 7, "{answer:?}");
    }
    pair.called.expect_handshakes_refused("plaintext", 3.0);
    drop(TcpStream::connect(pair.mesh_address).unwrap());
    pair.called
        .expect("heddle_handshakes_failed_total", &[], 1.0);
    assert_eq!(pair.get("shop").status(), 200, "others are served");
}

#[test]
fn those_who_prove_nothing_are_few_and_keep_no_caller_out() {
    let settings = bounded(|bounds| bounds.handshakes = 4);
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    let mut silent: Vec<_> = (0..6)
        .map(|_| TcpStream::connect(pair.mesh_address).unwrap())
        .collect();
    // The oldest ones are closed to make room, for newer ones and for honest callers.
    pair.called
        .expect("heddle_handshakes_failed_total", &[], 2.0);
    for caller in ["shop", "intruder"] {
        assert_eq!(pair.get(caller).status(), 200, "{caller}");
    }
    for stream in &mut silent[..2] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ended = stream.read(&mut [0; 1]);
        assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    }
}

#[test]
fn those_who_prove_nothing_do_not_stay() {
    let settings = quick(|timeouts| timeouts.request_head = Duration::from_millis(300));
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    let mut silent = TcpStream::connect(pair.mesh_address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = silent.read(&mut [0; 1]);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    pair.called
        .expect("heddle_handshakes_failed_total", &[], 1.0);
}

#[test]
fn a_peer_that_is_refused_has_half_a_second_to_read_why() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let other = Authority::new();
    let unknown = identities(&pair, &other, &id("shop"), NOW - DAY, NOW + DAY);
    let session = unknown.connect(Some(&account("shop")), &account("echo"), Protocol::Link);
    let began = Instant::now();
    let mut intruder = Intruder::connect(pair.mesh_address, session.unwrap());
    while !intruder.closed {
        intruder.read();
    }
    pair.called
        .expect_handshakes_refused("unknown_authority", 1.0);
    // It has the alert, and does not close.
    while intruder.stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(450), "{waited:?}");
}

#[test]
fn a_caller_that_begins_no_link_does_not_stay() {
    let settings = quick(|timeouts| timeouts.request_head = Duration::from_millis(300));
    let pair = Pair::with(&settings, serve(|_| "ok".into()), AppProtocol::Http);
    let silent = intruder(&pair, "shop", Protocol::Link);
    assert_eq!(silent.rest(), b"");
    pair.called
        .expect("heddle_handshakes_failed_total", &[], 1.0);
}

#[test]
fn a_caller_that_is_denied_before_it_has_said_what_it_calls_gets_no_further() {
    let endpoint = serve(|_| "ok".into());
    let pair = Pair::new(endpoint, AppProtocol::Http);
    let mut intruder = as_shop(&pair);
    let bytes = preface(1, endpoint, "echo");
    intruder.send(&bytes[..10]);
    // After the other caller's response, this one has passed its handshake, too.
    assert_eq!(pair.get("intruder").status(), 200);
    let trust = pair.trust(&[&pair.authority], denied(&id("shop")));
    pair.called_trusts(&trust);
    intruder.send(&bytes[10..]);
    intruder.send(GET.as_bytes());
    assert_eq!(intruder.rest(), b"");
    pair.called.expect_handshakes_refused("denied", 1.0);
}

#[test]
fn what_follows_the_preface_at_once_is_heard_on_an_undeclared_port() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Undeclared);
    let mut intruder = as_shop(&pair);
    let mut bytes = preface(2, upstream.address, "echo");
    bytes.extend_from_slice(b"\0\x01hello");
    intruder.send(&bytes);
    assert_eq!(upstream.accept().exact(7), b"\0\x01hello");
}

#[test]
fn an_identity_that_is_not_there_is_not_called() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    pair.called_is_another();
    assert_eq!(pair.get("shop").verdict(), (503, "peer_refused"));
    pair.called.expect_handshakes_refused("unknown_server", 1.0);
}

#[test]
fn a_caller_without_a_certificate_stays_here() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let trust = pair.trust(&[&pair.authority], Denied::default());
    let node = SpiffeId::node(domain(), node_name("calling"));
    let node = pair.authority.leaf(&node, NOW - DAY, NOW + DAY);
    let none = Identities::new(trust, pair.clock(), node, []).unwrap();
    pair.give(&pair.calling, none);
    assert_eq!(pair.get("shop").verdict(), (503, "identity_missing"));
    assert_eq!(
        pair.get("unidentified").status(),
        200,
        "it has no identity to prove"
    );
}

#[test]
fn policies_of_the_called_node_decide() {
    let mut pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    pair.guard(allow("shop"));
    assert_eq!(pair.get("shop").status(), 200);
    for caller in ["intruder", "unidentified"] {
        assert_eq!(
            pair.get(caller).verdict(),
            (403, "policy_denied"),
            "{caller}"
        );
    }
    let mut pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Tcp);
    pair.guard(allow("shop"));
    for (refused, caller) in [(1.0, "intruder"), (2.0, "unidentified")] {
        assert_eq!(pair.sending(caller, b"x").rest(), b"", "{caller}");
        pair.called.expect_rejected("policy_denied", refused);
    }
    // The caller's node learns the reason, too.
    pair.calling.expect_rejected("policy_denied", 2.0);
}

#[test]
fn in_strict_mode_no_caller_is_served_that_has_proven_nothing() {
    let mut pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    for workload in pair.mesh.workloads.iter_mut() {
        workload.mode = Mode::Strict;
    }
    pair.apply(&pair.mesh);
    assert_eq!(pair.get("shop").status(), 200);
    assert_eq!(pair.get("unidentified").verdict(), (403, "policy_denied"));
}

#[test]
fn a_preface_is_a_wish() {
    let endpoint = serve(|_| "ok".into());
    let elsewhere = serve(|_| "not for you".into());
    let pair = Pair::new(endpoint, AppProtocol::Http);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let cases = [
        ("as it should be", endpoint, "echo", "200 OK"),
        (
            "an address that no Service has",
            elsewhere,
            "echo",
            "endpoint_gone",
        ),
        (
            "a Service that is not there",
            endpoint,
            "other",
            "service_gone",
        ),
    ];
    for (what, address, service, expected) in cases {
        let mut intruder = as_shop(&pair);
        let bytes = [&preface(1, address, service)[..], request].concat();
        intruder.send(&bytes);
        let answer = String::from_utf8(intruder.rest()).unwrap();
        assert!(answer.contains(expected), "{what}: {answer}");
    }
    let nonsense = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        preface(1, endpoint, "a b"),
        preface(2, endpoint, "-"),
    ];
    for bytes in nonsense {
        let mut intruder = as_shop(&pair);
        intruder.send(&bytes);
        assert_eq!(intruder.rest(), b"", "{bytes:?}");
    }
    pair.called
        .expect("heddle_handshakes_failed_total", &[], 3.0);
}

#[test]
fn connections_that_call_nothing_have_one_share_together() {
    let endpoint = serve(|_| "ok".into());
    let elsewhere = ([127, 0, 0, 9], 9).into();
    let settings = bounded(|bounds| bounds.connections = 80);
    let pair = Pair::with(&settings, endpoint, AppProtocol::Http);
    let mut stay = Vec::new();
    for n in 0..45 {
        let (address, service) = match n % 2 {
            0 => (endpoint, "other"),
            _ => (elsewhere, "echo"),
        };
        let mut intruder = as_shop(&pair);
        intruder.send(&[&preface(1, address, service)[..], GET.as_bytes()].concat());
        intruder.hear();
        if !intruder.heard.is_empty() {
            assert!(intruder.heard.starts_with(b"HTTP/1.1 503 "), "{n}");
            stay.push(intruder);
        }
    }
    // Half of the limit without the reserved eighth.
    assert_eq!(stay.len(), 35);
    let refused = "heddle_connections_over_share_total";
    pair.called.expect(refused, &[], 10.0);
    // Requests for this node's workload still find room.
    assert_eq!(pair.get("shop").status(), 200);
    drop(stay);
    pair.called.expect("heddle_connections_active", &[], 1.0);
}

#[test]
fn bytes_are_answered_before_they_are_passed_on() {
    let endpoint = serve(|_| "ok".into());
    let elsewhere = ([127, 0, 0, 9], 9).into();
    let pair = Pair::new(endpoint, AppProtocol::Tcp);
    for (address, status) in [(endpoint, 0), (elsewhere, 2)] {
        let mut intruder = as_shop(&pair);
        intruder.send(&preface(2, address, "echo"));
        intruder.hear();
        assert_eq!(intruder.heard, [status], "{address}");
    }
}

#[test]
fn a_node_that_only_trusts_others_is_not_spoken_to() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    let other = Authority::new();
    let trust: Arc<Trust> = pair.trust(&[&other], Denied::default());
    pair.called_trusts(&trust);
    assert_eq!(pair.get("shop").verdict(), (503, "peer_refused"));
    // The counter is read at once: a moment later it would grow with the next attempt.
    pair.called
        .expect_handshakes_refused("unknown_authority", 1.0);
    // The other node counts that it was refused.
    pair.calling.expect_handshakes_refused("by_peer", 1.0);
    // An immediate retry makes no new handshake; a retry after a while does.
    let handshakes = || pair.calling.metric("heddle_handshakes_total", &[]);
    let began = Instant::now();
    let requests = 40;
    for _ in 0..requests {
        assert_eq!(pair.get("shop").status(), 503);
    }
    let at_most = 2.0 + began.elapsed().as_secs_f64() / 0.5;
    assert!(handshakes() <= at_most, "{} handshakes", handshakes());
    while handshakes() < 2.0 {
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(pair.get("shop").status(), 503);
    }
}
