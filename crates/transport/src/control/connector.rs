//! A node's side of the TLS handshake with the control plane.
//!
//! | a node that | shows | believes |
//! |---|---|---|
//! | joins | nothing | the chain that ends in the root of its token, and no other |
//! | has joined | the certificate of its own identity | the roots of its bundle, less the deny-list |
//!
//! In both cases the server must prove the control plane's identity.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use heddle_model::{SpiffeId, Subject, TrustDomain};
use rustls::ClientConfig;
use rustls::Error;
use rustls::client::Resumption;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use webpki::KeyUsage;

use super::ALPN;
use crate::suites::provider;
use crate::verify::{Verifier, signatures};
use crate::{Clock, Denied, Leaf, Peer, Refusal, Trust};

#[cfg(test)]
mod tests;

/// Limit on the certificates of a shown chain: four, and the root.
const MAX_SHOWN: usize = 5;

/// Authenticates connections to the control plane. Its certificate and trust are fixed: a node makes a new one when
/// either changes.
///
/// Sessions are never resumed: every connection verifies a certificate.
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    shown: Shown,
}

/// Validity (start and end, in seconds since 1970) of the certificate that a server showed last. It is not verified:
/// use it only in messages.
type Shown = Arc<Mutex<Option<(u64, u64)>>>;

/// Why a connection to the control plane failed.
#[derive(Debug)]
pub enum ConnectError {
    /// One side rejected the other's certificate, or broke the TLS protocol.
    Refused(Refusal),
    /// The connection failed.
    Io(io::Error),
}

impl Connector {
    /// For a joining node: shows no certificate, and trusts a chain whose last certificate, the root, has this SHA-256
    /// digest (of its DER form).
    ///
    /// # Errors
    /// When rustls rejects the configuration: a bug in Heddle.
    pub fn joining(root_sha256: [u8; 32], clock: &Arc<Clock>) -> Result<Connector, Error> {
        let shown = Shown::default();
        let config = config(Believed::Digest(root_sha256), clock, &shown)?.with_no_client_auth();
        // A joining node does not know its trust domain yet, so it sends no server name (SNI); the control plane has
        // only one certificate. An IP address is never sent as SNI (RFC 6066 section 3).
        let name = ServerName::from(std::net::Ipv4Addr::UNSPECIFIED);
        Ok(Connector::with(config, name, shown))
    }

    /// For a node that has joined: shows its leaf, and accepts a control plane that `trust` allows.
    ///
    /// # Errors
    /// As [`Connector::joining`], and when the trust domain is too long for a server name (SNI).
    pub fn joined(leaf: &Leaf, trust: &Arc<Trust>, clock: &Arc<Clock>) -> Result<Connector, Error> {
        let name = SpiffeId::control(trust.domain().clone()).server_name();
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let name = name.ok_or(Error::General("the trust domain is too long".to_owned()))?;
        let own = SingleCertAndKey::from(Arc::clone(&leaf.certified));
        let shown = Shown::default();
        let config = config(Believed::Trust(Arc::clone(trust)), clock, &shown)?
            .with_client_cert_resolver(Arc::new(own));
        Ok(Connector::with(config, name, shown))
    }

    fn with(mut config: ClientConfig, name: ServerName<'static>, shown: Shown) -> Connector {
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Connector {
            config: Arc::new(config),
            name,
            shown,
        }
    }

    /// Validity (start and end, in seconds since 1970) of the certificate that the server showed last, accepted or not.
    pub fn shown_validity(&self) -> Option<(u64, u64)> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the handshake over an open connection; returns the control plane's identity from its certificate.
    ///
    /// In TLS 1.3 the client's handshake completes before the server has verified our certificate: if the server
    /// rejects it, the first read of the stream fails.
    ///
    /// It has no deadline of its own.
    ///
    /// # Errors
    /// [`ConnectError`]. A rejected server was sent only handshake messages.
    pub async fn connect<IO>(&self, io: IO) -> Result<(TlsStream<IO>, Peer), ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), io).await?;
        let (_, connection) = stream.get_ref();
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(ConnectError::Refused(Refusal::Protocol));
        }
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.ok_or(ConnectError::Refused(Refusal::Anonymous))?;
        let peer = Peer::read(leaf).map_err(ConnectError::Refused)?;
        Ok((stream, peer))
    }
}

fn config(
    believed: Believed,
    clock: &Arc<Clock>,
    shown: &Shown,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, Error> {
    let provider = provider();
    let verifier = Arc::new(ControlVerifier {
        believed,
        shown: Arc::clone(shown),
        clock: Arc::clone(clock),
        algorithms: provider.signature_verification_algorithms,
    });
    let builder = ClientConfig::builder_with_details(provider, Arc::clone(clock) as _);
    Ok(builder
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

/// Where the trusted roots come from.
#[derive(Debug)]
enum Believed {
    /// The root that the server shows, if it has this digest.
    Digest([u8; 32]),
    /// The roots of the node's trust bundle.
    Trust(Arc<Trust>),
}

/// Accepts only the control plane's certificate.
#[derive(Debug)]
struct ControlVerifier {
    believed: Believed,
    shown: Shown,
    clock: Arc<Clock>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ControlVerifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
    ) -> Result<(), Refusal> {
        let shown = Peer::read(leaf)?;
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((shown.not_before, shown.not_after));
        if rest.len() >= MAX_SHOWN {
            let why = format!("{} certificates in one chain", rest.len() + 1);
            return Err(Refusal::BadCertificate(why));
        }
        let (trust, rest) = match &self.believed {
            Believed::Trust(trust) => (Arc::clone(trust), rest),
            Believed::Digest(digest) => trust_by(digest, &shown.id.trust_domain, rest)?,
        };
        let now = self.clock.now();
        // When our clock is certainly behind, do not reject a certificate as not valid yet: the signature of a trusted
        // root proves that its start has passed.
        let at = match self.clock.is_degraded() {
            true => now.max(shown.not_before),
            false => now,
        };
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        let peer = Verifier::new(trust).verify(leaf, rest, KeyUsage::server_auth(), at)?;
        if peer.id.subject != Subject::Control {
            return Err(Refusal::WrongIdentity {
                expected: SpiffeId::control(peer.id.trust_domain.clone()),
                found: peer.id,
            });
        }
        self.clock.raise(peer.not_before);
        if self.clock.now() < peer.not_before {
            return Err(Refusal::NotYetValid);
        }
        Ok(())
    }
}

/// Trust in the last certificate of a chain if it has this digest, and the chain without that certificate.
fn trust_by<'a, 'c>(
    sha256: &[u8; 32],
    domain: &TrustDomain,
    rest: &'a [CertificateDer<'c>],
) -> Result<(Arc<Trust>, &'a [CertificateDer<'c>]), Refusal> {
    let (root, rest) = rest.split_last().ok_or(Refusal::UnknownAuthority)?;
    verify_slices_are_equal(digest(&SHA256, root).as_ref(), sha256)
        .map_err(|_| Refusal::UnknownAuthority)?;
    let trust = Trust::new(domain.clone(), &[root.to_vec()], Denied::default());
    let trust = trust.map_err(|error| Refusal::BadCertificate(error.to_string()))?;
    Ok((Arc::new(trust), rest))
}

impl ServerCertVerifier for ControlVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(leaf, rest)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures! {}
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        // TLS errors arrive wrapped in an I/O error.
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => Self::Refused(Error::clone(tls).into()),
            None => Self::Io(error),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}
