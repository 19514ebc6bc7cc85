use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_model::{ServiceAccountName, SpiffeId, TrustDomain};
use proptest::prelude::*;

use super::*;
use crate::fixture::{Authority, DAY, NOW, account, clock, domain, id};
use crate::{Clock, Denied, Identities, MAX_PLAINTEXT, MAX_SEALED, Trust};

mod stock;

/// A client and a server session, and the bytes in flight to each.
struct Pair {
    client: Session,
    server: Session,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
}

impl Pair {
    fn new(client: &Identities, server: &Identities) -> Pair {
        Pair::between(client, "cart", server, "reviews")
    }

    fn between(client: &Identities, source: &str, server: &Identities, dest: &str) -> Pair {
        Pair {
            client: client
                .connect(Some(&account(source)), &account(dest), Protocol::Link)
                .unwrap(),
            server: server.accept().unwrap(),
            to_client: Vec::new(),
            to_server: Vec::new(),
        }
    }

    /// Exchanges bytes, at most `piece` at a time, until neither side has more to send.
    fn handshake(&mut self, piece: usize) -> Result<(), Box<(TlsError, TlsError)>> {
        let mut client = self
            .client
            .receive(&mut [], &mut self.to_server, &mut |_| {});
        let mut server = Ok(Received::default());
        for _ in 0..100_000 {
            if self.to_client.is_empty() && self.to_server.is_empty() {
                break;
            }
            let take = piece.min(self.to_server.len());
            let mut bytes: Vec<u8> = self.to_server.drain(..take).collect();
            if server.is_ok() {
                server = self
                    .server
                    .receive(&mut bytes, &mut self.to_client, &mut |_| {});
            }
            let take = piece.min(self.to_client.len());
            let mut bytes: Vec<u8> = self.to_client.drain(..take).collect();
            if client.is_ok() {
                client = self
                    .client
                    .receive(&mut bytes, &mut self.to_server, &mut |_| {});
            }
        }
        match (client, server) {
            (Ok(_), Ok(_)) => Ok(()),
            (client, server) => Err(Box::new((
                client.err().unwrap_or(TlsError::TooEarly),
                server.err().unwrap_or(TlsError::TooEarly),
            ))),
        }
    }

    /// Sends plaintext from the client, and returns what the server reads.
    fn upward(&mut self, plain: &[u8], piece: usize) -> Vec<u8> {
        let mut sealed = vec![0; MAX_SEALED];
        let n = self.client.seal(plain, &mut sealed).unwrap();
        let mut read = Vec::new();
        for part in sealed[..n].chunks_mut(piece) {
            let mut out = Vec::new();
            let mut keep = |bytes: &[u8]| read.extend_from_slice(bytes);
            self.server.receive(part, &mut out, &mut keep).unwrap();
            assert!(out.is_empty());
        }
        read
    }
}

fn refused(client: &Identities, server: &Identities) -> (Refusal, Refusal) {
    let why = |error| match error {
        TlsError::Refused(refusal) => refusal,
        other => Refusal::Tls(other.to_string()),
    };
    let (client, server) = *Pair::new(client, server).handshake(usize::MAX).unwrap_err();
    (why(client), why(server))
}

#[test]
fn each_side_knows_the_other() {
    let authority = Authority::new();
    let client = authority.node(&[authority.usual("cart")]);
    let server = authority.node(&[authority.usual("reviews"), authority.usual("other")]);
    for piece in [usize::MAX, 1000, 7, 1] {
        let mut pair = Pair::new(&client, &server);
        pair.handshake(piece).unwrap();
        assert_eq!(pair.client.peer().unwrap().id, id("reviews"));
        assert_eq!(pair.server.peer().unwrap().id, id("cart"));
        assert_eq!(pair.server.server_id(), Some(&id("reviews")));
        assert_eq!(
            pair.upward(b"GET / HTTP/1.1\r\n\r\n", piece),
            b"GET / HTTP/1.1\r\n\r\n"
        );
        assert!(pair.server.tls.holds_no_buffer());
    }
}

