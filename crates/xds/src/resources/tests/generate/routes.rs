//! Random Services with routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_model::{
    AppProtocol, Backend, BackendTarget, Balancer, Balancing, Ejection, Failing, Filters, HashOn,
    HeaderEdits, Line, MAX_SLOW_START_MS, Outcome, PathMatch, PathRewrite, Redirect, RetryBudget,
    Rewrite, RouteAction, RouteMatch, RouteRule, Service, ServicePort,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{
    headers, ip, label, namespace, number, path, path_match, port, prefix, service_name, text,
    text_name, token, value,
};

/// A Service without endpoints.
pub(in crate::resources::tests) fn service() -> BoxedStrategy<Service> {
    let addresses = btree_set(
        ip().prop_filter("a cluster's", |ip| !ip.is_loopback()),
        0..3,
    );
    let ports = btree_map(port(), (option::of(label()), protocol(), routes()), 0..3);
    let kind = (any::<bool>(), addresses, balancer(), balancing());
    // Rules of any port may share an action.
    let actions = vec(action().prop_map(Arc::new), 1..4);
    (service_name(), kind, ports, actions)
        .prop_map(|(name, kind, ports, actions)| {
            let (headless, addresses, balancer, balancing) = kind;
            let port = |(port, (name, protocol, routes))| {
                let (routes, consumer_routes): (Option<Vec<_>>, BTreeMap<_, Vec<_>>) = routes;
                let rules = |rules: Vec<Written>| -> Vec<RouteRule> {
                    rules
                        .into_iter()
                        .map(|rule| placed(rule, &actions))
                        .collect()
                };
                let consumer_routes = consumer_routes.into_iter();
                ServicePort {
                    name,
                    port,
                    protocol,
                    endpoints: Vec::new(),
                    routes: routes.map(rules),
                    consumer_routes: consumer_routes
                        .map(|(namespace, list)| (namespace, rules(list)))
                        .collect(),
                }
            };
            Service {
                name,
                headless,
                addresses: match headless {
                    true => Vec::new(),
                    false => addresses.into_iter().collect(),
                },
                balancer,
                balancing,
                ports: ports.into_iter().map(port).collect(),
            }
        })
        .boxed()
}

fn balancer() -> BoxedStrategy<Balancer> {
    select(vec![
        Balancer::RoundRobin,
        Balancer::LeastRequest,
        Balancer::PeakEwma,
        Balancer::RingHash,
    ])
    .boxed()
}

fn protocol() -> BoxedStrategy<AppProtocol> {
    select(vec![
        AppProtocol::Http,
        AppProtocol::Http2Cleartext,
        AppProtocol::Grpc,
        AppProtocol::Tcp,
        AppProtocol::Tls,
        AppProtocol::Undeclared,
    ])
    .boxed()
}

fn small(bounds: std::ops::RangeInclusive<u64>) -> BoxedStrategy<u32> {
    number(bounds)
        .prop_map(|value| u32::try_from(value).unwrap())
        .boxed()
}

fn percent(from: u64) -> BoxedStrategy<u8> {
    number(from..=100)
        .prop_map(|value| u8::try_from(value).unwrap())
        .boxed()
}

fn balancing() -> BoxedStrategy<Balancing> {
    let hash_on = prop_oneof![
        Just(HashOn::Source),
        "[a-z0-9-]{1,6}".prop_map(HashOn::Header)
    ];
    let line = (small(0..=Line::MOST.into()), number(1..=Line::LONGEST_MS));
    let on = select(vec![Failing::ServerError, Failing::GatewayFailure]);
    let after = small(1..=u32::MAX.into());
    let ejection = (after, on, number(1..=Ejection::LONGEST_MS), percent(1));
    let ejection = ejection.prop_map(|(after, on, base_ms, max_percent)| Ejection {
        after,
        on,
        base_ms,
        max_percent,
    });
    let budget = (percent(0), small(0..=RetryBudget::MOST_PER_SECOND.into()));
    let slow_start = number(0..=MAX_SLOW_START_MS);
    (hash_on, line, option::of(ejection), budget, slow_start)
        .prop_map(
            |(hash_on, line, ejection, budget, slow_start_ms)| Balancing {
                hash_on,
                line: Line {
                    max_waiting: line.0,
                    max_wait_ms: line.1,
                },
                ejection,
                retry_budget: RetryBudget {
                    percent: budget.0,
                    min_per_second: budget.1,
                },
                slow_start_ms,
            },
        )
        .boxed()
}

/// A rule whose action is chosen from those of the Service.
type Written = (String, u32, RouteMatch, Index);
type Routes = (
    Option<Vec<Written>>,
    BTreeMap<heddle_model::Namespace, Vec<Written>>,
);

