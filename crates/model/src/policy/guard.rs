//! What stands before one workload, and the decision.

use std::fmt;
use std::sync::Arc;

use super::{HttpMatch, Mode, Policy, PolicyAction, PolicyName, PolicyRule, Probe};
use crate::{Mesh, SpiffeId, Workload};

#[cfg(test)]
mod tests;

/// All that decides who may call one workload. Made once for a snapshot; deciding allocates nothing
/// and looks at each rule at most twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    mode: Mode,
    probes: Vec<Probe>,
    policies: Vec<Arc<Policy>>,
    /// Every policy that the workload names is there.
    is_complete: bool,
}

/// What is to be decided.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a, F = NoHeader> {
    /// Who calls, as far as it has been proved; `None` for an anonymous caller.
    pub caller: Option<&'a SpiffeId>,
    /// The workload's port, not the Service's.
    pub port: u16,
    /// The request; `None` for a flow of bytes, whatever they are.
    pub http: Option<HttpAccess<'a, F>>,
}

/// The part of a request that rules see.
#[derive(Debug, Clone, Copy)]
pub struct HttpAccess<'a, F> {
    /// The method, as it will be forwarded.
    pub method: &'a [u8],
    /// The path in canonical form without the query, as it will be forwarded. In *strict* canonical
    /// form where [`Guard::looks_at_paths`].
    pub path: &'a [u8],
    /// The query without the question mark; empty when there is none.
    pub query: &'a [u8],
    /// Whether it has no body and offers no other protocol: a probe has neither.
    pub is_bare: bool,
    /// Calls back with the name and the value of each field line, in order.
    pub fields: F,
}

/// The type of an [`Access`] without a request.
pub type NoHeader = fn(&mut dyn FnMut(&[u8], &[u8]));

impl<'a> Access<'a> {
    /// A flow of bytes.
    pub fn flow(caller: Option<&'a SpiffeId>, port: u16) -> Self {
        Self {
            caller,
            port,
            http: None,
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'g> {
    /// Whether it may go on.
    pub allowed: bool,
    /// What decided.
    pub by: Decider<'g>,
    /// What would have been decided if the dry-run policies counted. `None`: there are none.
    pub dry_run: Option<Verdict<'g>>,
}

impl Decision<'_> {
    /// Whether the dry-run policies would have changed the outcome.
    pub fn would_differ(&self) -> bool {
        self.dry_run
            .is_some_and(|would| would.allowed != self.allowed)
    }
}

/// An outcome and what decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'g> {
    /// Whether it may go on.
    pub allowed: bool,
    /// What decided.
    pub by: Decider<'g>,
}

/// What decided. Shown in the words of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider<'g> {
    /// It is a health check that the workload declares. Allowed.
    Probe,
    /// A rule that matched; whether it allows or denies is its policy's action.
    Rule {
        /// The policy.
        policy: &'g PolicyName,
        /// The rule of the manifest, counted from 0.
        rule: u32,
    },
    /// No policy allows or denies. Allowed.
    Default,
    /// The workload is strict and the caller anonymous. Refused.
    Anonymous,
    /// There are `Allow` policies, and no rule of any matches. Refused.
    NoRuleMatched,
    /// A policy that the workload names is not at hand. Refused.
    PolicyMissing,
}

impl Decider<'_> {
    /// A fixed word for it, for labels of metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Rule { .. } => "rule",
            Self::Default => "default",
            Self::Anonymous => "anonymous",
            Self::NoRuleMatched => "no_rule_matched",
            Self::PolicyMissing => "policy_missing",
        }
    }
}

impl fmt::Display for Decider<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe => f.write_str("a health check of the workload"),
            Self::Rule { policy, rule } => write!(f, "{policy} rules[{rule}]"),
            Self::Default => f.write_str("no policy applies"),
            Self::Anonymous => f.write_str("strict mode: the caller has no identity"),
            Self::NoRuleMatched => f.write_str("no rule allows it"),
            Self::PolicyMissing => f.write_str("a policy of the workload is not at hand"),
        }
    }
}

/// What a connection is good for, before anything has been said on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect<'g> {
    /// Something may be allowed: each request, or the flow as a whole, is decided by
    /// [`Guard::decide`].
    Open,
    /// For a health check alone: the workload's port may be connected and the connection closed,
    /// and not a byte may be passed on in either direction.
    Bare,
    /// Nothing can be allowed.
    Refused(Decider<'g>),
}

