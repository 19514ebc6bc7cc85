//! Invariants of routes.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use super::text::{is_canonical_path, is_field_value, is_token};
use super::{check_path_match, check_prefix, ensure};
use crate::{
    BackendTarget, Filters, HeaderEdits, Mesh, Outcome, PROXY_FIELDS, PathMatch, PathRewrite,
    Redirect, RouteAction, RouteMatch, RouteRule, ServiceName, is_dns_subdomain,
};

impl Mesh {
    /// Checks that the backends of an action exist.
    pub(super) fn check_backends(&self, action: &RouteAction) -> Result<(), String> {
        let Outcome::Forward(backends) = &action.outcome else {
            return Ok(());
        };
        for backend in backends {
            if let BackendTarget::Service { service, port } = &backend.target {
                let found = self
                    .service(service)
                    .and_then(|service| service.port(*port));
                ensure(found.is_some(), "a backend does not exist")?;
            }
        }
        Ok(())
    }
}

/// Checks rules. An action that several rules share is checked once for each kind of path, so that the time is
/// proportional to what is stored.
#[derive(Default)]
pub(super) struct Checked<'s> {
    /// Actions that hold their invariants, and whether with a prefix.
    actions: BTreeSet<(*const RouteAction, bool)>,
    rules: PhantomData<&'s RouteRule>,
}

impl<'s> Checked<'s> {
    pub(super) fn check(&mut self, rule: &'s RouteRule) -> Result<(), String> {
        ensure(ServiceName::parse(&rule.name).is_ok(), "a route's name")?;
        check_match(&rule.matcher)?;
        let path = &rule.matcher.path;
        let is_prefix = matches!(path, PathMatch::Prefix(_));
        if self.actions.insert((Arc::as_ptr(&rule.action), is_prefix)) {
            check_action(&rule.action, path)?;
        }
        Ok(())
    }
}

fn check_action(action: &RouteAction, matched: &PathMatch) -> Result<(), String> {
    check_filters(&action.filters, matched)?;
    if let (Some(request), Some(backend)) = (action.request_timeout_ms, action.backend_timeout_ms) {
        ensure(
            request == 0 || backend <= request,
            "an attempt may outlast its request",
        )?;
    }
    match &action.outcome {
        Outcome::Redirect(redirect) => {
            check_redirect(redirect, matched)?;
            ensure(
                action.filters.rewrite.is_none(),
                "a redirect that is rewritten",
            )
        }
        Outcome::Forward(backends) => {
            for backend in backends {
                ensure(
                    backend.weight <= 1_000_000,
                    "a backend's weight is too high",
                )?;
                check_filters(&backend.filters, matched)?;
            }
            Ok(())
        }
    }
}

fn check_redirect(redirect: &Redirect, matched: &PathMatch) -> Result<(), String> {
    let known = matches!(redirect.status, 301 | 302 | 303 | 307 | 308);
    ensure(known, "a redirect with another status")?;
    let scheme = redirect.scheme.as_deref();
    ensure(
        matches!(scheme, None | Some("http" | "https")),
        "a redirect to another scheme",
    )?;
    ensure(redirect.port != Some(0), "a redirect to port 0")?;
    check_host(redirect.hostname.as_deref())?;
    check_rewrite(redirect.path.as_ref(), matched)
}

fn check_host(host: Option<&str>) -> Result<(), String> {
    ensure(host.is_none_or(is_dns_subdomain), "a new host")
}

fn check_match(matcher: &RouteMatch) -> Result<(), String> {
    check_path_match(&matcher.path)?;
    let method = matcher.method.as_deref();
    ensure(method.is_none_or(is_token), "a method")?;
    for (name, value) in &matcher.headers {
        ensure(
            is_token(name) && *name == name.to_ascii_lowercase(),
            "a header's name",
        )?;
        ensure(is_field_value(value), "a header's value")?;
    }
    for pairs in [&matcher.headers, &matcher.query] {
        let names: BTreeSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        ensure(names.len() == pairs.len(), "two conditions on one name")?;
    }
    Ok(())
}

fn check_filters(filters: &Filters, matched: &PathMatch) -> Result<(), String> {
    check_edits(&filters.request)?;
    check_edits(&filters.response)?;
    let Some(rewrite) = &filters.rewrite else {
        return Ok(());
    };
    check_host(rewrite.hostname.as_deref())?;
    check_rewrite(rewrite.path.as_ref(), matched)
}

fn check_rewrite(path: Option<&PathRewrite>, matched: &PathMatch) -> Result<(), String> {
    match path {
        None => Ok(()),
        Some(PathRewrite::ReplaceFull(full)) => ensure(is_canonical_path(full), "a new path"),
        Some(PathRewrite::ReplacePrefix(prefix)) => {
            check_prefix(prefix)?;
            ensure(
                matches!(matched, PathMatch::Prefix(_)),
                "a prefix replaced that none matched",
            )
        }
    }
}

fn check_edits(edits: &HeaderEdits) -> Result<(), String> {
    let written = edits.set.iter().chain(&edits.add);
    ensure(
        written.clone().all(|(_, value)| is_field_value(value)),
        "a header's value",
    )?;
    let names: Vec<&str> = written
        .map(|(name, _)| name.as_str())
        .chain(edits.remove.iter().map(String::as_str))
        .collect();
    ensure(names.iter().all(|name| is_token(name)), "a header's name")?;
    let framing = [
        "connection",
        "content-length",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let frames = |name: &&str| framing.iter().any(|own| own.eq_ignore_ascii_case(name));
    ensure(
        !names.iter().any(frames),
        "a header that frames the message is edited",
    )?;
    let is_proxies = |name: &&str| {
        PROXY_FIELDS
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name))
    };
    ensure(
        !names.iter().any(is_proxies),
        "a header that proxies write for each other is edited",
    )
}
