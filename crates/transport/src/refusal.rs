//! Why a peer is not believed.

use std::fmt;
use std::sync::Arc;

use heddle_model::SpiffeId;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// Why a peer is not believed, or does not believe us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It speaks no TLS.
    Plaintext,
    /// It shows no certificate.
    Anonymous,
    /// Its certificate names no SPIFFE id, several, or one of a form that no peer has here.
    NoSpiffeId,
    /// It is another identity than the one that we called.
    WrongIdentity {
        /// The identity that we called.
        expected: SpiffeId,
        /// Who answered.
        found: SpiffeId,
    },
    /// It belongs to another trust domain.
    WrongTrustDomain(String),
    /// It says what only nodes say, with a certificate that is no node's.
    NotANode,
    /// No root that we trust signed its certificate.
    UnknownAuthority,
    /// Its certificate has expired.
    Expired,
    /// Its certificate is not valid yet.
    NotYetValid,
    /// Its certificate or its identity is on the deny-list.
    Denied,
    /// Its certificate is malformed, or not for this use.
    BadCertificate(String),
    /// It knows no protocol that we know.
    Protocol,
    /// It asked for an identity that is not here.
    UnknownServer,
    /// It does not believe us: what its alert said.
    ByPeer(String),
    /// It broke the rules of TLS, or says that we did.
    Tls(String),
}

impl Refusal {
    /// Every code that [`Refusal::code`] returns.
    pub const CODES: [&'static str; 15] = [
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
    ];

    /// Its place in [`Refusal::CODES`].
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
        }
    }

    /// Its name in metrics and logs.
    pub fn code(&self) -> &'static str {
        Self::CODES[self.index()]
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Plaintext => f.write_str("it speaks no TLS"),
            Refusal::Anonymous => f.write_str("it shows no certificate"),
            Refusal::NoSpiffeId => f.write_str("its certificate names no SPIFFE id of this mesh"),
            Refusal::WrongIdentity { expected, found } => {
                write!(f, "it is {found}, not {expected}")
            }
            Refusal::WrongTrustDomain(domain) => {
                write!(f, "it belongs to the trust domain {domain:?}")
            }
            Refusal::NotANode => f.write_str("its certificate is not marked as a node's"),
            Refusal::UnknownAuthority => {
                f.write_str("no root that is trusted here signed its certificate")
            }
            Refusal::Expired => f.write_str("its certificate has expired"),
            Refusal::NotYetValid => f.write_str("its certificate is not valid yet"),
            Refusal::Denied => f.write_str("it is on the deny-list"),
            Refusal::BadCertificate(why) => write!(f, "its certificate is refused: {why}"),
            Refusal::Protocol => f.write_str("it knows no version of the protocol that we know"),
            Refusal::UnknownServer => f.write_str(
                "it asked for an identity that is not here, or whose certificate here has expired",
            ),
            Refusal::ByPeer(alert) => write!(f, "it refused: {alert}"),
            Refusal::Tls(why) => write!(f, "it broke the rules of TLS: {why}"),
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

/// What an alert (RFC 8446 section 6) means between nodes that is about who a peer is. Others are about TLS.
fn named(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => "our certificate has expired",
        AlertDescription::CertificateRevoked => "we are on its deny-list",
        AlertDescription::UnknownCA => "it trusts no root that signed our certificate",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => "it does not take our certificate",
        AlertDescription::CertificateRequired => "we have shown no certificate",
        AlertDescription::NoApplicationProtocol => "it knows no protocol that we know",
        AlertDescription::UnrecognisedName => "the identity that we called is not there",
        AlertDescription::AccessDenied => "the identity that we called is not there, or busy",
        _ => return None,
    })
}
