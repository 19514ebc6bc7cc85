//! The control plane's side of the TLS handshake.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ALPN;
use crate::suites::provider;
use crate::verify::Verifier;
use crate::{Clock, Leaf, Peer, Refusal, Trust};

#[cfg(test)]
mod tests;

/// How long a refused client may take to read why and to close, and how much it may send meanwhile, in bytes.
const FAREWELL: Duration = Duration::from_millis(500);
const FAREWELL_BYTES: u64 = 64 << 10;

/// Authenticates accepted connections. The leaf and the trust can be replaced while it serves: the next handshake uses
/// the new ones.
///
/// Sessions are never resumed: every connection verifies a certificate, and nodes keep their connections for a long
/// time.
pub struct Acceptor {
    clock: Arc<Clock>,
    now: Mutex<Now>,
}

/// The leaf, trust and configuration for the next handshake.
struct Now {
    shown: Arc<CertifiedKey>,
    trust: Arc<Trust>,
    config: Arc<ServerConfig>,
}

/// Why a connection is not accepted.
#[derive(Debug)]
pub enum AcceptError {
    /// One side rejected the other's certificate, or broke the TLS protocol.
    Refused(Refusal),
    /// The connection failed.
    Io(io::Error),
}

/// A connection that is not accepted.
#[derive(Debug)]
pub struct Unaccepted<IO> {
    /// Why.
    pub error: AcceptError,
    /// The connection of a client that was sent an alert, which it may not have read yet.
    refused: Option<IO>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Unaccepted<IO> {
    /// Lets a refused client read the alert, for 500 ms at most. It has sent its first request by then, and if a socket
    /// with unread bytes is closed, the kernel resets the connection, and the client may never see what was sent (RFC 9112
    /// section 9.6).
    pub async fn part(self) {
        let Some(mut io) = self.refused else { return };
        let farewell = async {
            io.shutdown().await?;
            tokio::io::copy(&mut io.take(FAREWELL_BYTES), &mut tokio::io::sink()).await
        };
        // The client is refused either way.
        let _parted = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

impl<IO> From<AcceptError> for Unaccepted<IO> {
    fn from(error: AcceptError) -> Self {
        Unaccepted {
            error,
            refused: None,
        }
    }
}

impl Acceptor {
    /// Shows a leaf with its chain, followed by the root (in DER) under which it verifies. Accepts the clients that
    /// `trust` allows, and anonymous ones.
    ///
    /// # Errors
    /// When rustls rejects the configuration: a bug in Heddle.
    pub fn new(
        clock: Arc<Clock>,
        leaf: &Leaf,
        root: &[u8],
        trust: Arc<Trust>,
    ) -> Result<Acceptor, rustls::Error> {
        let shown = shown(leaf, root);
        let config = config(&clock, &shown, &trust)?;
        let now = Mutex::new(Now {
            shown,
            trust,
            config,
        });
        Ok(Acceptor { clock, now })
    }

    /// Shows another leaf in new handshakes, as [`Acceptor::new`] does.
    ///
    /// # Errors
    /// As [`Acceptor::new`]; the old leaf then stays in use.
    pub fn show(&self, leaf: &Leaf, root: &[u8]) -> Result<(), rustls::Error> {
        let mut now = self.now();
        let shown = shown(leaf, root);
        now.config = config(&self.clock, &shown, &now.trust)?;
        now.shown = shown;
        Ok(())
    }

    /// Uses another trust in new handshakes. Established connections stay open: their server has to check its peers
    /// again.
    ///
    /// # Errors
    /// As [`Acceptor::new`]; the old trust then stays in use.
    pub fn believe(&self, trust: Arc<Trust>) -> Result<(), rustls::Error> {
        let mut now = self.now();
        now.config = config(&self.clock, &now.shown, &trust)?;
        now.trust = trust;
        Ok(())
    }

    /// Does the handshake. A client without a certificate is anonymous (`None`); a certificate is verified, and the
    /// handshake fails if it is rejected.
    ///
    /// It has no deadline of its own.
    ///
    /// # Errors
    /// [`Unaccepted`]. A rejected client has been sent an alert: [`Unaccepted::part`] lets it be read.
    pub async fn accept<IO>(&self, io: IO) -> Result<(TlsStream<IO>, Option<Peer>), Unaccepted<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.now().config);
        let accepting = TlsAcceptor::from(config).accept(io).into_fallible();
        let stream = match accepting.await {
            Ok(stream) => stream,
            Err((error, io)) => {
                let error = AcceptError::from(error);
                let is_refused = matches!(error, AcceptError::Refused(_));
                return Err(Unaccepted {
                    error,
                    refused: is_refused.then_some(io),
                });
            }
        };
        let (_, connection) = stream.get_ref();
        // rustls lets a client without ALPN through.
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(AcceptError::Refused(Refusal::Protocol).into());
        }
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        let peer = leaf.map(|leaf| Peer::read(leaf)).transpose();
        let peer = peer.map_err(AcceptError::Refused)?;
        Ok((stream, peer))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Each field is replaced as a whole, and no panic can occur between two fields that belong together.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The chain followed by the root: a joining node knows only the root's digest.
fn shown(leaf: &Leaf, root: &[u8]) -> Arc<CertifiedKey> {
    let mut chain = leaf.certified.cert.clone();
    chain.push(CertificateDer::from(root.to_vec()));
    let key = Arc::clone(&leaf.certified.key);
    Arc::new(CertifiedKey::new(chain, key))
}

fn config(
    clock: &Arc<Clock>,
    shown: &Arc<CertifiedKey>,
    trust: &Arc<Trust>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let verifier = Arc::new(Verifier::or_anonymous(Arc::clone(trust)));
    // The server has one identity and ignores the server name (SNI), which a joining node may not know yet.
    let resolver = SingleCertAndKey::from(Arc::clone(shown));
    let builder = ServerConfig::builder_with_details(provider(), Arc::clone(clock) as _);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("trust", &self.now().trust)
            .finish_non_exhaustive()
    }
}

impl From<io::Error> for AcceptError {
    fn from(error: io::Error) -> Self {
        // TLS errors arrive wrapped in an I/O error.
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => Self::Refused(rustls::Error::clone(tls).into()),
            None => Self::Io(error),
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcceptError {}
