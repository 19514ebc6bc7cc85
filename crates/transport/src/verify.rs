//! What rustls asks about a peer's certificate.
//!
//! The chain is verified by webpki (RFC 5280 section 6); names are not looked at as DNS names: who
//! a peer is stands in a SPIFFE id, and which identity a client asked for is written in the server name
//! ([`SpiffeId::server_name`]).

use std::fmt;
use std::sync::Arc;

use heddle_model::SpiffeId;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DistinguishedName, Error};
use webpki::{EndEntityCert, KeyUsage};

use crate::trust::RootId;
use crate::{Peer, Refusal, Trust};

/// The methods that every verifier of rustls has for signatures: by the `algorithms` of its own.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}
#[cfg(feature = "control")]
pub(crate) use signatures;

/// Verifies chains against a [`Trust`].
pub(crate) struct Verifier {
    trust: Arc<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
    /// Whether a client that shows no certificate may connect anonymously.
    anonymous: bool,
    /// Whether only nodes are believed.
    nodes: bool,
}

impl Verifier {
    pub(crate) fn new(trust: Arc<Trust>) -> Self {
        let provider = crate::suites::provider();
        Verifier {
            trust,
            algorithms: provider.signature_verification_algorithms,
            anonymous: false,
            nodes: false,
        }
    }

    /// One that believes only what is marked as a node's.
    pub(crate) fn of_nodes(trust: Arc<Trust>) -> Self {
        Verifier {
            nodes: true,
            ..Verifier::new(trust)
        }
    }

    /// One that lets clients connect anonymously, too.
    #[cfg(feature = "control")]
    pub(crate) fn or_anonymous(trust: Arc<Trust>) -> Self {
        Verifier {
            anonymous: true,
            ..Verifier::new(trust)
        }
    }

    /// Verifies a chain for a use, and says whose it is.
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Peer, Refusal> {
        let (peer, _) = self.verify_path(leaf, rest, usage, now)?;
        Ok(peer)
    }

    /// The same, and which root vouches for it.
    pub(crate) fn verify_path(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(Peer, Option<RootId>), Refusal> {
        let bad = |error: webpki::Error| refusal(&error);
        // The form first: it is cheap, and a foreign domain is worth being named.
        let peer = Peer::read(leaf)?;
        self.trust.check(&peer, now.as_secs())?;
        let certificate = EndEntityCert::try_from(leaf).map_err(bad)?;
        let path = certificate
            .verify_for_usage(
                self.algorithms.all,
                self.trust.roots(),
                rest,
                now,
                usage,
                None,
                None,
            )
            .map_err(bad)?;
        // Last: what no root of ours signed, or has expired, is said to be that.
        if self.nodes && peer.node.is_none() {
            return Err(Refusal::NotANode);
        }
        Ok((peer, self.trust.root_of(path.anchor())))
    }
}

fn refusal(error: &webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertExpired { .. } => Refusal::Expired,
        webpki::Error::CertNotValidYet { .. } => Refusal::NotYetValid,
        webpki::Error::CertRevoked => Refusal::Denied,
        // A chain that another root signed fails by its name or by its signature.
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            Refusal::UnknownAuthority
        }
        other => Refusal::BadCertificate(other.to_string()),
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verifier").field(&self.trust).finish()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let peer = self.verify(leaf, rest, KeyUsage::server_auth(), now)?;
        let ServerName::DnsName(name) = server_name else {
            return Err(Refusal::UnknownServer.into());
        };
        let expected = SpiffeId::from_server_name(self.trust.domain(), name.as_ref());
        let expected = expected.ok_or(Refusal::UnknownServer)?;
        if peer.id != expected {
            let found = peer.id;
            return Err(Refusal::WrongIdentity { expected, found }.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    signatures! {}
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.anonymous
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Every client has one identity to show: no hint helps it to choose.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(leaf, rest, KeyUsage::client_auth(), now)?;
        Ok(ClientCertVerified::assertion())
    }

    signatures! {}
}
