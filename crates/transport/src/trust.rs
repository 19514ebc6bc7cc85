//! Which peers to believe: the roots of the trust domain, less what is denied before its time.

use std::collections::BTreeSet;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use heddle_model::{SpiffeId, TrustDomain};
use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::anchor_from_trusted_cert;

use crate::{Peer, Refusal};

/// Roots that may be trusted at once: the old one and the new one.
const MAX_ROOTS: usize = 4;
/// Longest deny-list.
const MAX_DENIED: usize = 100_000;

/// Certificates and identities that are refused although they have not expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Serial numbers, without leading zeros.
    pub serials: BTreeSet<Box<[u8]>>,
    /// Whole identities, whatever certificate they show.
    pub ids: BTreeSet<SpiffeId>,
}

/// A root, told apart from others: the SHA-256 of its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootId([u8; 32]);

/// Which peers to believe.
#[derive(Clone)]
pub struct Trust {
    domain: TrustDomain,
    roots: Vec<TrustAnchor<'static>>,
    /// Of the roots, in their order.
    ids: Vec<RootId>,
    denied: Denied,
}

impl Trust {
    /// Trusts the roots (certificates in DER) of a domain, less what is denied.
    ///
    /// # Errors
    /// When there is no root, too much of anything, or a root that is malformed.
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

    /// The trust domain.
    pub fn domain(&self) -> &TrustDomain {
        &self.domain
    }

    pub(crate) fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.roots
    }

    /// Whether a root is one of those that are trusted.
    pub fn trusts(&self, root: RootId) -> bool {
        self.ids.contains(&root)
    }

    /// The only root that is trusted, if there is only one.
    pub(crate) fn only_root(&self) -> Option<RootId> {
        match *self.ids {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Which of the roots an anchor is.
    pub(crate) fn root_of(&self, anchor: &TrustAnchor<'_>) -> Option<RootId> {
        let at = self.roots.iter().position(|root| root == anchor)?;
        self.ids.get(at).copied()
    }

    /// Whether a peer that was believed once still is, at `now` (seconds since 1970).
    ///
    /// # Errors
    /// Why not.
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

/// Why no peer can be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustError {
    /// So many roots.
    Roots(usize),
    /// So long a deny-list.
    Denied(usize),
    /// A root is malformed.
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
            TrustError::Root => f.write_str("a root is no certificate"),
        }
    }
}

impl std::error::Error for TrustError {}
