//! Strangers at the port where nodes connect to each other: without TLS, and without a certificate.

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

/// How long the port may take to turn a stranger away.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
/// What is asked for.
const REQUEST: &[u8] = b"GET /details/1 HTTP/1.1\r\nHost: details\r\n\r\n";

/// Who comes to the port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stranger {
    /// A client that speaks HTTP and no TLS.
    Plaintext,
    /// A client that speaks TLS as nodes do, and shows no certificate.
    Anonymous,
}

impl Stranger {
    pub(super) const ALL: [Stranger; 2] = [Stranger::Plaintext, Stranger::Anonymous];

    /// By which reason a node counts that it was refused.
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

    /// Asks for something over a connection to a node, in the name of the server `name`; returns the bytes of
    /// the application's protocol that came back, which should be none.
    ///
    /// # Errors
    /// The node leaves one waiting.
    pub(super) async fn call(self, stream: TcpStream, name: &str) -> anyhow::Result<usize> {
        let exchange = async {
            match self {
                Stranger::Plaintext => plaintext(stream).await,
                Stranger::Anonymous => anonymous(stream, name).await,
            }
        };
        let answer = timeout(LIMIT, exchange).await;
        answer.with_context(|| format!("the node does not turn {} away", self.words()))?
    }
}

/// What comes back is an alert of TLS, or nothing; what begins as HTTP does is an answer.
async fn plaintext(mut stream: TcpStream) -> anyhow::Result<usize> {
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    // That the connection is reset is an answer as well.
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
        // A stranger that was turned away may find the connection closed.
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
                // An alert, which is what it should say.
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

/// A stranger does not care which server it talks to.
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