fn routes() -> BoxedStrategy<Routes> {
    let rules = || vec(rule(), 0..4);
    (option::of(rules()), btree_map(namespace(), rules(), 0..3)).boxed()
}

fn rule() -> BoxedStrategy<Written> {
    let name = service_name().prop_map(|name| name.to_string());
    let query = btree_map(text(), text(), 0..3).prop_map(|query| query.into_iter().collect());
    let matcher = (path_match(), option::of(token()), headers(), query);
    let matcher = matcher.prop_map(|(path, method, headers, query)| RouteMatch {
        path,
        method,
        headers,
        query,
    });
    (name, any::<u32>(), matcher, any::<Index>()).boxed()
}

fn placed((name, rule, mut matcher, index): Written, actions: &[Arc<RouteAction>]) -> RouteRule {
    let action = Arc::clone(index.get(actions));
    if replaces_prefix(&action) {
        matcher.path = match matcher.path {
            PathMatch::Exact(_) => PathMatch::Prefix("/only".to_owned()),
            prefix => prefix,
        };
    }
    RouteRule {
        name: name.into(),
        rule,
        matcher,
        action,
    }
}

/// Whether only rules that match a prefix can have the action.
fn replaces_prefix(action: &RouteAction) -> bool {
    let is_prefix =
        |path: &Option<PathRewrite>| matches!(path, Some(PathRewrite::ReplacePrefix(_)));
    let rewrites = |filters: &Filters| {
        let rewrite = filters.rewrite.as_ref();
        rewrite.is_some_and(|rewrite| is_prefix(&rewrite.path))
    };
    let outcome = match &action.outcome {
        Outcome::Forward(backends) => backends.iter().any(|backend| rewrites(&backend.filters)),
        Outcome::Redirect(redirect) => is_prefix(&redirect.path),
    };
    outcome || rewrites(&action.filters)
}

fn action() -> BoxedStrategy<RouteAction> {
    let forward = vec(backend(), 0..3).prop_map(Outcome::Forward);
    let outcome = prop_oneof![3 => forward, 1 => redirect().prop_map(Outcome::Redirect)];
    let timeouts = (
        option::of(number(0..=u64::MAX)),
        option::of(number(0..=u64::MAX)),
    );
    (filters(), outcome, timeouts)
        .prop_map(|(mut filters, outcome, (request, backend))| {
            if matches!(outcome, Outcome::Redirect(_)) {
                filters.rewrite = None;
            }
            RouteAction {
                filters,
                outcome,
                request_timeout_ms: request,
                backend_timeout_ms: match request {
                    Some(request) if request > 0 => backend.map(|backend| backend.min(request)),
                    _ => backend,
                },
            }
        })
        .boxed()
}

fn backend() -> BoxedStrategy<Backend> {
    let to = (service_name(), port());
    let target = prop_oneof![
        to.prop_map(|(service, port)| BackendTarget::Service { service, port }),
        text().prop_map(|reason| BackendTarget::Unresolved { reason }),
    ];
    (small(0..=1_000_000), target, filters())
        .prop_map(|(weight, target, filters)| Backend {
            weight,
            target,
            filters,
        })
        .boxed()
}

fn filters() -> BoxedStrategy<Filters> {
    let rewrite = (option::of(text_name()), option::of(path_rewrite()));
    let rewrite = rewrite.prop_map(|(hostname, path)| Rewrite { hostname, path });
    (edits(), edits(), option::of(rewrite))
        .prop_map(|(request, response, rewrite)| Filters {
            request,
            response,
            rewrite,
        })
        .boxed()
}

fn edits() -> BoxedStrategy<HeaderEdits> {
    // No header that frames a message begins with this letter.
    let name = || token().prop_map(|name| format!("x{}", &name[1..]));
    let written = || vec((name(), value()), 0..2);
    prop_oneof![
        1 => Just(HeaderEdits::default()),
        1 => (written(), written(), vec(name(), 0..2))
            .prop_map(|(set, add, remove)| HeaderEdits { set, add, remove }),
    ]
    .boxed()
}

fn path_rewrite() -> BoxedStrategy<PathRewrite> {
    prop_oneof![
        path().prop_map(PathRewrite::ReplaceFull),
        prefix().prop_map(PathRewrite::ReplacePrefix),
    ]
    .boxed()
}

fn redirect() -> BoxedStrategy<Redirect> {
    let scheme = option::of(select(vec!["http".to_owned(), "https".to_owned()]));
    let status = select(vec![301, 302, 303, 307, 308]);
    let host = option::of(text_name());
    let rest = (option::of(path_rewrite()), option::of(port()));
    (scheme, host, rest, status)
        .prop_map(|(scheme, hostname, (path, port), status)| Redirect {
            scheme,
            hostname,
            path,
            port,
            status,
        })
        .boxed()
}
