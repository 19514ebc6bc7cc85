//! The guard of one workload, and its decision.

use std::fmt;
use std::sync::Arc;

use super::{HttpMatch, Mode, Policy, PolicyAction, PolicyName, PolicyRule, Probe};
use crate::{Mesh, SpiffeId, Workload};

#[cfg(test)]
mod tests;

/// Everything that decides which callers may call one workload. Built once for a snapshot; a decision allocates nothing
/// and evaluates each rule at most twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    mode: Mode,
    probes: Vec<Probe>,
    policies: Vec<Arc<Policy>>,
    /// Whether the mesh holds every policy that the workload names.
    is_complete: bool,
}

/// The connection or request to decide about.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a, F = NoHeader> {
    /// The caller's authenticated identity; `None` for an anonymous caller.
    pub caller: Option<&'a SpiffeId>,
    /// The workload's port, not the Service's.
    pub port: u16,
    /// The request; `None` for a byte stream.
    pub http: Option<HttpAccess<'a, F>>,
}

/// The parts of a request that rules can evaluate.
#[derive(Debug, Clone, Copy)]
pub struct HttpAccess<'a, F> {
    /// The method, as it will be forwarded.
    pub method: &'a [u8],
    /// The path as it will be forwarded: canonical, without the query. *Strictly* canonical where
    /// [`Guard::looks_at_paths`].
    pub path: &'a [u8],
    /// The query without the question mark; empty for none.
    pub query: &'a [u8],
    /// Whether the request has no body and no upgrade: a health check has neither.
    pub is_bare: bool,
    /// Calls its argument with the name and the value of each field line, in order.
    pub fields: F,
}

/// The type of an [`Access`] without a request.
pub type NoHeader = fn(&mut dyn FnMut(&[u8], &[u8]));

impl<'a> Access<'a> {
    /// An access for a byte stream.
    pub fn flow(caller: Option<&'a SpiffeId>, port: u16) -> Self {
        Self {
            caller,
            port,
            http: None,
        }
    }
}

/// The result of [`Guard::decide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'g> {
    /// Whether the access is allowed.
    pub allowed: bool,
    /// The rule or default that decided.
    pub by: Decider<'g>,
    /// The decision if dry-run policies were enforced. `None`: there are none.
    pub dry_run: Option<Verdict<'g>>,
}

impl Decision<'_> {
    /// Whether enforcing the dry-run policies would change the decision.
    pub fn would_differ(&self) -> bool {
        self.dry_run
            .is_some_and(|would| would.allowed != self.allowed)
    }
}

/// A decision, and the rule or default that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'g> {
    /// Whether the access is allowed.
    pub allowed: bool,
    /// The rule or default that decided.
    pub by: Decider<'g>,
}

/// The reason of a decision. `Display` words it for a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider<'g> {
    /// The request is a health check that the workload declares. Allowed.
    Probe,
    /// A matching rule; its policy's action decides.
    Rule {
        /// The policy with the rule.
        policy: &'g PolicyName,
        /// Index of the rule in the manifest, from 0.
        rule: u32,
    },
    /// No rule denies, and there are no `Allow` policies. Allowed.
    Default,
    /// The workload is strict and the caller anonymous. Refused.
    Anonymous,
    /// There are `Allow` policies, but none of their rules matches. Refused.
    NoRuleMatched,
    /// The mesh lacks a policy that the workload names. Refused.
    PolicyMissing,
}

impl Decider<'_> {
    /// A fixed code, for metric labels.
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
            Self::PolicyMissing => f.write_str("a policy of the workload is missing"),
        }
    }
}

/// What a connection may be used for, decided before its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect<'g> {
    /// Some traffic may be allowed: [`Guard::decide`] decides about each request, or about the whole byte stream.
    Open,
    /// Only a health check: the workload's port may be connected and closed again, and no byte may be forwarded in
    /// either direction.
    Bare,
    /// No traffic can be allowed.
    Refused(Decider<'g>),
}

impl Guard {
    /// The guard of a workload of this mesh. If the mesh lacks a policy that the workload names, the guard refuses
    /// everything.
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

    /// The guard of a workload of which nothing is known: it refuses everything.
    pub fn of_unknown() -> Self {
        Self {
            mode: Mode::Strict,
            probes: Default::default(),
            is_complete: false,
            policies: Vec::new(),
        }
    }

    /// Whether every access is allowed, and no dry-run policy has to be evaluated.
    pub fn is_open(&self) -> bool {
        self.is_complete && self.mode == Mode::Permissive && self.policies.is_empty()
    }

    /// The workload's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The policies that select the workload, including dry-run ones, sorted by name.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Whether an enforced rule evaluates requests to this port, which makes the port HTTP if its protocol is not
    /// declared.
    pub fn looks_at_requests(&self, port: u16) -> bool {
        self.enforced().any(|policy| {
            let mut rules = policy.rules.iter();
            rules.any(|rule| rule.http.is_some() && rule.takes_port(port))
        })
    }

    /// Whether the mesh has every policy that the workload names. If not, everything is refused.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The declared health checks, which callers without an identity may make.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Whether a declared health check is a request to this port.
    pub fn has_probe_requests(&self, port: u16) -> bool {
        let mut probes = self.probes.iter();
        probes.any(|probe| probe.port == port && probe.path.is_some())
    }

    /// Whether any rule evaluates paths. Then an ambiguous path could evade it, and requests must be brought into the
    /// strict canonical form.
    pub fn looks_at_paths(&self) -> bool {
        self.policies
            .iter()
            .flat_map(|policy| &policy.rules)
            .any(|rule| {
                let http = rule.http.as_ref();
                http.is_some_and(HttpMatch::looks_at_path)
            })
    }

    /// Whether a decision may depend on a header of this name, in any spelling of it.
    pub fn looks_at_header(&self, name: &[u8]) -> bool {
        self.enforced()
            .flat_map(|policy| &policy.rules)
            .any(|rule| {
                let http = rule.http.as_ref();
                http.is_some_and(|http| http.looks_at_header(name))
            })
    }

    /// Decides about one access.
    ///
    /// Rules of `Allow` policies match exactly. Rules of `Deny` policies match in every interpretation that a server
    /// may have: methods in any case, paths also without parameters (`/admin;x`), a header in any spelling of its name
    /// (`x_role` for `x-role`) and by any element of a list, ignoring quotes, parameters and case. A byte stream never
    /// meets a condition on requests of an `Allow` policy, and always one of a `Deny` policy: traffic that cannot be
    /// evaluated is refused.
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

    /// Whether any traffic of this caller to this port could be allowed.
    ///
    /// If this returns [`Connect::Refused`], [`Guard::decide`] refuses every access of this caller to this port.
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

    /// Why no traffic of this caller can be allowed on this port, health checks apart.
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

/// The first matching rule.
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
    /// The port is not one of the rule's.
    pub port: bool,
    /// The caller is not one of the rule's.
    pub caller: bool,
    /// The access is a byte stream, but the rule requires a request.
    pub request: bool,
    /// The method is not one of the rule's.
    pub method: bool,
    /// The path meets none of the rule's conditions.
    pub path: bool,
    /// A header is missing or has another value.
    pub headers: bool,
}

impl Unmet {
    /// The number of unmet conditions; 0 if the rule matches.
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
    /// The conditions that keep a rule of an `Allow` policy from matching, to explain a decision.
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
