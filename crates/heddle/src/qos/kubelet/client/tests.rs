//! The client against a server of this test that answers one question.

use std::fs;
use std::sync::Arc;

use heddle_node::settings::KubeletSettings;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::Client;

const LIST: &str = r#"{"kind":"PodList","items":[]}"#;

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// One for a name, signed by itself.
fn own(name: &str) -> Pair {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("made");
    Pair {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

fn signed(by: &CertifiedIssuer<'static, KeyPair>, name: &str) -> Pair {
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    Pair {
        certificate: params.signed_by(&key, by).expect("signed").pem(),
        key: key.serialize_pem(),
    }
}

/// A server's side of TLS; with an authority of clients it asks for their certificates.
fn acceptor(pair: &Pair, clients: Option<&str>) -> TlsAcceptor {
    let certificates = |pem: &str| {
        let all = rustls::pki_types::CertificateDer::pem_slice_iter(pem.as_bytes());
        all.map(|one| one.expect("PEM")).collect::<Vec<_>>()
    };
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3");
    let builder = match clients {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(pem));
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates(&pair.certificate), key);
    TlsAcceptor::from(Arc::new(config.expect("a pair")))
}

/// Answers one question, and returns its head.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: &str) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    // The client may refuse the answer before its end.
    let _sent = stream.write_all(answer.as_bytes()).await;
    let _closed = stream.shutdown().await;
    String::from_utf8(head).expect("text")
}

async fn serve(tls: Option<TlsAcceptor>, text: String) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        match tls {
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => answer(stream, &text).await,
                Err(error) => error.to_string(),
            },
            None => answer(stream, &text).await,
        }
    });
    (port, task)
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn status(code: &str) -> String {
    format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\n\r\n")
}

/// Settings for a server on this machine, and a folder for their files.
struct Given {
    settings: KubeletSettings,
    folder: TempDir,
}

impl Given {
    fn at(url: &str) -> Given {
        let mut settings = KubeletSettings::default();
        settings.set_url(url.parse().expect(url));
        let folder = tempfile::tempdir().expect("a folder");
        Given { settings, folder }
    }

    fn file(&self, name: &str, text: &str) -> Option<std::path::PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        Some(path)
    }

    fn client(&self) -> Client {
        Client::new(&self.settings).expect("a URL")
    }

    async fn text(&self) -> Result<String, String> {
        let answer = self.client().pods().await;
        let answer = answer.map_err(|trouble| trouble.to_string())?;
        Ok(String::from_utf8(answer.to_vec()).expect("text"))
    }
}

#[tokio::test]
async fn a_certificate_in_the_file_is_trusted_under_any_name_and_the_token_is_sent() {
    let pair = own("another-name");
    let (port, served) = serve(Some(acceptor(&pair, None)), ok(LIST)).await;
    let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
    given.settings.ca = given.file("ca", &pair.certificate);
    given.settings.token_file = given.file("token", "secret\n");
    assert_eq!(given.text().await.as_deref(), Ok(LIST));
    let head = served.await.expect("served");
    assert!(head.starts_with("GET /pods HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer secret\r\n"), "{head}");
    assert!(head.contains(&format!("host: 127.0.0.1:{port}\r\n")));
}

