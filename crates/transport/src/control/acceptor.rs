//! The control plane's side of a handshake.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ALPN;
use crate::suites::provider;
use crate::verify::Verifier;
use crate::{Clock, Leaf, Peer, Refusal, Trust};

#[cfg(test)]
mod tests;

/// Makes authenticated streams of accepted connections. What it shows and which peers it believes
/// can be exchanged while it serves: a handshake that begins later uses what is newest.
///
/// Nothing is ever resumed: every connection verifies a certificate, and nodes keep theirs for long.
pub struct Acceptor {
    clock: Arc<Clock>,
    now: Mutex<Now>,
}

/// What is in force.
struct Now {
    shown: Arc<CertifiedKey>,
    trust: Arc<Trust>,
    config: Arc<ServerConfig>,
}

/// Why a connection is not taken.
#[derive(Debug)]
pub enum AcceptError {
    /// Who is at the other end is refused, or refuses us.
    Refused(Refusal),
    /// The connection failed.
    Io(io::Error),
}

impl Acceptor {
    /// Shows a leaf with its chain and, behind it, the root (in DER) that it verifies against; believes
    /// the peers that `trust` allows.
    ///
    /// # Errors
    /// When the library refuses a configuration, which only a fault of ours explains.
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

    /// Shows another leaf from now on, as [`Acceptor::new`] does.
    ///
    /// # Errors
    /// As [`Acceptor::new`]; then the old one is shown.
    pub fn show(&self, leaf: &Leaf, root: &[u8]) -> Result<(), rustls::Error> {
        let mut now = self.now();
        let shown = shown(leaf, root);
        now.config = config(&self.clock, &shown, &now.trust)?;
        now.shown = shown;
        Ok(())
    }

    /// Believes other peers from now on. Connections that were accepted stay: their server checks again.
    ///
    /// # Errors
    /// As [`Acceptor::new`]; then the old ones are believed.
    pub fn believe(&self, trust: Arc<Trust>) -> Result<(), rustls::Error> {
        let mut now = self.now();
        now.config = config(&self.clock, &now.shown, &trust)?;
        now.trust = trust;
        Ok(())
    }

    /// Shakes hands. A client that shows no certificate is anonymous; one that shows a certificate is
    /// believed or refused.
    ///
    /// The call has no deadline of its own.
    ///
    /// # Errors
    /// [`AcceptError`]. A client that is refused was told, by an alert.
    pub async fn accept<IO>(&self, io: IO) -> Result<(TlsStream<IO>, Option<Peer>), AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.now().config);
        let stream = TlsAcceptor::from(config).accept(io).await?;
        let (_, connection) = stream.get_ref();
        // A client that offers no protocol at all is let through by the library.
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(AcceptError::Refused(Refusal::Protocol));
        }
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        let peer = leaf.map(|leaf| Peer::read(leaf)).transpose();
        Ok((stream, peer.map_err(AcceptError::Refused)?))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // It is changed by whole fields, and no panic comes between two that belong together.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The chain with the root behind it: a node that joins knows the root by its digest only.
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
    // There is one identity here, whatever name a client asks for: one that joins may not know it yet.
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
        // What the library finds wrong comes wrapped.
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
