//! Clients that nodes must refuse at their port for each other: one without TLS, one without a certificate.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use heddle_transport::Protocol;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// Timeout until the node refuses.
const LIMIT: Duration = Duration::from_secs(5);
/// Size limit of a response, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
const REQUEST: &[u8] = b"GET /details/1 HTTP/1.1\r\nHost: details\r\n\r\n";

/// Kind of client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stranger {
    /// Speaks HTTP without TLS.
    Plaintext,
    /// Speaks TLS as nodes do, but has no certificate.
    Anonymous,
}

impl Stranger {
    pub(super) const ALL: [Stranger; 2] = [Stranger::Plaintext, Stranger::Anonymous];

    /// The `reason` label with which a node counts it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Stranger::Plaintext => "plaintext",
            Stranger::Anonymous => "anonymous",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Stranger::Plaintext => "HTTP without TLS",
            Stranger::Anonymous => "TLS without a certificate",
        }
    }

    /// Sends a request over a connection to a node, with the server name `name`; returns the received bytes of
    /// application data, which should be 0.
    ///
    /// # Errors The node keeps the connection open without an answer.
    pub(super) async fn call(self, stream: TcpStream, name: &str) -> anyhow::Result<usize> {
        let exchange = async {
            match self {
                Stranger::Plaintext => plaintext(stream).await,
                Stranger::Anonymous => anonymous(stream, name).await,
            }
        };
        let answer = timeout(LIMIT, exchange).await;
        answer.with_context(|| format!("the node does not refuse {}", self.words()))?
    }
}

/// A TLS alert or nothing is a refusal; a response that begins with `HTTP` is not.
async fn plaintext(mut stream: TcpStream) -> anyhow::Result<usize> {
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    // A reset connection is a refusal, too.
    let _ = stream
        .take(ANSWER_LIMIT as u64)
        .read_to_end(&mut answer)
        .await;
    Ok(match answer.starts_with(b"HTTP") {
        true => answer.len(),
        false => 0,
    })
}

async fn anonymous(mut stream: TcpStream, name: &str) -> anyhow::Result<usize> {
    let name = ServerName::try_from(name.to_owned())?;
    let mut session = ClientConnection::new(Arc::new(config()?), name)?;
    let mut bytes = vec![0; 16 * 1024];
    let mut asked = false;
    let mut answer = 0;
    loop {
        if !asked && !session.is_handshaking() {
            asked = true;
            std::io::Write::write_all(&mut session.writer(), REQUEST)?;
        }
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out)?;
        }
        // The node may already have closed the connection.
        if stream.write_all(&out).await.is_err() {
            return Ok(answer);
        }
        let Ok(length) = stream.read(&mut bytes).await else {
            return Ok(answer);
        };
        let mut received = &bytes[..length];
        if received.is_empty() {
            return Ok(answer);
        }
        while !received.is_empty() {
            session.read_tls(&mut received)?;
            match session.process_new_packets() {
                Ok(state) => answer += state.plaintext_bytes_to_read(),
                // An alert: the expected refusal.
                Err(_) => return Ok(answer),
            }
            if answer > 0 {
                return Ok(answer);
            }
        }
    }
}

fn config() -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let believing = Arc::new(Believing(Arc::clone(&provider)));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(believing)
        .with_no_client_auth();
    config.alpn_protocols = vec![Protocol::Http1.alpn().to_vec()];
    Ok(config)
}

/// Accepts any server certificate, since a stranger does not care which server it talks to.
#[derive(Debug)]
struct Believing(Arc<CryptoProvider>);

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
