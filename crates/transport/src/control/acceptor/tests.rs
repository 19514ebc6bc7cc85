use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use heddle_model::{NodeName, SpiffeId, TrustDomain};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::*;
use crate::Denied;
use crate::fixture::{Authority, DAY, NOW, domain};

fn control() -> SpiffeId {
    SpiffeId::control(domain())
}

fn node(name: &str) -> SpiffeId {
    SpiffeId::node(domain(), NodeName::parse(name).unwrap())
}

fn acceptor(authority: &Authority, trust: Arc<Trust>, clock: Arc<Clock>) -> Acceptor {
    let leaf = authority.leaf(&control(), NOW - DAY, NOW + DAY);
    Acceptor::new(clock, &leaf, &authority.root, trust).unwrap()
}

fn usual(authority: &Authority) -> Acceptor {
    let clock = Arc::new(Clock::with(0, || NOW));
    acceptor(authority, authority.trust(Denied::default()), clock)
}

/// The TLS configuration of a node that shows `leaf`.
fn client(authority: &Authority, leaf: Option<&Leaf>) -> ClientConfig {
    let clock = Arc::new(Clock::with(0, || NOW));
    let verifier = Verifier::new(authority.trust(Denied::default()));
    let builder = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match leaf {
        Some(leaf) => {
            let own = SingleCertAndKey::from(Arc::clone(&leaf.certified));
            builder.with_client_cert_resolver(Arc::new(own))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

type Server = TlsStream<DuplexStream>;
type Client = tokio_rustls::client::TlsStream<DuplexStream>;

/// The result of a handshake at both ends.
async fn call(
    acceptor: &Acceptor,
    config: ClientConfig,
) -> (
    Result<(Server, Option<Peer>), AcceptError>,
    io::Result<Client>,
) {
    let (ours, theirs) = duplex(64 * 1024);
    let name = ServerName::try_from(control().server_name().unwrap()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let (server, client) = tokio::join!(acceptor.accept(theirs), connector.connect(name, ours));
    (server.map_err(|unaccepted| unaccepted.error), client)
}

async fn refused(acceptor: &Acceptor, config: ClientConfig) -> Refusal {
    match call(acceptor, config).await.0 {
        Err(AcceptError::Refused(refusal)) => refusal,
        other => panic!("{:?}", other.map(|(_, peer)| peer)),
    }
}

#[tokio::test]
async fn a_client_that_shows_nothing_is_anonymous_and_sees_the_root() {
    let authority = Authority::new();
    let (server, client) = call(&usual(&authority), client(&authority, None)).await;
    let (mut server, peer) = server.unwrap();
    assert_eq!(peer, None);
    let mut client = client.unwrap();
    let chain = client.get_ref().1.peer_certificates().unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1].as_ref(), authority.root);

    client.write_all(b"join").await.unwrap();
    let mut said = [0; 4];
    server.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"join");
}

#[tokio::test]
async fn who_shows_a_certificate_is_who_it_says() {
    let authority = Authority::new();
    let leaf = authority.leaf(&node("n1"), NOW - DAY, NOW + DAY);
    let (server, _) = call(&usual(&authority), client(&authority, Some(&leaf))).await;
    let peer = server.unwrap().1.unwrap();
    assert_eq!((&peer.id, peer.not_after), (&node("n1"), NOW + DAY));
    assert_eq!(&*peer.serial, leaf.serial());
}

#[tokio::test(start_paused = true)]
async fn others_are_refused_and_it_is_said_why() {
    let authority = Authority::new();
    let other = Authority::new();
    let elsewhere = TrustDomain::parse("elsewhere.test").unwrap();
    let foreign = SpiffeId::node(elsewhere, NodeName::parse("n1").unwrap());
    let n1 = node("n1");
    let denied = Denied {
        ids: [node("denied")].into(),
        ..Denied::default()
    };
    let clock = Arc::new(Clock::with(0, || NOW));
    let acceptor = acceptor(&authority, authority.trust(denied), clock);
    for (signer, id, from, until, wanted) in [
        (&other, &n1, NOW - DAY, NOW + DAY, "unknown_authority"),
        (&authority, &n1, NOW - DAY, NOW - 1, "expired"),
        (&authority, &n1, NOW + 1, NOW + DAY, "not_yet_valid"),
        (
            &authority,
            &foreign,
            NOW - DAY,
            NOW + DAY,
            "wrong_trust_domain",
        ),
        (&authority, &node("denied"), NOW - DAY, NOW + DAY, "denied"),
    ] {
        let leaf = signer.leaf(id, from, until);
        let refusal = refused(&acceptor, client(&authority, Some(&leaf))).await;
        assert_eq!(refusal.code(), wanted, "{refusal}");
    }

    let mut config = client(&authority, None);
    config.alpn_protocols.clear();
    assert_eq!(refused(&acceptor, config).await, Refusal::Protocol);
}

/// In TLS 1.3 the client has sent its first request before it can know that it is refused. Over sockets, since a reset
/// would take the alert away.
#[tokio::test]
async fn a_refused_client_reads_why_even_if_it_has_sent_its_first_requests() {
    let authority = Authority::new();
    let denied = Denied {
        ids: [node("denied")].into(),
        ..Denied::default()
    };
    let clock = Arc::new(Clock::with(0, || NOW));
    let acceptor = acceptor(&authority, authority.trust(denied), clock);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (stream, _) = listener.accept().await.unwrap();
        let unaccepted = acceptor.accept(stream).await.map(drop).unwrap_err();
        let is_denied = matches!(&unaccepted.error, AcceptError::Refused(refusal) if refusal.code() == "denied");
        unaccepted.part().await;
        is_denied
    };
    let leaf = authority.leaf(&node("denied"), NOW - DAY, NOW + DAY);
    let call = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(client(&authority, Some(&leaf))));
        let name = ServerName::try_from(control().server_name().unwrap()).unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"a request").await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let alert = stream.read(&mut [0; 8]).await.unwrap_err();
        match AcceptError::from(alert) {
            AcceptError::Refused(refusal) => refusal,
            AcceptError::Io(error) => panic!("{error}"),
        }
    };
    let (is_denied, told) = tokio::join!(serve, call);
    assert!(is_denied);
    assert_eq!(told.code(), "by_peer", "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_no_identity_is_refused() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign(&["https://node/n1"], NOW - DAY, NOW + DAY);
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.to_vec()).unwrap();
    let mut config = client(&authority, None);
    let certified = CertifiedKey::new(
        vec![CertificateDer::from(certificate)],
        rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap(),
    );
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    let refusal = refused(&usual(&authority), config).await;
    assert_eq!(refusal, Refusal::NoSpiffeId);
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_apart() {
    let authority = Authority::new();
    let (mut ours, theirs) = duplex(1024);
    ours.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let refused = usual(&authority).accept(theirs).await;
    assert!(matches!(
        refused.map_err(|unaccepted| unaccepted.error),
        Err(AcceptError::Refused(Refusal::Plaintext))
    ));
    // So is a client that disconnects.
    let (ours, theirs) = duplex(1024);
    drop(ours);
    let gone = usual(&authority).accept(theirs).await;
    assert!(matches!(
        gone.map_err(|unaccepted| unaccepted.error),
        Err(AcceptError::Io(_))
    ));
}