#[test]
fn a_call_for_no_workload_shows_the_nodes_identity() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("reviews")]);
    let mut pair = Pair::new(&authority.node(&[authority.usual("cart")]), &node);
    let protocol = Protocol::Link;
    pair.client = node.connect(None, &account("reviews"), protocol).unwrap();
    pair.handshake(usize::MAX).unwrap();
    let shown = &pair.server.peer().unwrap().id;
    assert_eq!(shown.service_account(), None);
    assert_eq!(shown.to_string(), "spiffe://mesh.test/heddle/node/edge-1");
}

#[test]
fn a_session_ends_each_way_by_itself() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("cart"), authority.usual("reviews")]);
    let mut pair = Pair::new(&node, &node);
    pair.handshake(usize::MAX).unwrap();
    let mut out = vec![0; MAX_SEALED];
    let n = pair.client.close(&mut out).unwrap();
    let received = pair
        .server
        .receive(&mut out[..n], &mut Vec::new(), &mut |_| {})
        .unwrap();
    assert!(received.closed);
    // The other direction is still open.
    let n = pair.server.seal(b"more", &mut out).unwrap();
    let mut read = Vec::new();
    let mut keep = |bytes: &[u8]| read.extend_from_slice(bytes);
    let received = pair
        .client
        .receive(&mut out[..n], &mut Vec::new(), &mut keep)
        .unwrap();
    assert!(!received.closed);
    assert_eq!(read, b"more");
}

#[test]
fn certificates_that_prove_nothing_are_refused_with_a_reason() {
    let authority = Authority::new();
    let foreign = Authority::new();
    let usual = |name: &str| authority.usual(name);
    let node = |leaf| authority.node(&[leaf]);
    let valid = |name: &str, from, until| authority.leaf(&id(name), from, until);
    let good = || node(usual("cart"));

    // Certificates that the client rejects.
    let expired = node(valid("reviews", NOW - 2 * DAY, NOW));
    let later = Arc::new(Clock::with(0, || NOW + 60));
    let trust = authority.trust(Denied::default());
    let client = authority.node_with(Arc::clone(&trust), later, &[usual("cart")]);
    assert_eq!(refused(&client, &expired).0, Refusal::Expired);
    let early = node(valid("reviews", NOW + 60, NOW + DAY));
    assert_eq!(refused(&good(), &early).0, Refusal::NotYetValid);
    let foreign_leaf = foreign.usual("reviews");
    let stranger = foreign.node_with(foreign.trust(Denied::default()), clock(), &[foreign_leaf]);
    assert_eq!(refused(&good(), &stranger).0, Refusal::UnknownAuthority);

    // Certificates that the server rejects.
    let expired = node(valid("cart", NOW - 2 * DAY, NOW));
    let later = Arc::new(Clock::with(0, || NOW + 60));
    let server = authority.node_with(trust, later, &[usual("reviews")]);
    assert_eq!(refused(&expired, &server).1, Refusal::Expired);
    let early = node(valid("cart", NOW + 60, NOW + DAY));
    assert_eq!(
        refused(&early, &node(usual("reviews"))).1,
        Refusal::NotYetValid
    );
    let stranger = authority.node_with(
        authority.trust(Denied::default()),
        clock(),
        &[foreign.usual("cart")],
    );
    assert_eq!(
        refused(&stranger, &node(usual("reviews"))).1,
        Refusal::UnknownAuthority
    );

    // The server's node does not have the workload that the client calls.
    let other = node(usual("other"));
    let (client, server) = refused(&good(), &other);
    assert!(matches!(client, Refusal::ByPeer(_)), "{client:?}");
    assert_eq!(server, Refusal::UnknownServer);
}

