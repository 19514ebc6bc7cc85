//! Reasons to reject a peer.

use std::fmt;
use std::sync::Arc;

use heddle_model::SpiffeId;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// Why we reject a peer, or why the peer rejects us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The peer does not speak TLS.
    Plaintext,
    /// The peer shows no certificate.
    Anonymous,
    /// The certificate has no SPIFFE id, several, or one of a form that this mesh does not use.
    NoSpiffeId,
    /// The peer has another identity than the one that we called.
    WrongIdentity {
        /// The called identity.
        expected: SpiffeId,
        /// The identity that answered.
        found: SpiffeId,
    },
    /// The peer belongs to this other trust domain.
    WrongTrustDomain(String),
    /// The peer acts as a node, but its certificate is not marked as a node's.
    NotANode,
    /// The peer acts as a workload's own proxy, but its certificate is a node's, the control plane's, or one that an
    /// Envoy has towards the control plane only.
    NotAWorkload,
    /// No trusted root signed the peer's certificate.
    UnknownAuthority,
    /// The peer's certificate has expired.
    Expired,
    /// The peer's certificate is not valid yet.
    NotYetValid,
    /// The peer's certificate or identity is on the deny-list.
    Denied,
    /// The peer's certificate is malformed, or not meant for this usage.
    BadCertificate(String),
    /// The two sides have no application protocol in common.
    Protocol,
    /// The client asked for an identity that this node does not have.
    UnknownServer,
    /// The peer rejected us; the meaning of its alert.
    ByPeer(String),
    /// The peer broke the TLS protocol, or its alert says that we did.
    Tls(String),
}

impl Refusal {
    /// All codes that [`Refusal::code`] can return.
    pub const CODES: [&'static str; 16] = [
        "plaintext",
        "anonymous",
        "no_spiffe_id",
        "wrong_identity",
        "wrong_trust_domain",
        "unknown_authority",
        "expired",
        "not_yet_valid",
        "denied",
        "bad_certificate",
        "protocol",
        "unknown_server",
        "by_peer",
        "tls",
        "not_a_node",
        "not_a_workload",
    ];

    /// Position in [`Refusal::CODES`].
    pub fn index(&self) -> usize {
        match self {
            Refusal::Plaintext => 0,
            Refusal::Anonymous => 1,
            Refusal::NoSpiffeId => 2,
            Refusal::WrongIdentity { .. } => 3,
            Refusal::WrongTrustDomain(_) => 4,
            Refusal::UnknownAuthority => 5,
            Refusal::Expired => 6,
            Refusal::NotYetValid => 7,
            Refusal::Denied => 8,
            Refusal::BadCertificate(_) => 9,
            Refusal::Protocol => 10,
            Refusal::UnknownServer => 11,
            Refusal::ByPeer(_) => 12,
            Refusal::Tls(_) => 13,
            Refusal::NotANode => 14,
            Refusal::NotAWorkload => 15,
        }
    }

    /// Stable code for metrics and logs.
    pub fn code(&self) -> &'static str {
        Self::CODES[self.index()]
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Plaintext => f.write_str("it does not speak TLS"),
            Refusal::Anonymous => f.write_str("it has no certificate"),
            Refusal::NoSpiffeId => f.write_str("its certificate names no SPIFFE id of this mesh"),
            Refusal::WrongIdentity { expected, found } => {
                write!(f, "it is {found}, not {expected}")
            }
            Refusal::WrongTrustDomain(domain) => {
                write!(f, "it belongs to the trust domain {domain:?}")
            }
            Refusal::NotANode => f.write_str("its certificate is not marked as a node's"),
            Refusal::NotAWorkload => f.write_str(
                "it speaks like a workload's own proxy, but its certificate is not a workload's own",
            ),
            Refusal::UnknownAuthority => {
                f.write_str("no trusted root signed its certificate")
            }
            Refusal::Expired => f.write_str("its certificate has expired"),
            Refusal::NotYetValid => f.write_str("its certificate is not valid yet"),
            Refusal::Denied => f.write_str("it is on the deny-list"),
            Refusal::BadCertificate(why) => write!(f, "its certificate is refused: {why}"),
            Refusal::Protocol => f.write_str("it has no protocol version in common with us"),
            Refusal::UnknownServer => f.write_str(
                "it asked for an identity that this node does not have, or whose certificate here has expired",
            ),
            Refusal::ByPeer(alert) => write!(f, "it refused: {alert}"),
            Refusal::Tls(why) => write!(f, "it broke the TLS protocol: {why}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let certificate = match refusal {
            Refusal::Expired => CertificateError::Expired,
            Refusal::NotYetValid => CertificateError::NotValidYet,
            Refusal::Denied => CertificateError::Revoked,
            Refusal::UnknownAuthority => CertificateError::UnknownIssuer,
            other => CertificateError::Other(OtherError(Arc::new(other))),
        };
        Error::InvalidCertificate(certificate)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Refusal::Expired
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Refusal::NotYetValid
                }
                CertificateError::Revoked => Refusal::Denied,
                CertificateError::UnknownIssuer => Refusal::UnknownAuthority,
                CertificateError::Other(OtherError(other)) => match other.downcast_ref() {
                    Some(refusal) => Refusal::clone(refusal),
                    None => Refusal::BadCertificate(other.to_string()),
                },
                other => Refusal::BadCertificate(other.to_string()),
            },
            Error::NoCertificatesPresented => Refusal::Anonymous,
            Error::NoApplicationProtocol => Refusal::Protocol,
            Error::AlertReceived(alert) => match named(alert) {
                Some(meaning) => Refusal::ByPeer(meaning.to_owned()),
                None => Refusal::Tls(format!("its alert was {alert:?}")),
            },
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Refusal::Plaintext,
            other => Refusal::Tls(other.to_string()),
        }
    }
}

/// The meaning of an alert (RFC 8446 section 6) that is about our identity. `None` for alerts about TLS itself.
fn named(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => "our certificate has expired",
        AlertDescription::CertificateRevoked => "we are on its deny-list",
        AlertDescription::UnknownCA => "it trusts no root that signed our certificate",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => "it rejects our certificate",
        AlertDescription::CertificateRequired => "we have shown no certificate",
        AlertDescription::NoApplicationProtocol => "it has no protocol in common with us",
        AlertDescription::UnrecognisedName => "the called identity is not there",
        AlertDescription::AccessDenied => "the called identity is not there, or busy",
        _ => return None,
    })
}