#[tokio::test]
async fn what_is_shown_and_believed_is_exchanged_while_it_serves() {
    let authority = Authority::new();
    let acceptor = usual(&authority);
    let leaf = authority.leaf(&node("n1"), NOW - DAY, NOW + DAY);
    assert!(
        call(&acceptor, client(&authority, Some(&leaf)))
            .await
            .0
            .is_ok()
    );

    let denied = Denied {
        serials: [leaf.serial().into()].into(),
        ..Denied::default()
    };
    acceptor.believe(authority.trust(denied)).unwrap();
    let refusal = refused(&acceptor, client(&authority, Some(&leaf))).await;
    assert_eq!(refusal, Refusal::Denied);

    // With another root, clients that know only the old one reject the server; others accept it.
    let next = Authority::new();
    let shown = next.leaf(&control(), NOW - DAY, NOW + DAY);
    acceptor.show(&shown, &next.root).unwrap();
    let (_, old) = call(&acceptor, client(&authority, None)).await;
    assert!(old.is_err());
    let (_, new) = call(&acceptor, client(&next, None)).await;
    let new = new.unwrap();
    let chain = new.get_ref().1.peer_certificates().unwrap();
    assert_eq!(chain[1].as_ref(), next.root);
}

/// A resumption would verify no certificate: no ticket is issued, and validity is judged by our clock.
#[tokio::test]
async fn every_connection_is_verified_anew() {
    let authority = Authority::new();
    let time = Arc::new(AtomicU64::new(NOW));
    let read = Arc::clone(&time);
    let clock = Arc::new(Clock::with(0, move || read.load(Relaxed)));
    let acceptor = acceptor(&authority, authority.trust(Denied::default()), clock);
    let leaf = authority.leaf(&node("n1"), NOW - DAY, NOW + DAY);
    let config = client(&authority, Some(&leaf));
    let (server, client) = call(&acceptor, config.clone()).await;
    let (mut server, mut client) = (server.unwrap().0, client.unwrap());
    // A ticket would arrive with the first bytes.
    server.write_all(b"x").await.unwrap();
    client.read_u8().await.unwrap();
    time.store(NOW + DAY + 1, Relaxed);
    assert_eq!(refused(&acceptor, config).await, Refusal::Expired);
}
