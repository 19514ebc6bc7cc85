//! The actions of rules.

use envoy_types::pb::envoy::config::core::v3::DataSource;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Header, PolicySpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::upgrade_config::ConnectConfig;
use envoy_types::pb::envoy::config::route::v3::route_action::{
    ClusterSpecifier, HashPolicy, HostRewriteSpecifier, UpgradeConfig,
};
use envoy_types::pb::envoy::config::route::v3::route_match::{ConnectMatcher, PathSpecifier};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::{ClusterWeight, cluster_weight};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, RedirectAction, RetryPolicy, Route, RouteAction, RouteMatch,
    WeightedCluster, route,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use heddle_model::{
    Backend, BackendTarget, Balancer, HashOn, Outcome, PathMatch, PathRewrite, Redirect, Rewrite,
    RouteRule, Service, ServiceName,
};

use super::{Find, Inexpressible, cluster, edits, to};
use crate::names::Flavour;
use crate::policy::regex;
use crate::values::{ms, number, seconds};

/// Seconds in which nothing moves, after which a request is given up: that of a node's proxy (`proxy.timeouts.stream_idle`).
const IDLE_S: u32 = 300;
/// Attempts after the first one, of a request of which no backend has seen anything.
const RETRIES: u32 = 2;

/// An answer by the Envoy itself, with the reason, as a node's proxy gives it.
pub(super) fn answer(status: u32, why: &str) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction {
        status,
        body: Some(DataSource {
            specifier: Some(Specifier::InlineString(format!("heddle: {why}\n"))),
            ..DataSource::default()
        }),
        ..DirectResponseAction::default()
    })
}

/// To a cluster, whatever the request is.
pub(super) fn to_cluster(name: &str) -> route::Action {
    route::Action::Route(RouteAction {
        cluster_specifier: Some(to(name.to_owned())),
        ..forwarded(None, None)
    })
}

/// To a Service's port, without rules.
pub(super) fn to_service(service: &Service, port: u16) -> route::Action {
    route::Action::Route(RouteAction {
        cluster_specifier: Some(to(cluster(&service.name, port, Flavour::Requests))),
        hash_policy: hash_policy(service),
        ..forwarded(None, None)
    })
}

/// Bytes to a Service's port, in a connection that HTTP CONNECT asks for (RFC 9110 section 9.3.6).
pub(super) fn tunnel(service: &ServiceName, port: u16) -> Route {
    let connect = UpgradeConfig {
        upgrade_type: "CONNECT".to_owned(),
        connect_config: Some(ConnectConfig::default()),
        ..UpgradeConfig::default()
    };
    let action = RouteAction {
        cluster_specifier: Some(to(cluster(service, port, Flavour::Bytes))),
        timeout: seconds(0),
        upgrade_configs: vec![connect],
        ..RouteAction::default()
    };
    Route {
        name: service.to_string(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::ConnectMatcher(ConnectMatcher {})),
            ..RouteMatch::default()
        }),
        action: Some(route::Action::Route(action)),
        ..Route::default()
    }
}

/// Puts the action of a rule into its route.
pub(super) fn put(
    rule: &RouteRule,
    find: Find<'_, '_>,
    route: &mut Route,
) -> Result<(), Inexpressible> {
    let action = &rule.action;
    let filters = &action.filters;
    route.request_headers_to_add = edits::put(&filters.request);
    route
        .request_headers_to_remove
        .extend(edits::remove(&filters.request));
    route.response_headers_to_add = edits::put(&filters.response);
    route
        .response_headers_to_remove
        .extend(edits::remove(&filters.response));
    let backends = match &action.outcome {
        Outcome::Redirect(to) => {
            route.action = Some(redirect(to, &rule.matcher.path));
            return Ok(());
        }
        Outcome::Forward(backends) => backends,
    };
    let live: Vec<&Backend> = backends.iter().filter(|one| one.weight > 0).collect();
    let is_unresolved = |one: &&Backend| matches!(one.target, BackendTarget::Unresolved { .. });
    if live.iter().all(is_unresolved) {
        route.action = Some(answer(
            500,
            "the backend does not exist (backend_not_resolved)",
        ));
        return Ok(());
    }
    let mut forward = forwarded(action.request_timeout_ms, action.backend_timeout_ms);
    if let Some(rewrite) = &filters.rewrite {
        put_rewrite(rewrite, &rule.matcher.path, &mut forward);
    }
    let mut clusters = Vec::new();
    for backend in &live {
        let BackendTarget::Service { service, port } = &backend.target else {
            return Err(Inexpressible::Unresolved);
        };
        let found = find(service, *port).ok_or(Inexpressible::NoCluster)?;
        if forward.hash_policy.is_empty() {
            forward.hash_policy = hash_policy(found);
        }
        let own = &backend.filters;
        // A rule's changes come before a backend's in a request, and after them in a response.
        if edits::share_a_field(&filters.response, &own.response) {
            return Err(Inexpressible::SameField);
        }
        let mut weight = ClusterWeight {
            name: cluster(service, *port, Flavour::Requests),
            weight: number(backend.weight),
            request_headers_to_add: edits::put(&own.request),
            request_headers_to_remove: edits::remove(&own.request).collect(),
            response_headers_to_add: edits::put(&own.response),
            response_headers_to_remove: edits::remove(&own.response).collect(),
            ..ClusterWeight::default()
        };
        match &own.rewrite {
            Some(Rewrite { path: Some(_), .. }) if live.len() > 1 => {
                return Err(Inexpressible::BackendPath);
            }
            Some(rewrite) if live.len() == 1 => {
                put_rewrite(rewrite, &rule.matcher.path, &mut forward);
            }
            Some(Rewrite { hostname, .. }) => {
                let literal = cluster_weight::HostRewriteSpecifier::HostRewriteLiteral;
                weight.host_rewrite_specifier = hostname.clone().map(literal);
            }
            None => {}
        }
        clusters.push(weight);
    }
    forward.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
        clusters,
        ..WeightedCluster::default()
    }));
    route.action = Some(route::Action::Route(forward));
    Ok(())
}

