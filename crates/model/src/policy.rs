//! Authorization: which callers may call which workload, with which requests.
//!
//! A [`Policy`] is a compiled manifest: every name resolved, every list sorted. A [`Guard`] holds all policies of one
//! workload, and decides. There is one decision function, so that the destination's proxy, the caller's proxy and the
//! command that explains a decision cannot disagree.
//!
//! The first rule of this list that applies decides:
//!
//! 1. A policy of the workload is missing in the mesh: refused.
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

/// Limit of rules of one policy.
pub const MAX_POLICY_RULES: usize = 4_096;
/// Limit of identities, and of namespaces, in one rule.
pub const MAX_POLICY_SOURCES: usize = 4_096;
/// Limit of ports, of methods, of paths, and of headers in one rule.
pub const MAX_POLICY_CONDITIONS: usize = 256;
/// Limit of policies that select one workload.
pub const MAX_WORKLOAD_POLICIES: usize = 1_024;
/// Limit of health checks of one workload.
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
    /// The namespace of the policy, and of every workload that it selects.
    pub namespace: Namespace,
    /// The policy's name in that namespace.
    pub name: Name,
    /// The manifest's kind: policies of two kinds may share a name.
    pub kind: PolicyKind,
}

impl PolicyName {
    /// Parses `Kind namespace/name`.
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

/// The effect of a policy's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyAction {
    /// Matching calls are allowed; calls that match no rule of any `Allow` policy are refused.
    Allow,
    /// Matching calls are refused, even if another policy allows them.
    Deny,
}

/// A policy. The selected workloads list it in [`crate::Workload::policies`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The policy's kind, namespace and name.
    pub name: PolicyName,
    /// The effect of a matching rule.
    pub action: PolicyAction,
    /// If set, the policy changes no decision; it is only reported which decision it would change.
    pub dry_run: bool,
    /// The rules, any of which may match; at most [`MAX_POLICY_RULES`]. An `Allow` policy without rules allows no
    /// caller.
    pub rules: Vec<PolicyRule>,
}

/// One rule of a policy: conditions which must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Index of the rule in its manifest, from 0. One manifest rule may become several.
    pub number: u32,
    /// The callers. `None`: any caller, including anonymous ones.
    pub sources: Option<Sources>,
    /// The workload's ports, sorted, each once, at most [`MAX_POLICY_CONDITIONS`]; empty for all.
    pub ports: Vec<u16>,
    /// Conditions on the request. `None`: any traffic, including byte streams that are not HTTP.
    pub http: Option<HttpMatch>,
}

/// Callers, by their authenticated identity. Without an entry: no caller. Both lists are sorted, hold each entry once,
/// and have at most [`MAX_POLICY_SOURCES`] entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Exactly these identities.
    pub identities: Vec<SpiffeId>,
    /// Every service account of these namespaces.
    pub namespaces: Vec<SourceNamespace>,
}

/// Every service account of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceNamespace {
    /// The trust domain of the namespace.
    pub trust_domain: TrustDomain,
    /// The namespace of the service accounts.
    pub namespace: Namespace,
}

impl Sources {
    /// Whether the caller is among them. An anonymous caller never is.
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

/// Conditions on a request, which must all hold. At least one list has an entry.
///
/// `Deny` rules match more variants of a request than `Allow` rules, because servers differ in which variants they
/// treat as equal: see [`Guard::decide`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpMatch {
    /// One of these methods; empty for any.
    pub methods: Vec<String>,
    /// One of these, on the canonical path without the query. If `path_starts` is empty too, any path.
    pub paths: Vec<PathMatch>,
    /// Alternatively a path with one of these beginnings, compared character by character.
    pub path_starts: Vec<String>,
    /// Header names (lower case, each once) with the required values.
    pub headers: Vec<(String, String)>,
}

/// The requirement of a workload on its callers, in addition to its policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// None: plaintext from outside the mesh is accepted, as that of an anonymous caller.
    #[default]
    Permissive,
    /// Callers must prove an identity.
    Strict,
}

impl Mode {
    /// The mode's name in labels, messages and tables.
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

/// A health check that a workload declares. Its callers have no identity, so it is allowed without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// The workload's port, never 0.
    pub port: u16,
    /// The canonical path, requested with GET. `None`: the caller connects and closes again, and no byte is sent in
    /// either direction.
    pub path: Option<String>,
    /// The query, without the question mark; empty for none.
    pub query: String,
}
