//! What the protocol says of certificates and of trust, checked.

use std::fmt;

use heddle_model::{MAX_SPIFFE_ID_BYTES, SpiffeId, TrustDomain};
use rustls_pki_types::CertificateDer;

use crate::limits::{MAX_CERTIFICATE_BYTES, MAX_CHAIN, MAX_DENIED, MAX_ROOTS};
use crate::proto;

#[cfg(test)]
mod tests;

/// A certificate and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, and behind it those between it and a root.
    pub chain: Vec<CertificateDer<'static>>,
    /// When it expires, in seconds since 1970.
    pub not_after: u64,
}

/// The roots to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Counts the bundles of an authority from 1.
    pub generation: u64,
    /// One or two certificates.
    pub roots: Vec<CertificateDer<'static>>,
}

/// What a node that joined gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its certificate.
    pub certificate: Certificate,
    /// The roots to trust.
    pub bundle: Bundle,
    /// The trust domain that it is in.
    pub trust_domain: TrustDomain,
}

/// What is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Denied {
    /// The certificate with this serial number, big-endian.
    Serial([u8; 16]),
    /// Every certificate of an identity.
    Identity(SpiffeId),
}

/// What is refused, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyEntry {
    /// What it is.
    pub what: Denied,
    /// From when on it is not refused any more, in seconds since 1970.
    pub expires: u64,
}

/// Certificates and identities that are refused although they have not expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenyList {
    /// Counts the lists of an authority.
    pub generation: u64,
    /// At most 10,000.
    pub entries: Vec<DenyEntry>,
}

/// What changed of what to trust and refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustUpdate {
    /// The roots, when they are others now.
    pub bundle: Option<Bundle>,
    /// The deny-list, when it is another one now.
    pub denied: Option<DenyList>,
}

/// A message that does not hold to the protocol; which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid(pub(crate) &'static str);

impl TryFrom<proto::Certificate> for Certificate {
    type Error = Invalid;

    fn try_from(message: proto::Certificate) -> Result<Self, Invalid> {
        Ok(Self {
            chain: certificates(message.chain, MAX_CHAIN, Invalid("certificate.chain"))?,
            not_after: message.not_after,
        })
    }
}

impl From<Certificate> for proto::Certificate {
    fn from(certificate: Certificate) -> Self {
        Self {
            chain: bytes(&certificate.chain),
            not_after: certificate.not_after,
        }
    }
}

impl TryFrom<proto::Bundle> for Bundle {
    type Error = Invalid;

    fn try_from(message: proto::Bundle) -> Result<Self, Invalid> {
        if message.generation == 0 {
            return Err(Invalid("bundle.generation"));
        }
        Ok(Self {
            generation: message.generation,
            roots: certificates(message.roots, MAX_ROOTS, Invalid("bundle.roots"))?,
        })
    }
}

impl From<Bundle> for proto::Bundle {
    fn from(bundle: Bundle) -> Self {
        Self {
            generation: bundle.generation,
            roots: bytes(&bundle.roots),
        }
    }
}

impl TryFrom<proto::JoinResponse> for Joined {
    type Error = Invalid;

    fn try_from(message: proto::JoinResponse) -> Result<Self, Invalid> {
        let certificate = message.certificate.ok_or(Invalid("certificate"))?;
        let bundle = message.bundle.ok_or(Invalid("bundle"))?;
        Ok(Self {
            certificate: certificate.try_into()?,
            bundle: bundle.try_into()?,
            trust_domain: TrustDomain::parse(&message.trust_domain)
                .map_err(|_| Invalid("trust_domain"))?,
        })
    }
}

impl TryFrom<proto::DenyList> for DenyList {
    type Error = Invalid;

    fn try_from(message: proto::DenyList) -> Result<Self, Invalid> {
        if message.entries.len() > MAX_DENIED {
            return Err(Invalid("deny_list.entries"));
        }
        let entries = message.entries.into_iter().map(DenyEntry::try_from);
        Ok(Self {
            generation: message.generation,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }
}

impl From<DenyList> for proto::DenyList {
    fn from(list: DenyList) -> Self {
        Self {
            generation: list.generation,
            entries: list.entries.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::DenyEntry> for DenyEntry {
    type Error = Invalid;

    fn try_from(message: proto::DenyEntry) -> Result<Self, Invalid> {
        use proto::deny_entry::What;
        let what = match message.what.ok_or(Invalid("deny_list.entries.what"))? {
            What::Serial(serial) => Denied::Serial(
                <[u8; 16]>::try_from(serial.as_slice())
                    .map_err(|_| Invalid("deny_list.entries.serial"))?,
            ),
            What::SpiffeId(id) => Denied::Identity(spiffe_id(&id)?),
        };
        Ok(Self {
            what,
            expires: message.expires,
        })
    }
}

impl From<DenyEntry> for proto::DenyEntry {
    fn from(entry: DenyEntry) -> Self {
        use proto::deny_entry::What;
        let what = match entry.what {
            Denied::Serial(serial) => What::Serial(serial.to_vec()),
            Denied::Identity(id) => What::SpiffeId(id.to_string()),
        };
        Self {
            what: Some(what),
            expires: entry.expires,
        }
    }
}

impl TryFrom<proto::WatchTrustResponse> for TrustUpdate {
    type Error = Invalid;

    fn try_from(message: proto::WatchTrustResponse) -> Result<Self, Invalid> {
        Ok(Self {
            bundle: message.bundle.map(TryInto::try_into).transpose()?,
            denied: message.deny_list.map(TryInto::try_into).transpose()?,
        })
    }
}

pub(crate) fn spiffe_id(text: &str) -> Result<SpiffeId, Invalid> {
    if text.len() > MAX_SPIFFE_ID_BYTES {
        return Err(Invalid("spiffe_id"));
    }
    SpiffeId::parse(text).map_err(|_| Invalid("spiffe_id"))
}

fn certificates(
    list: Vec<Vec<u8>>,
    max: usize,
    invalid: Invalid,
) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let sized = |der: &Vec<u8>| (1..=MAX_CERTIFICATE_BYTES).contains(&der.len());
    match (1..=max).contains(&list.len()) && list.iter().all(sized) {
        true => Ok(list.into_iter().map(CertificateDer::from).collect()),
        false => Err(invalid),
    }
}

fn bytes(certificates: &[CertificateDer<'static>]) -> Vec<Vec<u8>> {
    certificates.iter().map(|der| der.to_vec()).collect()
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold to the protocol", self.0)
    }
}

impl std::error::Error for Invalid {}