impl Guard {
    /// What stands before a workload of this mesh. A policy that it names and the mesh does not
    /// hold makes the guard refuse everything.
    pub fn new(mesh: &Mesh, workload: &Workload) -> Self {
        let found: Vec<_> = workload
            .policies
            .iter()
            .filter_map(|name| mesh.policy(name).cloned())
            .collect();
        Self {
            mode: workload.mode,
            probes: workload.probes.clone(),
            is_complete: found.len() == workload.policies.len(),
            policies: found,
        }
    }

    /// Whether everything is allowed to every caller, and no dry run has anything to say.
    pub fn is_open(&self) -> bool {
        self.is_complete && self.mode == Mode::Permissive && self.policies.is_empty()
    }

    /// The workload's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The policies that concern the workload, dry-run ones included, sorted by name.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Whether an enforced rule looks at requests to this port, which makes it HTTP where its
    /// protocol is not declared.
    pub fn looks_at_requests(&self, port: u16) -> bool {
        self.enforced().any(|policy| {
            let mut rules = policy.rules.iter();
            rules.any(|rule| rule.http.is_some() && rule.takes_port(port))
        })
    }

    /// Whether a rule looks at paths, which makes ambiguous ones dangerous: requests are then to be
    /// brought into the strict canonical form.
    pub fn looks_at_paths(&self) -> bool {
        self.policies
            .iter()
            .flat_map(|policy| &policy.rules)
            .any(|rule| {
                let http = rule.http.as_ref();
                http.is_some_and(HttpMatch::looks_at_path)
            })
    }

    /// Whether the outcome may depend on a header of this name, in any spelling of it.
    pub fn looks_at_header(&self, name: &[u8]) -> bool {
        self.enforced()
            .flat_map(|policy| &policy.rules)
            .any(|rule| {
                let http = rule.http.as_ref();
                http.is_some_and(|http| http.looks_at_header(name))
            })
    }

    /// Decides one access.
    ///
    /// Rules of `Allow` policies match to the letter. Rules of `Deny` policies match in every
    /// reading that a server may have: methods without regard to case, paths also without
    /// parameters (`/admin;x`), a header in any spelling of its name (`x_role` for `x-role`), by any
    /// element of a list, without regard to quotes, parameters and case. A flow of bytes never meets a condition on requests of an `Allow` policy, and always
    /// one of a `Deny` policy: what cannot be judged is refused.
    pub fn decide<F>(&self, access: &Access<'_, F>) -> Decision<'_>
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        let Verdict { allowed, by } = self.verdict(access, false);
        let has_dry_runs = self.policies.iter().any(|policy| policy.dry_run);
        Decision {
            allowed,
            by,
            dry_run: has_dry_runs.then(|| self.verdict(access, true)),
        }
    }