fn forwarded(request_ms: Option<u64>, attempt_ms: Option<u64>) -> RouteAction {
    RouteAction {
        // Without one an Envoy would take 15 s.
        timeout: ms(request_ms.unwrap_or(0)),
        idle_timeout: seconds(IDLE_S),
        retry_policy: Some(RetryPolicy {
            retry_on: "connect-failure,refused-stream,reset-before-request".to_owned(),
            num_retries: number(RETRIES),
            per_try_timeout: attempt_ms.filter(|one| *one > 0).and_then(ms),
            ..RetryPolicy::default()
        }),
        ..RouteAction::default()
    }
}

fn hash_policy(service: &Service) -> Vec<HashPolicy> {
    if service.balancer != Balancer::RingHash {
        return Vec::new();
    }
    let specifier = match &service.balancing.hash_on {
        HashOn::Source => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
        }
        HashOn::Header(name) => PolicySpecifier::Header(Header {
            header_name: name.clone(),
            ..Header::default()
        }),
    };
    vec![HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    }]
}

fn put_rewrite(rewrite: &Rewrite, matched: &PathMatch, forward: &mut RouteAction) {
    if let Some(hostname) = &rewrite.hostname {
        let literal = HostRewriteSpecifier::HostRewriteLiteral(hostname.clone());
        forward.host_rewrite_specifier = Some(literal);
    }
    let Some(path) = &rewrite.path else { return };
    forward.prefix_rewrite.clear();
    forward.regex_rewrite = None;
    match substitute(path, matched) {
        Some(regex) => forward.regex_rewrite = Some(regex),
        None => {
            if let PathRewrite::ReplacePrefix(new) = path {
                forward.prefix_rewrite.clone_from(new);
            }
        }
    }
}

/// The replacement of a path by a regular expression; `None` where it is that of a prefix by a path, or changes nothing.
fn substitute(rewrite: &PathRewrite, matched: &PathMatch) -> Option<RegexMatchAndSubstitute> {
    let (pattern, replacement) = match (rewrite, matched) {
        (PathRewrite::ReplaceFull(full), _) => ("^[^?]*".to_owned(), full.clone()),
        (PathRewrite::ReplacePrefix(new), PathMatch::Prefix(old)) if old.is_empty() => {
            // The whole path stays behind the new prefix.
            ("^/?".to_owned(), format!("{new}/"))
        }
        (PathRewrite::ReplacePrefix(new), PathMatch::Prefix(old)) if new.is_empty() => {
            (format!("^{}/?", regex::quoted(old)), "/".to_owned())
        }
        _ => return None,
    };
    Some(RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher {
            regex: pattern,
            ..RegexMatcher::default()
        }),
        // A backslash would begin the number of a group.
        substitution: replacement.replace('\\', "\\\\"),
    })
}

fn redirect(to: &Redirect, matched: &PathMatch) -> route::Action {
    let path = to.path.as_ref().map(|path| match (path, matched) {
        (PathRewrite::ReplaceFull(full), _) => PathRewriteSpecifier::PathRedirect(full.clone()),
        (PathRewrite::ReplacePrefix(new), _) => match substitute(path, matched) {
            Some(regex) => PathRewriteSpecifier::RegexRewrite(regex),
            None => PathRewriteSpecifier::PrefixRewrite(new.clone()),
        },
    });
    let code = match to.status {
        301 => RedirectResponseCode::MovedPermanently,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    };
    let port = match (to.port, to.scheme.as_deref()) {
        (Some(port), _) => port.into(),
        (None, Some("https")) => 443,
        (None, Some(_)) => 80,
        (None, None) => 0,
    };
    let scheme = to.scheme.clone();
    route::Action::Redirect(RedirectAction {
        host_redirect: to.hostname.clone().unwrap_or_default(),
        port_redirect: port,
        response_code: code.into(),
        scheme_rewrite_specifier: scheme.map(SchemeRewriteSpecifier::SchemeRedirect),
        path_rewrite_specifier: path,
        ..RedirectAction::default()
    })
}