#[tokio::test]
async fn a_certificate_of_an_authority_is_trusted_under_its_name_alone() {
    let authority = authority();
    for (name, trusted) in [("127.0.0.1", true), ("10.0.0.1", false)] {
        let pair = signed(&authority, name);
        let (port, _served) = serve(Some(acceptor(&pair, None)), ok(LIST)).await;
        let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
        given.settings.ca = given.file("ca", &authority.pem());
        let answer = given.text().await;
        assert_eq!(answer.is_ok(), trusted, "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn another_certificate_is_refused_with_a_remedy() {
    let (port, served) = serve(Some(acceptor(&own("127.0.0.1"), None)), ok(LIST)).await;
    let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
    given.settings.ca = given.file("ca", &own("127.0.0.1").certificate);
    given.settings.token_file = given.file("token", "secret");
    let why = given.text().await.expect_err("not trusted");
    assert!(why.contains("not trusted"), "{why}");
    assert!(why.contains("--kubelet-ca"), "{why}");
    let head = served.await.expect("served");
    assert!(!head.contains("secret"), "the token was sent: {head}");
}

#[tokio::test]
async fn the_certificate_of_an_authority_is_refused_in_words() {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let itself = Pair {
        certificate: params.self_signed(&key).expect("signed").pem(),
        key: key.serialize_pem(),
    };
    let (port, _served) = serve(Some(acceptor(&itself, None)), ok(LIST)).await;
    let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
    given.settings.ca = given.file("ca", &own("127.0.0.1").certificate);
    let why = given.text().await.expect_err("not trusted");
    let wanted = "not trusted: it is that of an authority";
    assert!(why.contains(wanted) && !why.contains("Other"), "{why}");
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let (server, clients) = (own("kubelet"), authority());
    let client = signed(&clients, "agent");
    let tls = acceptor(&server, Some(&clients.pem()));
    let (port, served) = serve(Some(tls), ok(LIST)).await;
    let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
    given.settings.ca = given.file("ca", &server.certificate);
    given.settings.certificate = given.file("certificate", &client.certificate);
    given.settings.key = given.file("key", &client.key);
    assert_eq!(given.text().await.as_deref(), Ok(LIST));
    assert!(served.await.expect("served").starts_with("GET"));
}

#[tokio::test]
async fn what_is_refused_has_a_remedy() {
    for (answer, parts) in [
        (status("401 Unauthorized"), ["401", "--kubelet-token"]),
        (status("403 Forbidden"), ["403", "nodes/pods"]),
        (status("404 Not Found"), ["404", "address and port"]),
        (status("503 x"), ["503", "log"]),
        (status("302 Found"), ["302", "log"]),
        ("HTTP/9 what\r\n\r\n".to_owned(), ["HTTP", "pars"]),
        (ok(LIST).replace(": 2", ": 9"), ["broke off", ""]),
        (String::new(), ["connection", ""]),
    ] {
        let (port, _served) = serve(None, answer.clone()).await;
        let given = Given::at(&format!("http://127.0.0.1:{port}"));
        let why = given.text().await.expect_err(&answer);
        assert!(
            parts.iter().all(|part| why.contains(part)),
            "{answer}: {why}"
        );
    }
}

#[tokio::test]
async fn a_kubelet_that_is_away_and_answers_that_are_too_long_are_said() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let given = Given::at(&format!("http://127.0.0.1:{port}"));
    let why = given.text().await.expect_err("refused");
    assert!(why.contains("whether the kubelet runs"), "{why}");

    let (port, _served) = serve(None, ok(&" ".repeat(3 << 20))).await;
    let given = Given::at(&format!("http://127.0.0.1:{port}"));
    let client = Client {
        max_answer: 2 << 20,
        ..given.client()
    };
    let why = client.pods().await.expect_err("too long").to_string();
    assert_eq!(why, "its answer has more than 2 MiB");

    // The port of a program that speaks first.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let _served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").await
    });
    let mut given = Given::at(&format!("https://127.0.0.1:{port}"));
    given.settings.ca = given.file("ca", &own("a").certificate);
    let why = given.text().await.expect_err("no TLS");
    assert!(why.contains("does not speak TLS"), "{why}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_their_fields() {
    let mut given = Given::at("https://127.0.0.1:1");
    given.settings.ca = Some(given.folder.path().join("missing"));
    let told = |given: &Given| given.client().files.config().map(|_| ());
    let why = told(&given).expect_err("missing");
    assert!(why.starts_with("qos.kubelet.ca: /"), "{why}");
    given.settings.ca = given.file("ca", "no PEM");
    let why = told(&given).expect_err("no PEM");
    assert!(why.contains("no certificate in PEM"), "{why}");
    given.settings.ca = given.file("ca", &own("a").certificate);
    given.settings.certificate = given.file("certificate", &own("a").certificate);
    given.settings.key = given.file("key", &own("b").certificate);
    let why = told(&given).expect_err("no key");
    assert!(why.starts_with("qos.kubelet.key: /"), "{why}");
    for (token, reason) in [("a\nb", "no token"), (&"x".repeat(70_000), "64 KiB")] {
        given.settings.token_file = given.file("token", token);
        let why = given.client().request().expect_err("no token").to_string();
        assert!(why.starts_with("qos.kubelet.token_file: /"), "{why}");
        assert!(why.contains(reason), "{why}");
    }
}
