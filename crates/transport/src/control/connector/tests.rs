//! The test's server shows any chain that it is told to show.

use heddle_model::{NodeName, TrustDomain};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::fixture::{Authority, DAY, NOW, clock, domain, id};

fn control() -> SpiffeId {
    SpiffeId::control(domain())
}

fn digest_of(root: &[u8]) -> [u8; 32] {
    digest(&SHA256, root).as_ref().try_into().unwrap()
}

/// Connects to a server that shows the leaf followed by `behind`; returns the peer that the client found, and the one
/// that the server found.
async fn connect(
    connector: &Connector,
    shown: &Leaf,
    behind: &[&[u8]],
    asks: Option<Arc<dyn ClientCertVerifier>>,
) -> (Result<Peer, Refusal>, Option<Peer>) {
    connect_by(connector, shown, behind, asks, ALPN).await
}

async fn connect_by(
    connector: &Connector,
    shown: &Leaf,
    behind: &[&[u8]],
    asks: Option<Arc<dyn ClientCertVerifier>>,
    protocol: &[u8],
) -> (Result<Peer, Refusal>, Option<Peer>) {
    let mut chain = shown.certified.cert.clone();
    chain.extend(behind.iter().map(|der| CertificateDer::from(der.to_vec())));
    let key = CertifiedKey::new(chain, Arc::clone(&shown.certified.key));
    let builder = ServerConfig::builder_with_details(provider(), clock() as _);
    let builder = builder.with_protocol_versions(&[&TLS13]).unwrap();
    let builder = match asks {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::new(key))));
    config.alpn_protocols = vec![protocol.to_vec()];
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (connected, accepted) = tokio::join!(connector.connect(near), acceptor.accept(far));
    let connected = match connected {
        Ok((_, peer)) => Ok(peer),
        Err(ConnectError::Refused(refusal)) => Err(refusal),
        Err(ConnectError::Io(error)) => panic!("{error}"),
    };
    let found = accepted.ok().and_then(|stream| {
        let (_, connection) = stream.get_ref();
        let shown = connection.peer_certificates()?.first()?.clone();
        Some(Peer::read(&shown).unwrap())
    });
    (connected, found)
}

#[tokio::test]
async fn who_joins_believes_the_root_of_its_token_alone() {
    let own = Authority::new();
    let other = Authority::new();
    let usual = own.leaf(&control(), NOW - DAY, NOW + DAY);
    let foreign = other.leaf(&control(), NOW - DAY, NOW + DAY);
    let workload = own.usual("cart");
    let early = own.leaf(&control(), NOW + 60, NOW + DAY);
    let late = own.leaf(&control(), NOW - DAY, NOW - 1);
    let elsewhere = SpiffeId::control(TrustDomain::parse("other.test").unwrap());
    let elsewhere = own.leaf(&elsewhere, NOW - DAY, NOW + DAY);
    let connector = Connector::joining(digest_of(&own.root), &clock()).unwrap();
    let wrong = |found: &Leaf| Refusal::WrongIdentity {
        expected: control(),
        found: found.id().clone(),
    };
    let (root, stranger) = (own.root.as_slice(), other.root.as_slice());
    for (name, leaf, behind, expected) in [
        ("its own", &usual, vec![root], Ok(control())),
        // The trust domain is the one that the token's authority uses.
        (
            "any domain",
            &elsewhere,
            vec![root],
            Ok(elsewhere.id().clone()),
        ),
        (
            "another root",
            &foreign,
            vec![stranger],
            Err(Refusal::UnknownAuthority),
        ),
        (
            "another's leaf",
            &foreign,
            vec![root],
            Err(Refusal::UnknownAuthority),
        ),
        (
            "not behind it",
            &usual,
            vec![],
            Err(Refusal::UnknownAuthority),
        ),
        (
            "not last",
            &usual,
            vec![root, stranger],
            Err(Refusal::UnknownAuthority),
        ),
        (
            "another identity",
            &workload,
            vec![root],
            Err(wrong(&workload)),
        ),
        ("expired", &late, vec![root], Err(Refusal::Expired)),
        (
            "not yet valid",
            &early,
            vec![root],
            Err(Refusal::NotYetValid),
        ),
        (
            "too many",
            &usual,
            vec![root; MAX_SHOWN],
            Err(Refusal::BadCertificate(
                "6 certificates in one chain".to_owned(),
            )),
        ),
    ] {
        let (found, _) = connect(&connector, leaf, &behind, None).await;
        assert_eq!(found.map(|peer| peer.id), expected, "{name}");
    }
}

