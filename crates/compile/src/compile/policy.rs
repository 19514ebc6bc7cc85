//! Policies: which callers may call which workload.
//!
//! [`authorization`] and [`traffic_target`] bring the two supported kinds into one form; [`selector`] finds the
//! workloads that they select, [`ports`] checks whether their rules can be enforced there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_model::{
    AppProtocol, HttpMatch, MAX_WORKLOAD_POLICIES, Policy, PolicyAction, PolicyName, PolicyRule,
    Service, TrustDomain, Workload, WorkloadName,
};

use super::Scope;
use super::index::{Index, WrittenPolicy};
use crate::findings::Findings;
use crate::manifest::Object;
use crate::manifest::node::FieldPath;

mod authorization;
mod closed;
mod ports;
mod regex;
mod selector;
mod source;
mod traffic_target;

#[cfg(test)]
mod tests;

use ports::Ports;

/// Workloads that policies concern, whatever they select.
pub(crate) type Pins = BTreeMap<PolicyName, BTreeSet<WorkloadName>>;

/// Limit of workloads that all selectors together evaluate.
const MAX_LOOKED_AT: usize = 20_000_000;

/// The inputs for checking a policy.
struct PolicyContext<'a> {
    index: &'a Index<'a>,
    workloads: &'a [Workload],
    ports: &'a Ports,
    trust_domain: &'a TrustDomain,
    object: &'a Object,
}

/// A policy of either kind, in the common form.
struct Draft {
    action: PolicyAction,
    dry_run: bool,
    rules: Vec<DraftRule>,
    /// The field that selects workloads, and the selected workloads.
    target: FieldPath,
    selected: Vec<WorkloadName>,
}

/// A rule, with the places of its conditions in the manifest.
struct DraftRule {
    rule: PolicyRule,
    /// The place of each port, in the order of the rule.
    ports_at: Vec<FieldPath>,
    http_at: FieldPath,
}

/// Compiles every policy that selects a workload, and adds it to those workloads. Ports of undeclared protocol become
/// HTTP where an enforced rule evaluates requests.
pub(super) fn compile(
    index: &Index<'_>,
    workloads: &mut [Workload],
    services: &mut [Service],
    (trust_domain, pins): (&TrustDomain, &Pins),
    findings: &mut Findings,
) -> Vec<Arc<Policy>> {
    let ports = Ports::new(workloads, services);
    let mut concerning: BTreeMap<WorkloadName, Vec<PolicyName>> = BTreeMap::new();
    let mut requests = Requests::default();
    let mut policies = Vec::new();
    let mut looks_left = MAX_LOOKED_AT;
    for (name, (object, written)) in &index.policies {
        let mut scope = Scope::of(object, findings);
        let context = PolicyContext {
            index,
            workloads,
            ports: &ports,
            trust_domain,
            object,
        };
        let draft = match written {
            WrittenPolicy::Authorization(body) => {
                authorization::compile(&context, &body.spec, &mut looks_left, &mut scope)
            }
            WrittenPolicy::TrafficTarget(body) => {
                traffic_target::compile(&context, &body.spec, &mut looks_left, &mut scope)
            }
            WrittenPolicy::Closed(body) => {
                closed::compile(&context, &body.selects, &mut looks_left, &mut scope)
            }
        };
        let draft = draft.map(|draft| pinned(draft, pins.get(name), workloads));
        let Some(draft) = draft.filter(|draft| !draft.selected.is_empty()) else {
            continue;
        };
        ports::check(&context, &draft, &mut scope);
        for workload in &draft.selected {
            let of = concerning.entry(workload.clone()).or_default();
            if of.len() >= MAX_WORKLOAD_POLICIES {
                scope.error(
                    &draft.target,
                    format!("more than {MAX_WORKLOAD_POLICIES} policies concern LocalWorkload {workload}"),
                    "put rules into fewer policies",
                );
                break;
            }
            of.push(name.clone());
        }
        if !draft.dry_run {
            requests.add(&draft);
        }
        policies.push(Arc::new(Policy {
            name: name.clone(),
            action: draft.action,
            dry_run: draft.dry_run,
            rules: draft.rules.into_iter().map(|draft| draft.rule).collect(),
        }));
    }
    for workload in workloads {
        workload.policies = concerning.remove(&workload.name).unwrap_or_default();
    }
    requests.declare_http(services);
    policies
}

/// The policy, which concerns the workloads pinned to it that still exist, too.
fn pinned(
    mut draft: Draft,
    pins: Option<&BTreeSet<WorkloadName>>,
    workloads: &[Workload],
) -> Draft {
    let Some(pins) = pins else { return draft };
    let is_there = |name: &&WorkloadName| {
        let found = workloads.binary_search_by(|workload| workload.name.cmp(name));
        found.is_ok()
    };
    let mut all: BTreeSet<WorkloadName> = draft.selected.into_iter().collect();
    all.extend(pins.iter().filter(is_there).cloned());
    draft.selected = all.into_iter().collect();
    draft
}

/// Ports of workloads at which a rule evaluates requests.
#[derive(Default)]
struct Requests {
    all_ports: BTreeSet<WorkloadName>,
    ports: BTreeSet<(WorkloadName, u16)>,
}

impl Requests {
    fn add(&mut self, draft: &Draft) {
        let about: Vec<&PolicyRule> = draft
            .rules
            .iter()
            .map(|draft| &draft.rule)
            .filter(|rule| rule.http.is_some())
            .collect();
        if about.iter().any(|rule| rule.ports.is_empty()) {
            self.all_ports.extend(draft.selected.iter().cloned());
        }
        let ports: BTreeSet<u16> = about.iter().flat_map(|rule| &rule.ports).copied().collect();
        for workload in &draft.selected {
            let ports = ports.iter().map(|port| (workload.clone(), *port));
            self.ports.extend(ports);
        }
    }

    /// Makes the ports of undeclared protocol HTTP.
    fn declare_http(&self, services: &mut [Service]) {
        let undeclared = services
            .iter_mut()
            .flat_map(|service| &mut service.ports)
            .filter(|port| port.protocol == AppProtocol::Undeclared);
        for port in undeclared {
            let is_looked_at = port.endpoints.iter().any(|endpoint| {
                endpoint.workload.as_ref().is_some_and(|workload| {
                    let port = (workload.clone(), endpoint.address.port());
                    self.all_ports.contains(workload) || self.ports.contains(&port)
                })
            });
            if is_looked_at {
                port.protocol = AppProtocol::Http;
            }
        }
    }
}

/// Conditions that every request meets.
fn any_request() -> HttpMatch {
    HttpMatch {
        paths: vec![heddle_model::PathMatch::Prefix(String::new())],
        ..HttpMatch::default()
    }
}
