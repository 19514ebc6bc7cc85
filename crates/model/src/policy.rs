//! Authorization: who may call which workload, and for what.
//!
//! A [`Policy`] is what a manifest says, compiled: every name resolved, every list sorted. A
//! [`Guard`] is all that concerns one workload, and decides. There is one decision function, so that
//! the proxy beside the workload, the proxy beside the caller and the command that explains a decision
//! cannot disagree.
//!
//! In this order, the first that applies decides:
//!
//! 1. A policy of the workload is not at hand: refused.
//! 2. An anonymous health check that the workload declares: allowed.
//! 3. The workload is strict and the caller anonymous: refused.
//! 4. A rule of a `Deny` policy matches: refused.
//! 5. There are `Allow` policies: allowed if a rule of one of them matches, refused otherwise.
//! 6. Allowed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::InvalidName;
use crate::text_form::text_form;
use crate::{Name, Namespace, PathMatch, SpiffeId, Subject, TrustDomain};

mod guard;
mod matching;

#[cfg(test)]
mod tests;

pub use guard::{Access, Connect, Decider, Decision, Guard, HttpAccess, NoHeader, Unmet, Verdict};

/// Rules of one policy.
pub const MAX_POLICY_RULES: usize = 4_096;
/// Identities, and likewise namespaces, of one rule.
pub const MAX_POLICY_SOURCES: usize = 4_096;
/// Ports, methods, paths, and headers of one rule.
pub const MAX_POLICY_CONDITIONS: usize = 256;
/// Policies that concern one workload.
pub const MAX_WORKLOAD_POLICIES: usize = 1_024;
/// Health checks of one workload.
pub const MAX_WORKLOAD_PROBES: usize = 64;

/// The kind of manifest that a policy was written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// heddle.dev AuthorizationPolicy.
    AuthorizationPolicy,
    /// access.smi-spec.io TrafficTarget.
    TrafficTarget,
}

impl PolicyKind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::TrafficTarget => "TrafficTarget",
        }
    }
}

/// The name of a policy, shown as `AuthorizationPolicy namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// The namespace that it lives in; it concerns workloads of no other.
    pub namespace: Namespace,
    /// Its name there.
    pub name: Name,
    /// What it was written as: two kinds may share a name.
    pub kind: PolicyKind,
}

impl PolicyName {
    /// Takes `Kind namespace/name`.
    ///
    /// # Errors
    /// [`InvalidName`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let invalid = || InvalidName::new(text, "policy's name of the form Kind namespace/name");
        let (kind, rest) = text.split_once(' ').ok_or_else(invalid)?;
        let kind = [PolicyKind::AuthorizationPolicy, PolicyKind::TrafficTarget]
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or_else(invalid)?;
        let (namespace, name) = rest.split_once('/').ok_or_else(invalid)?;
        Ok(Self {
            namespace: Namespace::parse(namespace)?,
            name: Name::parse(name)?,
            kind,
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

text_form! {
    PolicyName => |this, f| this.write(f);
}

/// What is done with what a policy's rules match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyAction {
    /// It is allowed, and what no rule of any such policy matches is refused.
    Allow,
    /// It is refused, whichever other policy allows it.
    Deny,
}

/// A policy. Which workloads it concerns, they say themselves: [`crate::Workload::policies`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: PolicyName,
    /// What is done with what a rule matches.
    pub action: PolicyAction,
    /// It changes no outcome; what it would have changed is reported.
    pub dry_run: bool,
    /// Its rules, any of which may match; at most [`MAX_POLICY_RULES`]. An `Allow` policy without
    /// one allows no caller.
    pub rules: Vec<PolicyRule>,
}

/// One rule of a policy: conditions all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Which of the manifest's rules it comes from, counted from 0. Several may come from one.
    pub number: u32,
    /// Who calls. `None`: any caller, anonymous ones too.
    pub sources: Option<Sources>,
    /// The workload's ports, sorted, each once, at most [`MAX_POLICY_CONDITIONS`]; empty for all.
    pub ports: Vec<u16>,
    /// What is asked for. `None`: anything, bytes that are no request too.
    pub http: Option<HttpMatch>,
}

/// Callers, by the identity that they prove. Without an entry: no caller. Both lists are sorted, hold each
/// entry once, and have at most [`MAX_POLICY_SOURCES`] entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Exactly these.
    pub identities: Vec<SpiffeId>,
    /// Every service account of these namespaces.
    pub namespaces: Vec<SourceNamespace>,
}

/// Every service account of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceNamespace {
    /// The trust domain whose namespace it is.
    pub trust_domain: TrustDomain,
    /// The namespace.
    pub namespace: Namespace,
}

impl Sources {
    /// Whether this caller is among them. An anonymous one never is.
    pub fn contains(&self, caller: Option<&SpiffeId>) -> bool {
        let Some(caller) = caller else {
            return false;
        };
        self.identities.binary_search(caller).is_ok() || self.has_namespace_of(caller)
    }

    fn has_namespace_of(&self, caller: &SpiffeId) -> bool {
        let Subject::Workload(account) = &caller.subject else {
            return false;
        };
        let wanted = (&caller.trust_domain, &account.namespace);
        self.namespaces
            .binary_search_by(|known| (&known.trust_domain, &known.namespace).cmp(&wanted))
            .is_ok()
    }
}

/// Conditions on a request, all of which must hold. At least one list has an entry.
///
/// What is to be denied is looked for more generously than what is to be allowed, because servers
/// differ in what they take for the same: see [`Guard::decide`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpMatch {
    /// One of these methods; empty for any.
    pub methods: Vec<String>,
    /// One of these, on the canonical path without the query. With `path_starts` empty for any.
    pub paths: Vec<PathMatch>,
    /// Or a path that begins with one of these characters by character, whatever follows.
    pub path_starts: Vec<String>,
    /// Header names (lower case, each once) and the value that each must have.
    pub headers: Vec<(String, String)>,
}

/// What is required of those who call a workload beside its policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: plaintext from outside the mesh is taken, as an anonymous caller's.
    #[default]
    Permissive,
    /// To prove who they are.
    Strict,
}

impl Mode {
    /// Its name in labels, messages and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permissive => "permissive",
            Self::Strict => "strict",
        }
    }

    /// The mode of that name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Permissive, Self::Strict]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }
}

/// A health check that a workload declares. Its caller has no identity, so it stays open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// The workload's port, never 0.
    pub port: u16,
    /// The canonical path that is asked for with GET. `None`: a connection is made and closed
    /// again, and not a byte goes either way.
    pub path: Option<String>,
    /// The query that is asked for, without the question mark; empty when there is none.
    pub query: String,
}