#[tokio::test]
async fn a_node_shows_itself_and_believes_its_bundle() {
    let (own, next, other) = (Authority::new(), Authority::new(), Authority::new());
    let node = SpiffeId::node(domain(), NodeName::parse("edge-1").unwrap());
    let leaf = own.leaf(&node, NOW - DAY, NOW + DAY);
    let control_leaf = |by: &Authority| by.leaf(&control(), NOW - DAY, NOW + DAY);
    let denied_leaf = control_leaf(&own);
    let denied = Denied {
        serials: [denied_leaf.serial().into()].into(),
        ..Denied::default()
    };
    // During a rotation there are two roots.
    let roots = [own.root.clone(), next.root.clone()];
    let trust = Arc::new(Trust::new(domain(), &roots, denied).unwrap());
    let connector = Connector::joined(&leaf, &trust, &clock()).unwrap();
    let late = own.leaf(&control(), NOW - DAY, NOW - 1);
    let workload = own.usual("cart");
    for (name, shown, root, expected) in [
        ("the old root", control_leaf(&own), &own, Ok(control())),
        ("the new root", control_leaf(&next), &next, Ok(control())),
        (
            "a stranger",
            control_leaf(&other),
            &other,
            Err(Refusal::UnknownAuthority),
        ),
        ("denied", denied_leaf, &own, Err(Refusal::Denied)),
        ("expired", late, &own, Err(Refusal::Expired)),
        (
            "another identity",
            Arc::clone(&workload),
            &own,
            Err(Refusal::WrongIdentity {
                expected: control(),
                found: id("cart"),
            }),
        ),
    ] {
        let asks = Arc::new(Verifier::new(own.trust(Denied::default())));
        let (found, client) = connect(&connector, &shown, &[&root.root], Some(asks)).await;
        assert_eq!(found.clone().map(|peer| peer.id), expected, "{name}");
        if found.is_ok() {
            assert_eq!(client.unwrap().id, node, "{name}");
        }
    }
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_refused() {
    let own = Authority::new();
    let leaf = own.leaf(&control(), NOW - DAY, NOW + DAY);
    let connector = Connector::joining(digest_of(&own.root), &clock()).unwrap();
    let (found, _) = connect_by(&connector, &leaf, &[&own.root], None, b"http/1.1").await;
    assert!(found.is_err(), "{found:?}");
}

/// A node whose clock stands at 1970 knows by its floor that the clock is wrong. It accepts a signed certificate that
/// starts after the floor, but never one that had expired before the floor.
#[tokio::test]
async fn a_clock_that_is_behind_learns_the_time_from_who_is_trusted() {
    let own = Authority::new();
    let node = SpiffeId::node(domain(), NodeName::parse("edge-1").unwrap());
    let leaf = own.leaf(&node, NOW - DAY, NOW + DAY);
    let trust = own.trust(Denied::default());
    let floor = NOW - 3 * DAY;
    for (from, until, expected) in [
        (NOW - DAY, NOW + DAY, Ok(NOW - DAY)),
        (floor - DAY, floor + DAY, Ok(floor)),
        (floor - DAY, floor - 1, Err(Refusal::Expired)),
        // The floor rises by at most a year and a day.
        (NOW + 500 * DAY, NOW + 501 * DAY, Err(Refusal::NotYetValid)),
    ] {
        let clock = Arc::new(Clock::with(floor, || 0));
        let connector = Connector::joined(&leaf, &trust, &clock).unwrap();
        let shown = own.leaf(&control(), from, until);
        let (found, _) = connect(&connector, &shown, &[&own.root], None).await;
        assert_eq!(found.map(|_| clock.now()), expected);
    }
    // A clock that is right, or has no floor, is believed.
    for floor in [0, NOW - 3 * DAY] {
        let clock = Arc::new(Clock::with(floor, || NOW));
        let connector = Connector::joined(&leaf, &trust, &clock).unwrap();
        let shown = own.leaf(&control(), NOW + 60, NOW + DAY);
        let (found, _) = connect(&connector, &shown, &[&own.root], None).await;
        assert_eq!(found.map(|_| ()), Err(Refusal::NotYetValid));
        // The validity that was shown is available for the error message.
        assert_eq!(connector.shown_validity(), Some((NOW + 60, NOW + DAY)));
    }
}
