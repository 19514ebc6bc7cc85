//! What an Envoy proves its workload's identity with, and what it verifies others with.

use std::fmt;
use std::time::Duration;

use heddle_authority::{Authority, Bundle, IssueError, UnixTime};
use heddle_envoy::{Packed, secret};
use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_transport::secrets::pem;
use rustls_pki_types::CertificateDer;

/// A leaf that is not issued is tried again after this time.
pub(super) const AGAIN: Duration = Duration::from_secs(30);

/// A workload's leaf and key, as an Envoy is sent them.
pub(super) struct Leaf {
    pub(super) packed: Packed,
    /// When another one is due.
    pub(super) renew_after: Duration,
}

/// Why an Envoy gets no leaf.
#[derive(Debug)]
pub(super) enum NoLeaf {
    /// The identity of its workload is on the deny-list.
    Denied,
    Issue(IssueError),
}

impl fmt::Display for NoLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLeaf::Denied => f.write_str("its workload's identity is on the deny-list"),
            NoLeaf::Issue(error) => error.fmt(f),
        }
    }
}

/// Issues a leaf for the workloads of an account. An Envoy has no way to ask for one with a key of its own: the authority makes
/// the key, and it reaches the Envoy over its authenticated stream.
pub(super) fn leaf(
    authority: &Authority,
    account: &ServiceAccountName,
    now: UnixTime,
) -> Result<Leaf, NoLeaf> {
    let id = SpiffeId::workload(authority.trust_domain().clone(), account.clone());
    if authority.trust().denied.denies(&id, None, now).is_some() {
        return Err(NoLeaf::Denied);
    }
    let issued = authority.issue_with_key(&id, authority.leaf_life(), now);
    let (issued, key) = issued.map_err(NoLeaf::Issue)?;
    let left = issued.not_after.saturating_sub(now.as_secs());
    Ok(Leaf {
        packed: secret::leaf(text(&issued.chain), &key),
        renew_after: Duration::from_secs(left / 2).max(AGAIN),
    })
}

/// The roots of a bundle.
pub(super) fn roots(bundle: &Bundle) -> Packed {
    secret::roots(text(&bundle.roots))
}

fn text(certificates: &[CertificateDer<'static>]) -> String {
    let certificates = certificates.iter();
    let certificates = certificates.map(|der| pem::encode("CERTIFICATE", der));
    certificates.map(|text| text.to_string()).collect()
}
