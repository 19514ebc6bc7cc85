//! Which peers are trusted: the roots of the trust domain, and the deny-list.

use std::collections::BTreeSet;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use heddle_model::{SpiffeId, TrustDomain};
use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::anchor_from_trusted_cert;

use crate::{Peer, Refusal};

/// Limit on trusted roots. A rotation needs two: the old and the new one.
const MAX_ROOTS: usize = 4;
/// Limit on deny-list entries: serial numbers and identities together.
const MAX_DENIED: usize = 100_000;

/// The deny-list: certificates and identities that are rejected before they expire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Denied certificates, by serial number without leading zeros.
    pub serials: BTreeSet<Box<[u8]>>,
    /// Denied identities, with any certificate.
    pub ids: BTreeSet<SpiffeId>,
}

/// Identifies a root by the SHA-256 digest of its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootId([u8; 32]);

/// The trust bundle of one trust domain, and its deny-list.
#[derive(Clone)]
pub struct Trust {
    domain: TrustDomain,
    roots: Vec<TrustAnchor<'static>>,
    /// Digests of `roots`, in the same order.
    ids: Vec<RootId>,
    denied: Denied,
}

impl Trust {
    /// Trusts the roots (certificates in DER) of a domain, except for what `denied` lists.
    ///
    /// # Errors
    /// When there are no roots or too many, too many deny-list entries, or a malformed root.
    pub fn new(
        domain: TrustDomain,
        roots: &[Vec<u8>],
        denied: Denied,
    ) -> Result<Trust, TrustError> {
        if roots.is_empty() || roots.len() > MAX_ROOTS {
            return Err(TrustError::Roots(roots.len()));
        }
        let count = denied.serials.len() + denied.ids.len();
        if count > MAX_DENIED {
            return Err(TrustError::Denied(count));
        }
        let ids = roots.iter().map(|root| RootId::of(root)).collect();
        let roots = roots.iter().map(|root| {
            let root = CertificateDer::from(root.as_slice());
            let anchor = anchor_from_trusted_cert(&root);
            anchor
                .map(|anchor| anchor.to_owned())
                .map_err(|_| TrustError::Root)
        });
        Ok(Trust {
            domain,
            roots: roots.collect::<Result<_, _>>()?,
            ids,
            denied,
        })
    }

    /// The trust domain, to which every peer must belong.
    pub fn domain(&self) -> &TrustDomain {
        &self.domain
    }

    pub(crate) fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.roots
    }

    /// Whether this root is in the trust bundle.
    pub fn trusts(&self, root: RootId) -> bool {
        self.ids.contains(&root)
    }

    /// The trusted root, if there is exactly one.
    pub(crate) fn only_root(&self) -> Option<RootId> {
        match *self.ids {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The digest of the root that this anchor stands for.
    pub(crate) fn root_of(&self, anchor: &TrustAnchor<'_>) -> Option<RootId> {
        let at = self.roots.iter().position(|root| root == anchor)?;
        self.ids.get(at).copied()
    }

    /// Whether a peer that was verified before is still trusted, at `now` (seconds since 1970).
    ///
    /// # Errors
    /// Why the peer is rejected.
    pub fn check(&self, peer: &Peer, now: u64) -> Result<(), Refusal> {
        if peer.id.trust_domain != self.domain {
            let domain = peer.id.trust_domain.as_str().to_owned();
            return Err(Refusal::WrongTrustDomain(domain));
        }
        if now > peer.not_after {
            return Err(Refusal::Expired);
        }
        if now < peer.not_before {
            return Err(Refusal::NotYetValid);
        }
        if self.denied.ids.contains(&peer.id) || self.denied.serials.contains(&peer.serial) {
            return Err(Refusal::Denied);
        }
        Ok(())
    }
}

impl RootId {
    fn of(der: &[u8]) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, der).as_ref());
        RootId(id)
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("domain", &self.domain)
            .field("roots", &self.roots.len())
            .field("denied", &self.denied)
            .finish()
    }
}

/// Why a [`Trust`] cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustError {
    /// This number of roots is 0 or above the limit.
    Roots(usize),
    /// This number of deny-list entries is above the limit.
    Denied(usize),
    /// A root is not a valid certificate.
    Root,
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustError::Roots(count) => write!(f, "{count} roots instead of 1 to {MAX_ROOTS}"),
            TrustError::Denied(count) => {
                write!(
                    f,
                    "{count} entries on the deny-list, at most {MAX_DENIED} are kept"
                )
            }
            TrustError::Root => f.write_str("a root is not a valid certificate"),
        }
    }
}

impl std::error::Error for TrustError {}
