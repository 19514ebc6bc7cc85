//! The policies of a workload, as filters of requests to one of its ports. For bytes: [`accepted`].
//!
//! A rule of an `ALLOW` policy must never match more than it does for a node's proxy, a rule of a `DENY` policy never less. Since
//! each port has filter chains of its own, the rules of other ports are left out. Each filter has one policy with all rules
//! as principals: the types of Envoy have maps without an order, so with more of them equal filters would have different bytes.
//!
//! What cannot be said: of a header, spellings of the name other than `_` for `-`, and a line that occurs twice; that a request
//! has a chunked body.

pub(crate) mod accepted;
mod principal;
pub(crate) mod regex;

use std::collections::HashMap;

use envoy_types::pb::envoy::config::rbac::v3::permission::Rule;
use envoy_types::pb::envoy::config::rbac::v3::rbac::Action;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{Rbac as HttpRbac, RbacPerRoute};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use heddle_model::{Guard, Mode, PolicyAction, PolicyRule, Probe};

use crate::gateway::Roles;
use crate::names::Flavour;
use crate::pack;

#[cfg(test)]
mod tests;

/// The callers behind a filter chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// They have proven an identity.
    Proven,
    /// They have none.
    Anonymous,
}

/// The filters in front of the router.
pub(crate) fn http(guard: &Guard, port: u16, callers: Callers, roles: &Roles) -> Vec<HttpFilter> {
    let filters = rules(guard, port, callers, roles).into_iter();
    let filters = filters.map(|filter| {
        let (rules, shadow_rules) = filter.split();
        let config = HttpRbac {
            rules,
            shadow_rules,
            rules_stat_prefix: filter.name.to_owned(),
            shadow_rules_stat_prefix: filter.name.to_owned(),
            ..HttpRbac::default()
        };
        HttpFilter {
            name: format!("rbac.{}", filter.name),
            config_type: Some(ConfigType::TypedConfig(pack(&config))),
            ..HttpFilter::default()
        }
    });
    filters.collect()
}

/// One filter: its rules are enforced, or only counted.
struct Judged {
    name: &'static str,
    rules: Rbac,
    is_enforced: bool,
}

impl Judged {
    fn split(&self) -> (Option<Rbac>, Option<Rbac>) {
        let rules = Some(self.rules.clone());
        match self.is_enforced {
            true => (rules, None),
            false => (None, rules),
        }
    }
}

/// The filters of a port, in the order in which they judge.
fn rules(guard: &Guard, port: u16, callers: Callers, roles: &Roles) -> Vec<Judged> {
    if !guard.is_complete() {
        return vec![enforced("policy_missing", allow(Vec::new()))];
    }
    let of = Of {
        guard,
        port,
        callers,
        roles: Some(roles),
    };
    let probes = of.probes();
    if guard.mode() == Mode::Strict && callers == Callers::Anonymous {
        return vec![enforced("anonymous", allow(probes))];
    }
    let mut filters = Vec::new();
    if guard.looks_at_paths() {
        let ambiguous = rbac(Action::Deny, vec![principal::ambiguous()]);
        filters.push(enforced("ambiguous", ambiguous));
    }
    // Without policies it does not matter who the caller is.
    if !guard.policies().is_empty() {
        let claims = rbac(Action::Deny, vec![principal::false_claim(roles)]);
        filters.push(enforced("claim", claims));
    }
    if guard.policies().iter().any(|policy| policy.dry_run) {
        let judged = [of.deny(&probes, true), of.allow(&probes, true)];
        let counted = judged.into_iter().flatten();
        filters.extend(counted.map(|rules| Judged {
            name: "dry_run",
            rules,
            is_enforced: false,
        }));
    }
    filters.extend(of.deny(&probes, false).map(|rules| enforced("deny", rules)));
    filters.extend(
        of.allow(&probes, false)
            .map(|rules| enforced("allow", rules)),
    );
    filters
}

/// What a port's rules are about.
struct Of<'g> {
    guard: &'g Guard,
    port: u16,
    callers: Callers,
    /// Whose assertions of another caller are believed; `None`: no caller's.
    roles: Option<&'g Roles>,
}

