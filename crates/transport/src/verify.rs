//! Verification of peer certificates for rustls.
//!
//! webpki verifies the chain (RFC 5280 section 6). DNS names in certificates are ignored: the peer's identity is its
//! SPIFFE id, and the server name (SNI) only carries the identity that the client asks for ([`SpiffeId::server_name`]).

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
use crate::{Peer, Protocol, Refusal, Trust};

/// The signature methods that every rustls verifier must have; they use the `algorithms` field.
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

/// Verifies certificate chains against a [`Trust`].
pub(crate) struct Verifier {
    trust: Arc<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
    /// Whether a client without a certificate may connect, as anonymous.
    anonymous: bool,
    /// What kind of peer must answer; `None` if the session decides it, by the protocol.
    must_be: Option<PeerKind>,
}

/// Which certificates a peer may have, by the protocol that is spoken with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// A node: marked certificates only.
    Node,
    /// A workload's own proxy: the unmarked certificate of a workload only.
    Workload,
}

impl PeerKind {
    /// The kind of peer with which a protocol is spoken.
    pub(crate) fn of(protocol: Protocol) -> Self {
        match protocol.is_stock() {
            true => PeerKind::Workload,
            false => PeerKind::Node,
        }
    }

    /// # Errors
    /// When the peer is of another kind.
    pub(crate) fn check(self, peer: &Peer) -> Result<(), Refusal> {
        let is_workload = peer.id.service_account().is_some();
        match self {
            PeerKind::Node if peer.node.is_none() => Err(Refusal::NotANode),
            PeerKind::Workload if peer.node.is_some() || !is_workload => Err(Refusal::NotAWorkload),
            PeerKind::Node | PeerKind::Workload => Ok(()),
        }
    }
}

impl Verifier {
    pub(crate) fn new(trust: Arc<Trust>) -> Self {
        let provider = crate::suites::provider();
        Verifier {
            trust,
            algorithms: provider.signature_verification_algorithms,
            anonymous: false,
            must_be: None,
        }
    }

    /// A verifier that accepts only certificates of that kind of peer.
    pub(crate) fn of(kind: PeerKind, trust: Arc<Trust>) -> Self {
        Verifier {
            must_be: Some(kind),
            ..Verifier::new(trust)
        }
    }

    /// A verifier that also accepts clients without a certificate.
    #[cfg(feature = "control")]
    pub(crate) fn or_anonymous(trust: Arc<Trust>) -> Self {
        Verifier {
            anonymous: true,
            ..Verifier::new(trust)
        }
    }

    /// Verifies a chain for a key usage, and returns the peer.
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

    /// Like [`Verifier::verify`], and also returns the root under which the chain verifies.
    pub(crate) fn verify_path(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(Peer, Option<RootId>), Refusal> {
        let bad = |error: webpki::Error| refusal(&error);
        // Check the form first: it is cheap, and gives a foreign trust domain its own error.
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
        // Check the mark last, so that an untrusted or expired certificate gets that error instead.
        if let Some(kind) = self.must_be {
            kind.check(&peer)?;
        }
        Ok((peer, self.trust.root_of(path.anchor())))
    }
}

fn refusal(error: &webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertExpired { .. } => Refusal::Expired,
        webpki::Error::CertNotValidYet { .. } => Refusal::NotYetValid,
        webpki::Error::CertRevoked => Refusal::Denied,
        // A chain under another root fails by its issuer name or by its signature.
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
        // Every client has only one identity to show, so a hint would not help it.
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
