//! Invariants of policies, and of workloads' references to them.

use std::collections::BTreeSet;

use super::text::{is_canonical_path, is_field_value, is_token};
use super::{check_path_match, ensure, increasing};

use crate::{
    HttpMatch, MAX_POLICY_CONDITIONS, MAX_POLICY_RULES, MAX_POLICY_SOURCES, MAX_WORKLOAD_POLICIES,
    MAX_WORKLOAD_PROBES, Mesh, Policy, PolicyAction, PolicyKind, PolicyName, PolicyRule, Probe,
    Workload,
};

impl Mesh {
    pub(super) fn check_policies(&self) -> Result<(), String> {
        increasing(&self.policies, |policy| &policy.name, "policies")?;
        let concerned: BTreeSet<&PolicyName> = self
            .workloads
            .iter()
            .chain(self.judged.iter())
            .flat_map(|workload| &workload.policies)
            .collect();
        for policy in &self.policies {
            policy
                .check_invariants()
                .and_then(|()| {
                    let needed = concerned.contains(&policy.name);
                    ensure(needed, "it concerns no workload")
                })
                .map_err(|broken| format!("{}: {broken}", policy.name))?;
        }
        Ok(())
    }

    /// Checks that the policies of a workload are in the mesh.
    pub(super) fn check_guard(&self, workload: &Workload) -> Result<(), String> {
        let mut policies = workload.policies.iter();
        ensure(
            policies.all(|name| self.policy(name).is_some()),
            "a policy of it is missing",
        )
    }
}

/// Checks the policies' names and the health checks of a workload.
pub(super) fn check_guard(workload: &Workload) -> Result<(), String> {
    let policies = &workload.policies;
    ensure(
        policies.len() <= MAX_WORKLOAD_POLICIES,
        "too many policies concern it",
    )?;
    increasing(policies, |name| name, "policies")?;
    ensure(
        policies
            .iter()
            .all(|name| name.namespace == workload.name.namespace),
        "a policy of another namespace concerns it",
    )?;
    let probes = &workload.probes;
    ensure(probes.len() <= MAX_WORKLOAD_PROBES, "too many probes")?;
    increasing(probes, |probe| probe, "probes")?;
    probes.iter().try_for_each(check_probe)
}

fn check_probe(probe: &Probe) -> Result<(), String> {
    ensure(probe.port > 0, "a probe of port 0")?;
    match &probe.path {
        None => ensure(probe.query.is_empty(), "a probe with a query and no path"),
        Some(path) => {
            ensure(is_canonical_path(path), "a probe's path")?;
            let is_plain = |b: u8| (b'!'..=b'~').contains(&b) && b != b'#';
            ensure(probe.query.bytes().all(is_plain), "a probe's query")
        }
    }
}

impl Policy {
    /// Checks the invariants of a policy alone.
    ///
    /// # Errors
    /// The first broken invariant, with its place.
    pub fn check_invariants(&self) -> Result<(), String> {
        ensure(self.rules.len() <= MAX_POLICY_RULES, "too many rules")?;
        let denies = self.action == PolicyAction::Deny;
        ensure(
            !denies || !self.rules.is_empty(),
            "it denies and has no rule",
        )?;
        ensure(
            !denies || self.name.kind == PolicyKind::AuthorizationPolicy,
            "a TrafficTarget that denies",
        )?;
        for (position, rule) in self.rules.iter().enumerate() {
            check_rule(rule).map_err(|broken| format!("rule {position}: {broken}"))?;
        }
        Ok(())
    }
}

fn check_rule(rule: &PolicyRule) -> Result<(), String> {
    if let Some(sources) = &rule.sources {
        let longest = sources.identities.len().max(sources.namespaces.len());
        ensure(longest <= MAX_POLICY_SOURCES, "too many sources")?;
        increasing(&sources.identities, |id| id, "identities")?;
        increasing(&sources.namespaces, |namespace| namespace, "namespaces")?;
        let callers = sources.identities.iter();
        ensure(
            callers.into_iter().all(|id| id.service_account().is_some()),
            "an identity that no workload has",
        )?;
    }
    let is_few = rule.ports.len() <= MAX_POLICY_CONDITIONS;
    ensure(is_few, "too many ports")?;
    increasing(&rule.ports, |port| port, "ports")?;
    ensure(!rule.ports.contains(&0), "a port 0")?;
    rule.http.as_ref().map_or(Ok(()), check_http)
}

fn check_http(http: &HttpMatch) -> Result<(), String> {
    let HttpMatch {
        methods,
        paths,
        path_starts,
        headers,
    } = http;
    let lengths = [methods.len(), paths.len(), path_starts.len(), headers.len()];
    ensure(
        lengths.iter().any(|length| *length > 0),
        "conditions on requests without any condition",
    )?;
    ensure(
        lengths
            .iter()
            .all(|length| *length <= MAX_POLICY_CONDITIONS),
        "too many conditions",
    )?;
    ensure(methods.iter().all(|method| is_token(method)), "a method")?;
    paths.iter().try_for_each(check_path_match)?;
    let starts = path_starts.iter();
    ensure(
        starts.into_iter().all(|start| is_canonical_path(start)),
        "the start of a path",
    )?;
    let names: BTreeSet<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    ensure(names.len() == headers.len(), "two conditions on one header")?;
    ensure(
        headers.iter().all(|(name, value)| {
            is_token(name)
                && !name.contains(|c: char| c.is_ascii_uppercase())
                && !value.is_empty()
                && is_field_value(value)
        }),
        "a condition on a header",
    )
}