#[test]
fn a_server_with_another_identity_is_refused() {
    // A server whose name leads to another workload's certificate.
    let authority = Authority::new();
    let client = authority.node(&[authority.usual("cart")]);
    let expected = id("reviews");
    let verifier = crate::verify::Verifier::new(authority.trust(Denied::default()));
    let (leaf, _) = authority.sign(&[&id("intruder").to_string()], NOW - DAY, NOW + DAY);
    let name = expected.server_name().unwrap();
    let error = rustls::client::danger::ServerCertVerifier::verify_server_cert(
        &verifier,
        &leaf.into(),
        &[],
        &name.try_into().unwrap(),
        &[],
        rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW)),
    )
    .unwrap_err();
    let found = id("intruder");
    assert_eq!(
        Refusal::from(error),
        Refusal::WrongIdentity { expected, found }
    );
    drop(client);
}

#[test]
fn another_trust_domain_is_named() {
    let authority = Authority::new();
    let other = TrustDomain::parse("other.test").unwrap();
    let abroad = SpiffeId::workload(other.clone(), account("cart"));
    let leaf = authority.leaf(&abroad, NOW - DAY, NOW + DAY);
    let trust = Trust::new(
        other,
        std::slice::from_ref(&authority.root),
        Denied::default(),
    )
    .unwrap();
    let client = authority.node_with(Arc::new(trust), clock(), &[leaf]);
    let session = client.connect(Some(&account("cart")), &account("reviews"), Protocol::Link);
    let server = authority.node(&[authority.usual("reviews")]);
    let mut pair = Pair::new(&authority.node(&[authority.usual("cart")]), &server);
    pair.client = session.unwrap();
    // The client asks for a name of its own domain, and no workload here has it.
    assert!(pair.handshake(usize::MAX).is_err());
    let peer = Peer {
        id: abroad,
        node: None,
        serial: Box::new([1]),
        not_before: 0,
        not_after: u64::MAX,
    };
    let expected = Refusal::WrongTrustDomain("other.test".to_owned());
    assert_eq!(server.check(&peer), Err(expected));
}

#[test]
fn a_workloads_own_certificate_is_no_nodes_whatever_is_spoken() {
    let authority = Authority::new();
    let own = |name| authority.leaf_for(None, &id(name), NOW - DAY, NOW + DAY);
    let nodes = |name| authority.node(&[authority.usual(name)]);
    for protocol in Protocol::NODES {
        let refused = TlsError::Refused(Refusal::NotANode);
        // As the client.
        let cart = authority.node(&[own("cart")]);
        let mut pair = Pair::new(&cart, &nodes("reviews"));
        let session = cart.connect(Some(&account("cart")), &account("reviews"), protocol);
        pair.client = session.unwrap();
        let (_, at_server) = *pair.handshake(usize::MAX).unwrap_err();
        assert_eq!(at_server, refused, "{protocol:?}");
        // As the server.
        let cart = nodes("cart");
        let mut pair = Pair::new(&cart, &authority.node(&[own("reviews")]));
        let session = cart.connect(Some(&account("cart")), &account("reviews"), protocol);
        pair.client = session.unwrap();
        let (at_client, _) = *pair.handshake(usize::MAX).unwrap_err();
        assert_eq!(at_client, refused, "{protocol:?}");
    }
}

#[test]
fn the_deny_list_counts_for_certificates_and_for_identities() {
    let authority = Authority::new();
    let leaf = authority.usual("cart");
    let server = |denied| {
        let trust = authority.trust(denied);
        authority.node_with(trust, clock(), &[authority.usual("reviews")])
    };
    let by_serial = Denied {
        serials: [leaf.serial().into()].into(),
        ..Denied::default()
    };
    let by_id = Denied {
        ids: [id("cart")].into(),
        ..Denied::default()
    };
    let client = authority.node(&[Arc::clone(&leaf)]);
    for denied in [by_serial, by_id] {
        let server = server(denied);
        let (client, found) = refused(&client, &server);
        assert_eq!(found, Refusal::Denied);
        assert_eq!(
            client,
            Refusal::ByPeer("we are on its deny-list".to_owned())
        );
        assert_eq!(server.check(&leaf.shown), Err(Refusal::Denied));
    }
}