impl Of<'_> {
    /// The rules that deny; none if nothing does.
    fn deny(&self, probes: &[Principal], with_dry_runs: bool) -> Option<Rbac> {
        let rules = self.of(PolicyAction::Deny, with_dry_runs);
        let denied: Vec<Principal> = rules.filter_map(|rule| self.denied(rule)).collect();
        if denied.is_empty() {
            return None;
        }
        let spared = probes.iter().cloned().map(principal::not);
        let all = std::iter::once(principal::any_of(denied)).chain(spared);
        Some(rbac(Action::Deny, vec![principal::all_of(all.collect())]))
    }

    /// The rules that allow; none if no policy does, and so everything is allowed.
    fn allow(&self, probes: &[Principal], with_dry_runs: bool) -> Option<Rbac> {
        if !self.is_limited(with_dry_runs) {
            return None;
        }
        let rules = self.of(PolicyAction::Allow, with_dry_runs);
        let allowed = rules.filter_map(|rule| self.allowed(rule));
        Some(allow(allowed.chain(probes.iter().cloned()).collect()))
    }

    /// Whether there are policies that allow, and so nothing else is allowed.
    fn is_limited(&self, with_dry_runs: bool) -> bool {
        let policies = self.guard.policies().iter();
        let mut policies = policies.filter(|policy| with_dry_runs || !policy.dry_run);
        policies.any(|policy| policy.action == PolicyAction::Allow)
    }

    /// The rules for this port of all policies that do this.
    fn of(&self, action: PolicyAction, with_dry_runs: bool) -> impl Iterator<Item = &PolicyRule> {
        let policies = self.guard.policies().iter();
        let policies = policies
            .filter(move |policy| policy.action == action && (with_dry_runs || !policy.dry_run));
        let rules = policies.flat_map(|policy| &policy.rules);
        rules.filter(|rule| rule.ports.is_empty() || rule.ports.contains(&self.port))
    }

    /// The callers and requests that a rule allows; `None` for none.
    fn allowed(&self, rule: &PolicyRule) -> Option<Principal> {
        let mut all: Vec<Principal> = Vec::new();
        all.extend(self.callers_of(rule)?);
        if let Some(http) = &rule.http {
            all.extend(principal::allowed(http)?);
        }
        Some(principal::all_of(all))
    }

    /// The callers and requests that a rule denies; `None` for none.
    fn denied(&self, rule: &PolicyRule) -> Option<Principal> {
        let mut all: Vec<Principal> = Vec::new();
        all.extend(self.callers_of(rule)?);
        if let Some(http) = &rule.http {
            all.extend(principal::denied(http));
        }
        Some(principal::all_of(all))
    }

    /// The condition on callers, if there is one; `None` if no caller meets it.
    fn callers_of(&self, rule: &PolicyRule) -> Option<Option<Principal>> {
        match (&rule.sources, self.callers) {
            (None, _) => Some(None),
            (Some(_), Callers::Anonymous) => None,
            (Some(sources), Callers::Proven) => {
                Some(Some(principal::sources(sources, self.roles)?))
            }
        }
    }

    /// The declared health checks, which need no identity.
    fn probes(&self) -> Vec<Principal> {
        if self.callers == Callers::Proven {
            return Vec::new();
        }
        let probes = self.guard.probes().iter();
        let probes = probes.filter(|probe: &&Probe| probe.port == self.port);
        probes.filter_map(principal::probe).collect()
    }
}

/// The policies of endpoints at these ports, for a gateway that forwards to one of them: what one of them would refuse is
/// refused. `None`: nothing is.
pub(crate) fn forwarded(
    guards: &[(Guard, u16)],
    flavour: Flavour,
    roles: &Roles,
) -> Option<RbacPerRoute> {
    let mut refused = Vec::new();
    for (guard, port) in guards {
        if !guard.is_complete() {
            refused.push(principal::all_of(Vec::new()));
            continue;
        }
        match flavour {
            Flavour::Requests => {
                refused.extend(guard.looks_at_paths().then(principal::ambiguous));
                let of = Of {
                    guard,
                    port: *port,
                    callers: Callers::Proven,
                    roles: None,
                };
                let denied = of.of(PolicyAction::Deny, false);
                refused.extend(denied.filter_map(|rule| of.denied(rule)));
                if of.is_limited(false) {
                    let allowed = of.of(PolicyAction::Allow, false);
                    let allowed = allowed.filter_map(|rule| of.allowed(rule));
                    refused.push(principal::none_of(allowed.collect()));
                }
            }
            Flavour::Bytes if guard.policies().is_empty() => {}
            Flavour::Bytes => {
                let accepted = accepted::identities(guard, *port, roles).into_iter();
                let accepted = accepted.map(principal::caller);
                refused.push(principal::none_of(accepted.collect()));
            }
        }
    }
    (!refused.is_empty()).then(|| RbacPerRoute {
        rbac: Some(HttpRbac {
            rules: Some(rbac(Action::Deny, refused)),
            rules_stat_prefix: "forwarded".to_owned(),
            ..HttpRbac::default()
        }),
    })
}

fn enforced(name: &'static str, rules: Rbac) -> Judged {
    Judged {
        name,
        rules,
        is_enforced: true,
    }
}

/// What allows these, and nothing else.
fn allow(principals: Vec<Principal>) -> Rbac {
    match principals.is_empty() {
        // Without a policy nothing is allowed; one must not be empty.
        true => Rbac {
            action: Action::Allow.into(),
            ..Rbac::default()
        },
        false => rbac(Action::Allow, principals),
    }
}

fn rbac(action: Action, principals: Vec<Principal>) -> Rbac {
    let policy = Policy {
        permissions: vec![Permission {
            rule: Some(Rule::Any(true)),
        }],
        principals,
        ..Policy::default()
    };
    Rbac {
        action: action.into(),
        policies: HashMap::from([("rules".to_owned(), policy)]),
        ..Rbac::default()
    }
}
