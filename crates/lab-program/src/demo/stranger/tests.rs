//! The demo notices a port that answers strangers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A server for one connection, with TLS or without, which answers or hangs up.
fn server(tls: bool, answers: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        if tls && answers {
            let session = ServerConnection::new(Arc::new(server_config())).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(ANSWER).unwrap();
        } else {
            assert!(stream.read(&mut request).unwrap() > 0);
            if answers {
                stream.write_all(ANSWER).unwrap();
            }
        }
    });
    address
}

fn server_config() -> ServerConfig {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["details".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![Protocol::Http1.alpn().to_vec()];
    config
}

#[tokio::test]
async fn a_port_that_answers_strangers_is_noticed() {
    for (stranger, tls) in [(Stranger::Plaintext, false), (Stranger::Anonymous, true)] {
        let connection = TcpStream::connect(server(tls, true)).await.unwrap();
        let answered = stranger.call(connection, "details").await.unwrap();
        assert!(answered > 0, "{stranger:?}");
        let connection = TcpStream::connect(server(tls, false)).await.unwrap();
        let turned_away = stranger.call(connection, "details").await.unwrap();
        assert_eq!(turned_away, 0, "{stranger:?}");
    }
}