#[test]
fn a_resumed_session_is_held_against_the_clock_and_the_deny_list() {
    let authority = Authority::new();
    let client = authority.node(&[authority.usual("cart")]);
    let time = Arc::new(AtomicU64::new(NOW));
    let shown = Arc::clone(&time);
    let clock = Arc::new(Clock::with(0, move || shown.load(Ordering::Relaxed)));
    let trust = authority.trust(Denied::default());
    let leaf = authority.leaf(&id("reviews"), NOW - DAY, NOW + 2 * DAY);
    let server = authority.node_with(trust, clock, &[leaf]);

    Pair::new(&client, &server).handshake(usize::MAX).unwrap();
    let mut second = Pair::new(&client, &server);
    second.handshake(usize::MAX).unwrap();
    assert!(second.server.tls.was_resumed());
    let peer = second.server.peer().unwrap();
    assert_eq!(server.check(peer), Ok(()));
    time.store(NOW + DAY + 1, Ordering::Relaxed);
    assert_eq!(server.check(peer), Err(Refusal::Expired));
    // The node's own leaf has expired by now, and so have all tickets.
    let mut third = Pair::new(&client, &server);
    assert!(third.handshake(usize::MAX).is_err());
}

#[test]
fn what_speaks_no_tls_is_told_apart() {
    let authority = Authority::new();
    let server = authority.node(&[authority.usual("reviews")]);
    for plain in [
        &b"GET / HTTP/1.1\r\nHost: reviews\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        let mut session = server.accept().unwrap();
        let error = session.receive(&mut plain.to_vec(), &mut Vec::new(), &mut |_| {});
        assert_eq!(error, Err(TlsError::Refused(Refusal::Plaintext)));
    }
}

#[test]
fn nothing_is_sealed_before_the_peer_is_known() {
    let authority = Authority::new();
    let node = authority.node(&[authority.usual("cart"), authority.usual("reviews")]);
    let mut session = node
        .connect(Some(&account("cart")), &account("reviews"), Protocol::Link)
        .unwrap();
    let mut hello = Vec::new();
    session.receive(&mut [], &mut hello, &mut |_| {}).unwrap();
    assert!(!hello.is_empty());
    let sealed = session.seal(b"secret", &mut vec![0; MAX_SEALED]);
    assert_eq!(sealed, Err(TlsError::TooEarly));
    let stranger = ServiceAccountName::new("shop", "stranger").unwrap();
    let none = node.connect(Some(&stranger), &account("reviews"), Protocol::Link);
    assert_eq!(none.unwrap_err(), crate::NoIdentity::Missing);
    assert_eq!(domain().as_str(), "mesh.test");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The size of the pieces does not change the plaintext, and any flipped bit ends the session.
    #[test]
    fn bytes_arrive_as_they_were_sent(
        bytes in proptest::collection::vec(any::<u8>(), 1..MAX_PLAINTEXT),
        piece in 1_usize..20_000,
        flip in any::<prop::sample::Index>(),
    ) {
        let authority = Authority::new();
        let node = authority.node(&[authority.usual("cart"), authority.usual("reviews")]);
        let mut pair = Pair::new(&node, &node);
        pair.handshake(usize::MAX).unwrap();
        prop_assert_eq!(&pair.upward(&bytes, piece), &bytes);

        let mut sealed = vec![0; MAX_SEALED];
        let n = pair.client.seal(&bytes, &mut sealed).unwrap();
        sealed[flip.index(n)] ^= 1;
        let mut read = Vec::new();
        let mut keep = |bytes: &[u8]| read.extend_from_slice(bytes);
        let result = pair.server.receive(&mut sealed[..n], &mut Vec::new(), &mut keep);
        prop_assert!(result.is_err() || read.len() < bytes.len());
        prop_assert!(bytes.starts_with(&read));
    }
}
