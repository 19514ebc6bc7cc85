//! Who may be issued what.

use std::fmt;

use heddle_model::{NodeName, ServiceAccountName, SpiffeId, Subject, TrustDomain};

use super::certificate::Serial;
use super::{DenyList, UnixTime};

/// The peer that asks for a certificate, as its connection was authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The identity of its certificate.
    pub id: SpiffeId,
    /// The certificate's serial number, when it is one of ours.
    pub serial: Option<Serial>,
}

/// Why an asker is not issued an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuanceRefusal {
    /// Who asks has no identity.
    Unidentified,
    /// Who asks, or the identity asked for, is of another trust domain.
    TrustDomain,
    /// Who asks is on the deny-list.
    AskerDenied,
    /// The identity asked for is on the deny-list.
    Denied,
    /// Who asks is no node.
    NoNode,
    /// A node's identity, which is another's than who asks.
    OtherNode,
    /// The control plane's identity.
    Control,
    /// No workload with that service account is placed on the node.
    NotPlaced,
}

impl IssuanceRefusal {
    /// A word for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unidentified => "unidentified",
            Self::TrustDomain => "trust_domain",
            Self::AskerDenied => "asker_denied",
            Self::Denied => "denied",
            Self::NoNode => "no_node",
            Self::OtherNode => "other_node",
            Self::Control => "control",
            Self::NotPlaced => "not_placed",
        }
    }
}

/// Whether the asker may be issued an identity: a node its own, and those of the workloads that
/// `is_placed` says are on it. Everything else is refused.
///
/// # Errors
/// [`IssuanceRefusal`] says why.
pub fn may_issue(
    asker: Option<&Asker>,
    wanted: &SpiffeId,
    trust_domain: &TrustDomain,
    denied: &DenyList,
    now: UnixTime,
    is_placed: impl FnOnce(&NodeName, &ServiceAccountName) -> bool,
) -> Result<(), IssuanceRefusal> {
    let asker = asker.ok_or(IssuanceRefusal::Unidentified)?;
    if asker.id.trust_domain != *trust_domain || wanted.trust_domain != *trust_domain {
        return Err(IssuanceRefusal::TrustDomain);
    }
    if denied.denies(&asker.id, asker.serial, now).is_some() {
        return Err(IssuanceRefusal::AskerDenied);
    }
    if denied.denies(wanted, None, now).is_some() {
        return Err(IssuanceRefusal::Denied);
    }
    let Subject::Node(node) = &asker.id.subject else {
        return Err(IssuanceRefusal::NoNode);
    };
    match &wanted.subject {
        Subject::Node(other) if other == node => Ok(()),
        Subject::Node(_) => Err(IssuanceRefusal::OtherNode),
        Subject::Control => Err(IssuanceRefusal::Control),
        Subject::Workload(account) if is_placed(node, account) => Ok(()),
        Subject::Workload(_) => Err(IssuanceRefusal::NotPlaced),
    }
}

impl fmt::Display for IssuanceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unidentified => "who asks shows no certificate (join first)",
            Self::TrustDomain => "the identity is of another trust domain",
            Self::AskerDenied => "who asks is on the deny-list",
            Self::Denied => "the identity is on the deny-list",
            Self::NoNode => "only nodes are issued identities",
            Self::OtherNode => "a node is issued no other node's identity",
            Self::Control => "no node is issued the control plane's identity",
            Self::NotPlaced => "no workload with that service account is placed on the node",
        })
    }
}

impl std::error::Error for IssuanceRefusal {}