    /// Whether any request of this caller to this port could be allowed.
    ///
    /// What is [`Connect::Refused`] here, [`Guard::decide`] refuses whatever is asked for.
    pub fn may_connect(&self, caller: Option<&SpiffeId>, port: u16) -> Connect<'_> {
        let refused = match self.refused_at_once(caller, port) {
            None => return Connect::Open,
            Some(by) => by,
        };
        if caller.is_some() || !self.is_complete {
            return Connect::Refused(refused);
        }
        let mut probes = self.probes.iter().filter(|probe| probe.port == port);
        match probes.clone().any(|probe| probe.path.is_some()) {
            true => Connect::Open,
            false if probes.next().is_some() => Connect::Bare,
            false => Connect::Refused(refused),
        }
    }

    /// Why nothing of this caller's can be allowed on this port, health checks apart.
    fn refused_at_once(&self, caller: Option<&SpiffeId>, port: u16) -> Option<Decider<'_>> {
        if !self.is_complete {
            return Some(Decider::PolicyMissing);
        }
        if self.mode == Mode::Strict && caller.is_none() {
            return Some(Decider::Anonymous);
        }
        let fits = |rule: &PolicyRule| rule.takes_port(port) && rule.takes_caller(caller);
        let denies = |rule: &PolicyRule| fits(rule) && rule.http.is_none();
        if let Some(by) = first(self.of(PolicyAction::Deny, false), denies) {
            return Some(by);
        }
        let is_free = self.of(PolicyAction::Allow, false).next().is_none();
        let is_allowed = is_free || first(self.of(PolicyAction::Allow, false), fits).is_some();
        (!is_allowed).then_some(Decider::NoRuleMatched)
    }

    fn verdict<F>(&self, access: &Access<'_, F>, with_dry_runs: bool) -> Verdict<'_>
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        let allowed = |by| Verdict { allowed: true, by };
        let refused = |by| Verdict { allowed: false, by };
        if !self.is_complete {
            return refused(Decider::PolicyMissing);
        }
        if self.is_probe(access) {
            return allowed(Decider::Probe);
        }
        if self.mode == Mode::Strict && access.caller.is_none() {
            return refused(Decider::Anonymous);
        }
        let denies = self.of(PolicyAction::Deny, with_dry_runs);
        if let Some(by) = first(denies, |rule| rule.matches(access, PolicyAction::Deny)) {
            return refused(by);
        }
        let mut allows = self.of(PolicyAction::Allow, with_dry_runs).peekable();
        if allows.peek().is_none() {
            return allowed(Decider::Default);
        }
        match first(allows, |rule| rule.matches(access, PolicyAction::Allow)) {
            Some(by) => allowed(by),
            None => refused(Decider::NoRuleMatched),
        }
    }

    fn is_probe<F>(&self, access: &Access<'_, F>) -> bool {
        let Some(request) = &access.http else {
            return false;
        };
        access.caller.is_none()
            && request.is_bare
            && request.method == b"GET"
            && self.probes.iter().any(|probe| {
                probe.port == access.port
                    && probe.query.as_bytes() == request.query
                    && probe.path.as_ref().map(String::as_bytes) == Some(request.path)
            })
    }

    fn enforced(&self) -> impl Iterator<Item = &Policy> {
        let policies = self.policies.iter().map(|policy| &**policy);
        policies.filter(|policy| !policy.dry_run)
    }

    fn of(&self, action: PolicyAction, with_dry_runs: bool) -> impl Iterator<Item = &Policy> {
        self.policies
            .iter()
            .map(|policy| &**policy)
            .filter(move |policy| policy.action == action && (with_dry_runs || !policy.dry_run))
    }
}

/// The first rule that fits.
fn first<'g>(
    policies: impl Iterator<Item = &'g Policy>,
    fits: impl Fn(&PolicyRule) -> bool,
) -> Option<Decider<'g>> {
    policies.into_iter().find_map(|policy| {
        let rule = policy.rules.iter().find(|rule| fits(rule))?;
        Some(Decider::Rule {
            policy: &policy.name,
            rule: rule.number,
        })
    })
}

/// The conditions of a rule that an access does not meet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unmet {
    /// It is another port.
    pub port: bool,
    /// It is another caller.
    pub caller: bool,
    /// It is no request, and the rule wants one.
    pub request: bool,
    /// It is another method.
    pub method: bool,
    /// It is another path.
    pub path: bool,
    /// A header has another value, or is not there.
    pub headers: bool,
}

impl Unmet {
    /// How many there are; none when the rule matches.
    pub fn count(&self) -> usize {
        [
            self.port,
            self.caller,
            self.request,
            self.method,
            self.path,
            self.headers,
        ]
        .into_iter()
        .filter(|unmet| *unmet)
        .count()
    }
}

impl PolicyRule {
    /// What keeps a rule of an `Allow` policy from matching, to explain a decision.
    pub fn unmet<F>(&self, access: &Access<'_, F>) -> Unmet
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        let mut unmet = Unmet {
            port: !self.takes_port(access.port),
            caller: !self.takes_caller(access.caller),
            ..Unmet::default()
        };
        match (&self.http, &access.http) {
            (None, _) => {}
            (Some(_), None) => unmet.request = true,
            (Some(conditions), Some(request)) => {
                let action = PolicyAction::Allow;
                unmet.method = !conditions.takes_method(request.method, action);
                unmet.path = !conditions.takes_path(request.path, action);
                unmet.headers = !conditions.takes_headers(&request.fields, action);
            }
        }
        unmet
    }

    fn takes_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.binary_search(&port).is_ok()
    }

    fn takes_caller(&self, caller: Option<&SpiffeId>) -> bool {
        self.sources
            .as_ref()
            .is_none_or(|sources| sources.contains(caller))
    }

    fn matches<F>(&self, access: &Access<'_, F>, action: PolicyAction) -> bool
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        self.takes_port(access.port)
            && self.takes_caller(access.caller)
            && match (&self.http, &access.http) {
                (None, _) => true,
                (Some(conditions), Some(request)) => conditions.matches(request, action),
                (Some(_), None) => action == PolicyAction::Deny,
            }
    }
}
