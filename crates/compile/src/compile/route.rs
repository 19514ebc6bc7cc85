//! Compiles HTTPRoutes into rules (Gateway API v1, with a Service as parent).

use std::sync::Arc;

use heddle_model::{Filters, Outcome, PathMatch, RouteAction, RouteMatch, Service};

use super::context::RouteContext;
use super::index::Index;
use super::parent::Attachment;
use super::{Scope, backend, filter, matcher, parent};
use crate::check;
use crate::findings::Findings;
use crate::manifest::Object;
use crate::manifest::closed::ClosedRoute;
use crate::manifest::gateway::{
    HttpRoute, HttpRouteMatch, HttpRouteRule, HttpRouteTimeouts, ParentReference,
};
use crate::manifest::node::FieldPath;

/// Limits of the Gateway API, by list.
const MAX_RULES: usize = 16;
const MAX_MATCHES: usize = 64;
const MAX_MATCHES_OF_ROUTE: usize = 128;
const MAX_HOSTNAMES: usize = 16;

/// A compiled route: its rules, and the ports to which it is attached.
#[derive(Debug)]
pub(super) struct Route {
    /// `namespace/name`.
    pub(super) name: Arc<str>,
    /// Creation time in seconds since 1970; a route without one counts as the newest.
    pub(super) created: Option<i64>,
    pub(super) rules: Vec<Rule>,
    pub(super) attachments: Vec<Attachment>,
}

/// A rule: its action applies to requests that meet any of its matches.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) matches: Vec<RouteMatch>,
    pub(super) action: Arc<RouteAction>,
}

/// Compiles every HTTPRoute.
pub(super) fn compile(
    index: &Index<'_>,
    services: &[Service],
    findings: &mut Findings,
) -> Vec<Route> {
    let mut routes = Vec::new();
    for (object, body) in &index.routes {
        let mut scope = Scope::of(object, findings);
        routes.push(route(index, services, object, body, &mut scope));
    }
    for (object, body) in &index.closed_routes {
        routes.push(closed(index, services, object, body));
    }
    routes
}

/// A route whose rules are not known: whatever its parents receive, and no other route takes, is answered 500. Its own
/// matches take what they took. What cannot be read of it is left out without a word, which its errors say already.
fn closed(index: &Index<'_>, services: &[Service], object: &Object, body: &ClosedRoute) -> Route {
    let context = RouteContext {
        index,
        services,
        object,
        parent_namespaces: Vec::new(),
    };
    let action = RouteAction {
        filters: Filters::default(),
        outcome: Outcome::Forward(Vec::new()),
        request_timeout_ms: None,
        backend_timeout_ms: None,
    };
    let of_match = |written: &HttpRouteMatch| {
        let mut findings = Findings::default();
        let at = FieldPath::default();
        let compiled = matcher::compile(written, &at, &mut Scope::of(object, &mut findings));
        (!findings.report.has_errors()).then_some(compiled)
    };
    let matches = body.matches.iter().take(MAX_MATCHES_OF_ROUTE);
    let matches = matches.filter_map(of_match);
    let mut attachments = Vec::new();
    for parent in &body.parents {
        let mut ignored = Findings::default();
        let mut scope = Scope::of(object, &mut ignored);
        let exact = parent.reference.as_slice();
        let mut attached = parent::attachments(&context, exact, &mut scope);
        if attached.is_empty() {
            // A port that cannot be found may be any.
            let all = ParentReference {
                group: Some(String::new()),
                kind: Some("Service".to_owned()),
                namespace: parent.namespace.clone(),
                name: parent.name.clone(),
                section_name: None,
                port: None,
            };
            attached = parent::attachments(&context, &[all], &mut scope);
        }
        for attachment in attached {
            if !attachments.contains(&attachment) {
                attachments.push(attachment);
            }
        }
    }
    Route {
        name: format!("{}/{}", object.namespace, object.name).into(),
        created: None,
        rules: vec![Rule {
            matches: matches.chain([matcher::everything()]).collect(),
            action: Arc::new(action),
        }],
        attachments,
    }
}

fn route(
    index: &Index<'_>,
    services: &[Service],
    object: &Object,
    body: &HttpRoute,
    scope: &mut Scope<'_>,
) -> Route {
    let name: Arc<str> = format!("{}/{}", object.namespace, object.name).into();
    if parent::is_for_gateways(&body.spec.parent_refs) {
        let path = FieldPath::of("spec.parentRefs");
        let reason = "this route is attached to Gateways only: it has no effect here";
        scope.warn(
            &path,
            reason,
            "add a parent {group: \"\", kind: Service, name: …}",
        );
        return Route {
            name,
            created: None,
            rules: Vec::new(),
            attachments: Vec::new(),
        };
    }
    let mut context = RouteContext {
        index,
        services,
        object,
        parent_namespaces: Vec::new(),
    };
    let attachments = parent::attachments(&context, &body.spec.parent_refs, scope);
    context.parent_namespaces = attachments
        .iter()
        .map(|attachment| attachment.service.namespace.clone())
        .collect();
    check_hostnames(&body.spec.hostnames, scope);
    let created = object
        .metadata
        .creation_timestamp
        .as_deref()
        .and_then(|text| {
            scope.check(
                &FieldPath::of("metadata.creationTimestamp"),
                check::timestamp(text),
            )
        });
    Route {
        name,
        created,
        rules: rules(&context, body, scope),
        attachments,
    }
}

