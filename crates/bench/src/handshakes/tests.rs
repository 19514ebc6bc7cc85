use std::net::TcpListener;

use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::authority::Authority;

fn options(dir: &std::path::Path, to: SocketAddr) -> Handshakes {
    Handshakes {
        to,
        name: "far.lab.sa.cluster.local".to_owned(),
        protocol: "lab".to_owned(),
        certificate: dir.join("near.pem"),
        key: dir.join("near.key"),
        rate: 100,
        seconds: 0.1,
    }
}

/// A server that demands certificates of one authority and shakes hands with one caller.
fn serve_one(authority: &Authority, dir: &std::path::Path) -> SocketAddr {
    authority.write_root(dir).expect("root");
    let far = authority.leaf("far").expect("leaf");
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(dir.join("root.pem")).expect("root");
    roots.add(root).expect("root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_client_cert_verifier(verifier.build().expect("verifier"))
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(far.certificate.as_bytes()).expect("PEM")],
            PrivateKeyDer::from_pem_slice(far.key.as_bytes()).expect("PEM"),
        )
        .expect("leaf");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut connection = ServerConnection::new(Arc::new(config)).expect("server");
        while connection
            .complete_io(&mut stream)
            .is_ok_and(|(read, _)| read > 0)
        {}
    });
    address
}

#[test]
fn a_handshake_counts_when_the_server_believes_the_caller() {
    let (ours, others) = (
        Authority::new().expect("ours"),
        Authority::new().expect("others"),
    );
    for (signer, believed) in [(&ours, true), (&others, false)] {
        let dir = tempfile::tempdir().expect("dir");
        let near = signer.leaf("near").expect("leaf");
        near.write(dir.path(), "near").expect("files");
        let to = serve_one(&ours, dir.path());
        let options = options(dir.path(), to);
        let config = Arc::new(config(&options).expect("config"));
        let name = ServerName::try_from(options.name).expect("name");
        assert_eq!(shake(to, &config, &name).is_ok(), believed);
    }
}

#[test]
fn what_failed_is_counted_by_kind() {
    let mut found = HandshakeResults::new().expect("found");
    found.add(Ok(()), Duration::from_micros(500));
    found.add(Err(ErrorKind::UnexpectedEof.into()), Duration::ZERO);
    found.add(Err(ErrorKind::UnexpectedEof.into()), Duration::ZERO);
    let shaken = found.shaken(Duration::from_secs(2));
    assert_eq!(shaken.handshakes, 1);
    assert_eq!(shaken.errors.values().sum::<u64>(), 2);
    assert_eq!(shaken.errors.len(), 1);
}
