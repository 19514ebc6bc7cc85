//! Which peer may be issued which identity.

use std::fmt;

use heddle_model::{NodeName, ServiceAccountName, SpiffeId, Subject, TrustDomain};

use super::certificate::Serial;
use super::{DenyList, UnixTime};

/// The authenticated peer that asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The identity in its certificate.
    pub id: SpiffeId,
    /// The serial number of its certificate, if it has the length of this authority's.
    pub serial: Option<Serial>,
}

/// Why an asker is refused an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuanceRefusal {
    /// The asker has no identity.
    Unidentified,
    /// The asker, or the identity asked for, belongs to another trust domain.
    TrustDomain,
    /// The asker is on the deny-list.
    AskerDenied,
    /// The identity asked for is on the deny-list.
    Denied,
    /// The asker is not a node.
    NoNode,
    /// The identity asked for is that of another node.
    OtherNode,
    /// The identity asked for is the control plane's.
    Control,
    /// The identity asked for is that of an Envoy towards the control plane.
    Envoy,
    /// No workload with that service account runs on the asking node.
    NotPlaced,
}

impl IssuanceRefusal {
    /// The reason in one word, for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unidentified => "unidentified",
            Self::TrustDomain => "trust_domain",
            Self::AskerDenied => "asker_denied",
            Self::Denied => "denied",
            Self::NoNode => "no_node",
            Self::OtherNode => "other_node",
            Self::Control => "control",
            Self::Envoy => "envoy",
            Self::NotPlaced => "not_placed",
        }
    }
}

/// Checks whether the asker may be issued an identity: a node may have its own, and those of the workloads that
/// `is_placed` places on it. Everything else is refused.
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
        Subject::Envoy(_) => Err(IssuanceRefusal::Envoy),
        Subject::Workload(account) if is_placed(node, account) => Ok(()),
        Subject::Workload(_) => Err(IssuanceRefusal::NotPlaced),
    }
}

impl fmt::Display for IssuanceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unidentified => "the asker presented no certificate (join first)",
            Self::TrustDomain => "the identity is of another trust domain",
            Self::AskerDenied => "the asker is on the deny-list",
            Self::Denied => "the identity is on the deny-list",
            Self::NoNode => "only nodes are issued identities",
            Self::OtherNode => "a node is issued no other node's identity",
            Self::Control => "no node is issued the control plane's identity",
            Self::Envoy => "no node is issued the identity of an Envoy",
            Self::NotPlaced => "no workload with that service account is placed on the node",
        })
    }
}

impl std::error::Error for IssuanceRefusal {}
