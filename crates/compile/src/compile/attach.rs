//! Orders rules and puts them on ports.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use heddle_model::report::{Origin, Problem, Severity};
use heddle_model::{Namespace, RouteRule, Service, ServiceName, ServicePort};

use super::precedence::Rank;
use super::route::Route;
use crate::findings::Findings;

/// Limit of rules on all ports together. Exceeding it means faulty manifests, not a machine that is too small.
const MAX_RULES: usize = 200_000;

/// A route on a port, with the namespace of its callers if it is a consumer route.
type Attached<'a> = (Option<&'a Namespace>, &'a Route);

/// Gives every port its rules: those of producer routes, and those of consumer routes by the namespace of their
/// callers.
pub(super) fn attach(
    services: &mut [Service],
    routes: &[Route],
    base: &Path,
    findings: &mut Findings,
) {
    let mut by_port: BTreeMap<(&ServiceName, u16), Vec<Attached<'_>>> = BTreeMap::new();
    let mut total = 0;
    for route in routes {
        let matches: usize = route.rules.iter().map(|rule| rule.matches.len()).sum();
        for attachment in &route.attachments {
            total += matches;
            let port = (&attachment.service, attachment.port);
            by_port
                .entry(port)
                .or_default()
                .push((attachment.consumer.as_ref(), route));
        }
    }
    if total > MAX_RULES {
        findings.push_general(Problem {
            severity: Severity::Error,
            origin: Origin::file(base),
            object: None,
            field: String::new(),
            reason: format!("the routes come to {total} rules"),
            remedy: format!("at most {MAX_RULES} are served: attach routes to fewer ports"),
            cause: None,
        });
        return;
    }
    for service in services {
        let name = &service.name;
        for port in &mut service.ports {
            if let Some(attached) = by_port.get(&(name, port.port)) {
                attach_port(port, attached);
            }
        }
    }
}

fn attach_port(port: &mut ServicePort, attached: &[Attached<'_>]) {
    let mut groups: BTreeMap<Option<&Namespace>, Vec<&Route>> = BTreeMap::new();
    for (consumer, route) in attached {
        groups.entry(*consumer).or_default().push(route);
    }
    for (consumer, routes) in groups {
        let rules = ordered(&routes);
        match consumer {
            None => port.routes = Some(rules),
            Some(namespace) => {
                port.consumer_routes.insert(namespace.clone(), rules);
            }
        }
    }
}

/// Every match of every rule of these routes, highest precedence first.
pub(super) fn ordered(routes: &[&Route]) -> Vec<RouteRule> {
    let mut ranked = Vec::new();
    for route in routes {
        for (rule_index, rule) in route.rules.iter().enumerate() {
            for (position, matcher) in rule.matches.iter().enumerate() {
                let (created, name) = (route.created, &*route.name);
                let rank = Rank {
                    matcher,
                    created,
                    route: name,
                    rule: rule_index,
                    position,
                };
                ranked.push((rank, route, rule));
            }
        }
    }
    ranked.sort_by_key(|(rank, ..)| *rank);
    ranked
        .into_iter()
        .map(|(rank, route, rule)| RouteRule {
            name: Arc::clone(&route.name),
            rule: u32::try_from(rank.rule).unwrap_or(u32::MAX),
            matcher: rank.matcher.clone(),
            action: Arc::clone(&rule.action),
        })
        .collect()
}
