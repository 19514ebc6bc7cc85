//! Checked forms of the protocol's messages about certificates and trust.

use std::fmt;

use heddle_model::{MAX_SPIFFE_ID_BYTES, SpiffeId, TrustDomain};
use rustls_pki_types::CertificateDer;

use crate::limits::{MAX_CERTIFICATE_BYTES, MAX_CHAIN, MAX_DENIED, MAX_ROOTS};
use crate::proto;

#[cfg(test)]
mod tests;

/// A certificate with its chain and expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The leaf, followed by its intermediates, without the root.
    pub chain: Vec<CertificateDer<'static>>,
    /// When the leaf expires, in seconds since 1970.
    pub not_after: u64,
}

/// The trust bundle: the roots to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Number of this bundle at its authority, from 1.
    pub generation: u64,
    /// One or two certificates.
    pub roots: Vec<CertificateDer<'static>>,
}

/// The answer to a node that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The certificate of the node's own identity.
    pub certificate: Certificate,
    /// The trust bundle, which replaces the digest in the token.
    pub bundle: Bundle,
    /// The trust domain of the mesh.
    pub trust_domain: TrustDomain,
}

/// What a deny-list entry rejects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Denied {
    /// One certificate, by its serial number, big-endian.
    Serial([u8; 16]),
    /// All certificates of an identity.
    Identity(SpiffeId),
}

/// One entry of a deny-list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyEntry {
    /// The rejected certificate or identity.
    pub what: Denied,
    /// When the entry ends, in seconds since 1970.
    pub expires: u64,
}

/// Certificates and identities that are rejected before they expire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenyList {
    /// Number of this list at its authority.
    pub generation: u64,
    /// At most [`MAX_DENIED`] (10,000).
    pub entries: Vec<DenyEntry>,
}

/// A change to the trust bundle, the deny-list, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustUpdate {
    /// The new bundle, if it changed.
    pub bundle: Option<Bundle>,
    /// The new deny-list, if it changed.
    pub denied: Option<DenyList>,
}

/// A message breaks the protocol: the name of the invalid field.
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
        write!(f, "the field {} breaks the protocol", self.0)
    }
}

impl std::error::Error for Invalid {}
