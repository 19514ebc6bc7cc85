//! The routes of a workload's outgoing requests.
//!
//! ```text
//!   original destination (a header) ─▶ exact match ─▶ the routes of that Service's port, in order
//!                                          └─ none ─▶ the gateway, or the destination as it is
//! ```
//!
//! The address decides, not the host that a request names, as for a node's proxy. Looking an address up takes the same time
//! however many there are.

mod action;
mod edits;
mod matching;
mod table;

use std::fmt;
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteMatch, route, route_action, route_match,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use heddle_model::{
    BackendTarget, Namespace, Outcome, RouteRule, Service, ServiceName, ServicePort, TrustDomain,
};

use crate::cluster::flavours;
use crate::names::{
    CALLER, ClusterName, FORWARDED, FORWARDED_POLICY, Flavour, GATEWAY, ORIGINAL_DST, OUTBOUND,
    PASSTHROUGH,
};
use crate::{Packed, pack};

#[cfg(test)]
mod tests;

/// What happens to a request whose destination is no known Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It goes to a gateway.
    Gateway,
    /// It goes to where it was sent.
    Passthrough,
}

/// Finds the Service of a port that has a usable cluster for requests.
pub(crate) type Find<'f, 'm> = &'f dyn Fn(&ServiceName, u16) -> Option<&'m Service>;

/// The policies of the endpoints of ports, for what a gateway forwards.
pub(crate) type Policies<'f> = &'f dyn Fn(&[&ServicePort], Flavour) -> Option<RbacPerRoute>;

/// Why a port's routes cannot be followed by a stock Envoy. A lazy one sends such requests to a gateway, any other answers 503.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inexpressible {
    /// The Service has no usable cluster.
    NoCluster,
    /// One of several backends rewrites the path in a way of its own.
    BackendPath,
    /// A share of the requests is to be answered 500.
    Unresolved,
    /// A rule and its backend change the same field of the response.
    SameField,
}

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCluster => "a backend has no port for HTTP/1.1, or its name is too long",
            Self::BackendPath => "one of several backends rewrites the path",
            Self::Unresolved => "one of several backends does not exist",
            Self::SameField => "a rule and its backend change the same field of the response",
        })
    }
}

impl std::error::Error for Inexpressible {}

/// The routes to these Services for callers of a namespace.
pub(crate) fn outbound<'m>(
    known: impl Iterator<Item = &'m Service>,
    caller: &Namespace,
    find: Find<'_, 'm>,
    unknown: Unknown,
) -> Packed {
    let mut table = table::Table::new(OUTBOUND, to_unknown(unknown));
    for service in known {
        for port in &service.ports {
            if !flavours(port).contains(&Flavour::Requests) {
                continue;
            }
            let rules = rules(port, caller);
            let routes = match (of_rules(service, port, rules, find), unknown) {
                (Ok(routes), _) => routes,
                (Err(_), Unknown::Gateway) => continue,
                (Err(why), Unknown::Passthrough) => {
                    vec![refused(&why)]
                }
            };
            for ip in &service.addresses {
                table.put(SocketAddr::new(*ip, port.port), &routes);
            }
        }
    }
    table.packed()
}

/// The routes of a gateway to these Services, for callers of any namespace. `judged` gives the policies of the endpoints of
/// ports.
pub(crate) fn forwarded<'m>(
    known: impl Iterator<Item = &'m Service>,
    trust_domain: &TrustDomain,
    find: Find<'_, 'm>,
    judged: Policies<'_>,
) -> Packed {
    let mut table = table::Table::new(
        FORWARDED,
        named(
            &FORWARDED,
            anything(),
            action::answer(
                404,
                "no Service has this address (gateway_destination_unknown)",
            ),
        ),
    );
    for service in known {
        for port in &service.ports {
            let mut routes = Vec::new();
            // Tunnels first: the routes of requests end with one for anything.
            if flavours(port).contains(&Flavour::Bytes) {
                let tunnel = action::tunnel(&service.name, port.port);
                routes.push(judged_by(tunnel, judged(&[port], Flavour::Bytes)));
            }
            if flavours(port).contains(&Flavour::Requests) {
                // Callers of a namespace that has routes of its own have those.
                for (namespace, rules) in &port.consumer_routes {
                    let callers = matching::callers_of(trust_domain, namespace);
                    let own = requests(service, port, Some(rules), find, judged);
                    routes.extend(own.map(|mut route| {
                        let matching = route.r#match.get_or_insert_default();
                        matching.headers.push(callers.clone());
                        route
                    }));
                }
                let rules = port.routes.as_deref();
                routes.extend(requests(service, port, rules, find, judged));
            }
            if !flavours(port).contains(&Flavour::Requests) {
                // The caller's proxy takes bytes that look like a request for one, until it knows the port.
                let cluster = cluster(&service.name, port.port, Flavour::Bytes);
                let as_bytes = named(&service.name, anything(), action::to_cluster(&cluster));
                routes.push(with_policies(as_bytes, judged(&[port], Flavour::Bytes)));
            }
            for ip in &service.addresses {
                table.put(SocketAddr::new(*ip, port.port), &routes);
            }
        }
    }
    table.packed()
}

