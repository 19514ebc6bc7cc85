//! Builders for rules of routes.

use std::sync::Arc;

use heddle_model::{
    Backend, BackendTarget, Filters, Outcome, PathMatch, RouteAction, RouteMatch, RouteRule,
    ServiceName,
};

pub(crate) fn to(service: &str, weight: u32) -> Backend {
    Backend {
        weight,
        target: BackendTarget::Service {
            service: ServiceName::parse(service).unwrap(),
            port: 80,
        },
        filters: Filters::default(),
    }
}

pub(crate) fn rule(path: PathMatch, outcome: Outcome, filters: Filters) -> RouteRule {
    RouteRule {
        name: "test/route".into(),
        rule: 0,
        matcher: RouteMatch {
            path,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters,
            outcome,
            request_timeout_ms: None,
            backend_timeout_ms: None,
        }),
    }
}

/// A rule for paths with this prefix, without filters.
pub(crate) fn plain(path: &str, outcome: Outcome) -> RouteRule {
    rule(prefix(path), outcome, Filters::default())
}

/// A rule that forwards paths with this prefix to the echo Service, with these filters.
pub(crate) fn to_echo(path: &str, filters: Filters) -> RouteRule {
    rule(prefix(path), forward(vec![to("test/echo", 1)]), filters)
}

pub(crate) fn prefix(prefix: &str) -> PathMatch {
    PathMatch::Prefix(prefix.into())
}

pub(crate) fn forward(backends: Vec<Backend>) -> Outcome {
    Outcome::Forward(backends)
}