fn check_hostnames(hostnames: &[String], scope: &mut Scope<'_>) {
    let path = FieldPath::of("spec.hostnames");
    let hostnames = scope.at_most(&path, hostnames, MAX_HOSTNAMES);
    if !hostnames.is_empty() {
        scope.warn(
            &path,
            "hostnames have no effect on a route whose parent is a Service (GEP-1294)",
            "match the Host header instead, or remove them",
        );
    }
}

fn rules(context: &RouteContext<'_>, body: &HttpRoute, scope: &mut Scope<'_>) -> Vec<Rule> {
    let at = FieldPath::of("spec.rules");
    let default = [HttpRouteRule::default()];
    let written = body.spec.rules.as_deref().unwrap_or(&default);
    let written = scope.at_most(&at, written, MAX_RULES);
    if written.is_empty() {
        scope.error(&at, "there is no rule", "add a rule, or leave rules out");
    }
    let total: usize = written.iter().map(|rule| rule.matches.len()).sum();
    if total > MAX_MATCHES_OF_ROUTE {
        let remedy = format!("the API takes {MAX_MATCHES_OF_ROUTE}");
        scope.error(&at, format!("there are {total} matches in all"), remedy);
    }
    let mut names: Vec<&str> = Vec::new();
    let mut rules = Vec::new();
    for (position, rule) in written.iter().enumerate() {
        let at = at.index(position);
        if let Some(name) = rule.name.as_deref() {
            if names.contains(&name) {
                scope.error(
                    &at.field("name"),
                    format!("{name:?} is written twice"),
                    "rename one",
                );
            }
            names.push(name);
        }
        for (field, there) in [
            ("retry", rule.retry.is_some()),
            ("sessionPersistence", rule.session_persistence.is_some()),
        ] {
            if there {
                scope.error(
                    &at.field(field),
                    format!("{field} is not built yet"),
                    "remove it",
                );
            }
        }
        rules.push(compile_rule(context, rule, &at, scope));
    }
    rules
}

fn compile_rule(
    context: &RouteContext<'_>,
    rule: &HttpRouteRule,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Rule {
    let matches = matches(rule, at, scope);
    let prefix_only = matches!(&*matches, [one] if matches!(one.path, PathMatch::Prefix(_)));
    let filters = filter::of_rule(&rule.filters, prefix_only, &at.field("filters"), scope);
    let backends = backend::compile(context, &rule.backend_refs, at, scope);
    let outcome = match filters.redirect {
        Some(redirect) => {
            if !rule.backend_refs.is_empty() {
                scope.error(
                    &at.field("backendRefs"),
                    "a rule that redirects has no backends",
                    "remove the backends, or the RequestRedirect filter",
                );
            }
            Outcome::Redirect(redirect)
        }
        None => {
            if backends.iter().all(|backend| backend.weight == 0) {
                let reason = match backends.is_empty() {
                    true => "this rule has no backend: its requests are answered 500",
                    false => "every weight is 0: the rule's requests are answered 500",
                };
                scope.warn(
                    &at.field("backendRefs"),
                    reason,
                    "add a backend with a weight",
                );
            }
            Outcome::Forward(backends)
        }
    };
    let (request_timeout_ms, backend_timeout_ms) =
        timeouts(rule.timeouts.as_ref(), &at.field("timeouts"), scope);
    let action = RouteAction {
        filters: filters.filters,
        outcome,
        request_timeout_ms,
        backend_timeout_ms,
    };
    Rule {
        matches,
        action: Arc::new(action),
    }
}

fn matches(rule: &HttpRouteRule, at: &FieldPath, scope: &mut Scope<'_>) -> Vec<RouteMatch> {
    let at = at.field("matches");
    let written = scope.at_most(&at, &rule.matches, MAX_MATCHES);
    if written.is_empty() {
        return vec![matcher::everything()];
    }
    written
        .iter()
        .enumerate()
        .map(|(position, written)| matcher::compile(written, &at.index(position), scope))
        .collect()
}

fn timeouts(
    written: Option<&HttpRouteTimeouts>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> (Option<u64>, Option<u64>) {
    let Some(written) = written else {
        return (None, None);
    };
    let mut read = |field: &str, text: Option<&str>| {
        text.and_then(|text| scope.check(&at.field(field), check::duration_ms(text)))
    };
    let request = read("request", written.request.as_deref());
    let backend = read("backendRequest", written.backend_request.as_deref());
    if let (Some(request), Some(backend)) = (request, backend)
        && request != 0
        && backend > request
    {
        scope.error(
            &at.field("backendRequest"),
            "one attempt may not take longer than the whole request",
            "make it at most timeouts.request",
        );
    }
    (request, backend)
}