/// The routes of a gateway for requests to a port, by these rules. Each has the policies of the endpoints to which it leads.
fn requests<'a, 'm>(
    service: &Service,
    port: &'m ServicePort,
    rules: Option<&'a [RouteRule]>,
    find: Find<'a, 'm>,
    judged: Policies<'a>,
) -> impl Iterator<Item = Route> + use<'a, 'm> {
    let routes = of_rules(service, port, rules, find);
    let routes = routes.unwrap_or_else(|why| vec![refused(&why)]);
    routes.into_iter().enumerate().map(move |(at, route)| {
        let to = match rules {
            Some(rules) => rules.get(at).map(|rule| targets(rule, find)),
            None => Some(vec![port]),
        };
        judged_by(route, judged(&to.unwrap_or_default(), Flavour::Requests))
    })
}

/// The answer where an Envoy cannot do what the routes say.
fn refused(why: &Inexpressible) -> Route {
    let answer = action::answer(503, &format!("an Envoy cannot follow this route: {why}"));
    named(why, anything(), answer)
}

/// A route of a gateway with policies. The destination is told who the caller is.
fn judged_by(mut route: Route, policies: Option<RbacPerRoute>) -> Route {
    route
        .request_headers_to_remove
        .retain(|name| name != CALLER);
    with_policies(route, policies)
}

fn with_policies(mut route: Route, policies: Option<RbacPerRoute>) -> Route {
    let policies = policies.map(|policies| (FORWARDED_POLICY.to_owned(), pack(&policies)));
    route.typed_per_filter_config = policies.into_iter().collect();
    route
}

/// The ports to which a rule leads.
fn targets<'m>(rule: &RouteRule, find: Find<'_, 'm>) -> Vec<&'m ServicePort> {
    let Outcome::Forward(backends) = &rule.action.outcome else {
        return Vec::new();
    };
    let live = backends.iter().filter(|backend| backend.weight > 0);
    let targets = live.filter_map(|backend| match &backend.target {
        BackendTarget::Service { service, port } => find(service, *port)?.port(*port),
        BackendTarget::Unresolved { .. } => None,
    });
    targets.collect()
}

/// The Services to which the routes of a port lead, for callers of a namespace.
pub(crate) fn backends<'m>(
    port: &'m ServicePort,
    caller: &Namespace,
) -> impl Iterator<Item = &'m ServiceName> {
    let rules = rules(port, caller).unwrap_or_default().iter();
    let backends = rules.flat_map(|rule| match &rule.action.outcome {
        Outcome::Forward(backends) => backends.as_slice(),
        Outcome::Redirect(_) => &[],
    });
    backends.filter_map(|backend| match &backend.target {
        BackendTarget::Service { service, .. } => Some(service),
        BackendTarget::Unresolved { .. } => None,
    })
}

/// The rules for callers of a namespace: their own, or else those of the port. `None`: there are none.
fn rules<'m>(port: &'m ServicePort, caller: &Namespace) -> Option<&'m [RouteRule]> {
    let own = port.consumer_routes.get(caller);
    own.or(port.routes.as_ref()).map(Vec::as_slice)
}

fn of_rules(
    service: &Service,
    port: &ServicePort,
    rules: Option<&[RouteRule]>,
    find: Find<'_, '_>,
) -> Result<Vec<Route>, Inexpressible> {
    let Some(rules) = rules else {
        let service = find(&service.name, port.port).ok_or(Inexpressible::NoCluster)?;
        let to = action::to_service(service, port.port);
        return Ok(vec![named(&service.name, anything(), to)]);
    };
    let mut routes = Vec::new();
    for rule in rules {
        let mut route = Route {
            name: format!("{}/{}", rule.name, rule.rule),
            r#match: Some(matching::of(&rule.matcher)),
            ..Route::default()
        };
        action::put(rule, find, &mut route)?;
        route.request_headers_to_remove.extend(own_headers());
        routes.push(route);
    }
    // A request without a match.
    let nowhere = action::answer(404, "no rule of the routes matches (no_route)");
    routes.push(named(&service.name, anything(), nowhere));
    Ok(routes)
}

fn to_unknown(unknown: Unknown) -> Route {
    match unknown {
        // The gateway is told of the destination.
        Unknown::Gateway => Route {
            request_headers_to_remove: Vec::new(),
            ..named(&GATEWAY, anything(), action::to_cluster(GATEWAY))
        },
        Unknown::Passthrough => named(&PASSTHROUGH, anything(), action::to_cluster(PASSTHROUGH)),
    }
}

fn named(name: &dyn fmt::Display, matching: RouteMatch, action: route::Action) -> Route {
    Route {
        name: name.to_string(),
        r#match: Some(matching),
        request_headers_to_remove: own_headers(),
        action: Some(action),
        ..Route::default()
    }
}

/// What only proxies say to each other: a client's own is taken out.
fn own_headers() -> Vec<String> {
    [ORIGINAL_DST, CALLER].map(str::to_owned).to_vec()
}

fn anything() -> RouteMatch {
    RouteMatch {
        path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
        ..RouteMatch::default()
    }
}

/// The cluster of a Service's port.
fn cluster(service: &ServiceName, port: u16, flavour: Flavour) -> String {
    let name = ClusterName {
        service,
        port,
        flavour,
    };
    name.to_string()
}

fn to(cluster: String) -> route_action::ClusterSpecifier {
    route_action::ClusterSpecifier::Cluster(cluster)
}
