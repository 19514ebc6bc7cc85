//! Filters: changes to requests and responses.

use heddle_model::{Filters, HeaderEdits, PathRewrite, Redirect, Rewrite};

use super::{Scope, did_you_mean};
use crate::check::{self, Direction};
use crate::manifest::gateway::{
    HttpHeader, HttpHeaderFilter, HttpPathModifier, HttpRequestRedirect, HttpRouteFilter,
    HttpUrlRewrite,
};
use crate::manifest::node::FieldPath;

/// Limits of the Gateway API: filters of one list, and headers of one action.
const MAX_FILTERS: usize = 16;
const MAX_EDITS: usize = 16;

/// Supported filter types, as the API spells them.
const REQUEST_HEADERS: &str = "RequestHeaderModifier";
const RESPONSE_HEADERS: &str = "ResponseHeaderModifier";
const REDIRECT: &str = "RequestRedirect";
const REWRITE: &str = "URLRewrite";
const SUPPORTED: [&str; 4] = [REQUEST_HEADERS, RESPONSE_HEADERS, REDIRECT, REWRITE];

/// The result of compiling a list of filters.
#[derive(Default)]
pub(super) struct Compiled {
    pub(super) filters: Filters,
    pub(super) redirect: Option<Redirect>,
}

/// Compiles the filters of a rule; `prefix_only` if its single match is by prefix.
pub(super) fn of_rule(
    written: &[HttpRouteFilter],
    prefix_only: bool,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Compiled {
    let written = scope.at_most(at, written, MAX_FILTERS);
    let mut compiled = Compiled::default();
    let mut seen: Vec<&str> = Vec::new();
    for (position, filter) in written.iter().enumerate() {
        let at = at.index(position);
        check_union(filter, &at, scope);
        let kind = filter.kind.as_str();
        if SUPPORTED.contains(&kind) && seen.contains(&kind) {
            let reason = format!("a second {kind} filter in one list");
            scope.error(&at.field("type"), reason, "merge the two");
            continue;
        }
        let conflict = match kind {
            REDIRECT => seen.contains(&REWRITE),
            REWRITE => seen.contains(&REDIRECT),
            _ => false,
        };
        if conflict {
            let reason = "a request is either redirected or rewritten";
            scope.error(&at.field("type"), reason, "remove one of the two filters");
        }
        seen.push(kind);
        match kind {
            REQUEST_HEADERS => {
                let at = at.field("requestHeaderModifier");
                compiled.filters.request = edits(
                    filter.request_header_modifier.as_ref(),
                    Direction::Request,
                    &at,
                    scope,
                );
            }
            RESPONSE_HEADERS => {
                let at = at.field("responseHeaderModifier");
                compiled.filters.response = edits(
                    filter.response_header_modifier.as_ref(),
                    Direction::Response,
                    &at,
                    scope,
                );
            }
            REDIRECT => {
                let at = at.field("requestRedirect");
                compiled.redirect = filter
                    .request_redirect
                    .as_ref()
                    .map(|r| redirect(r, prefix_only, &at, scope));
            }
            REWRITE => {
                let at = at.field("urlRewrite");
                compiled.filters.rewrite = filter
                    .url_rewrite
                    .as_ref()
                    .map(|r| rewrite(r, prefix_only, &at, scope));
            }
            other => refuse(other, &at.field("type"), scope),
        }
    }
    compiled
}

/// Compiles the filters of one backend, which may only edit headers.
pub(super) fn of_backend(
    written: &[HttpRouteFilter],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Filters {
    for (position, filter) in written.iter().enumerate() {
        if matches!(filter.kind.as_str(), REDIRECT | REWRITE) {
            scope.error(
                &at.index(position).field("type"),
                format!("{} is not built for single backends", filter.kind),
                "put it in the rule's own filters",
            );
        }
    }
    of_rule(written, true, at, scope).filters
}

fn refuse(kind: &str, at: &FieldPath, scope: &mut Scope<'_>) {
    let (reason, remedy) = match kind {
        "RequestMirror" | "CORS" | "ExternalAuth" => (
            format!("the filter {kind} is not built yet"),
            "remove it".to_owned(),
        ),
        "ExtensionRef" => (
            "there are no filters of other groups".to_owned(),
            format!("use one of {}", SUPPORTED.join(", ")),
        ),
        other => (
            format!("{other:?} is no type of filter"),
            did_you_mean(
                other,
                SUPPORTED,
                &format!("use one of {}", SUPPORTED.join(", ")),
            ),
        ),
    };
    scope.error(at, reason, remedy);
}

/// `type` names the one other field that must be present, without any other.
fn check_union(filter: &HttpRouteFilter, at: &FieldPath, scope: &mut Scope<'_>) {
    let members = [
        (
            REQUEST_HEADERS,
            "requestHeaderModifier",
            filter.request_header_modifier.is_some(),
        ),
        (
            RESPONSE_HEADERS,
            "responseHeaderModifier",
            filter.response_header_modifier.is_some(),
        ),
        (
            REDIRECT,
            "requestRedirect",
            filter.request_redirect.is_some(),
        ),
        (REWRITE, "urlRewrite", filter.url_rewrite.is_some()),
        (
            "RequestMirror",
            "requestMirror",
            filter.request_mirror.is_some(),
        ),
        ("CORS", "cors", filter.cors.is_some()),
        (
            "ExternalAuth",
            "externalAuth",
            filter.external_auth.is_some(),
        ),
        (
            "ExtensionRef",
            "extensionRef",
            filter.extension_ref.is_some(),
        ),
    ];
    for (kind, field, there) in members {
        if kind == filter.kind && !there {
            let reason = format!("a filter of type {kind} needs this field");
            scope.error(&at.field(field), reason, format!("add {field}"));
        }
        if kind != filter.kind && there {
            let reason = format!("a filter of type {} does not have this field", filter.kind);
            scope.error(
                &at.field(field),
                reason,
                format!("remove it, or make the type {kind}"),
            );
        }
    }
}

fn edits(
    written: Option<&HttpHeaderFilter>,
    direction: Direction,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> HeaderEdits {
    let Some(written) = written else {
        return HeaderEdits::default();
    };
    let mut seen: Vec<String> = Vec::new();
    let set = headers(&written.set, direction, &at.field("set"), &mut seen, scope);
    let add = headers(&written.add, direction, &at.field("add"), &mut seen, scope);
    let at = at.field("remove");
    let remove = scope.at_most(&at, &written.remove, MAX_EDITS);
    for (position, name) in remove.iter().enumerate() {
        check_name(name, direction, &at.index(position), &mut seen, scope);
    }
    HeaderEdits {
        set,
        add,
        remove: remove.to_vec(),
    }
}

fn headers(
    written: &[HttpHeader],
    direction: Direction,
    at: &FieldPath,
    seen: &mut Vec<String>,
    scope: &mut Scope<'_>,
) -> Vec<(String, String)> {
    let written = scope.at_most(at, written, MAX_EDITS);
    for (position, header) in written.iter().enumerate() {
        let at = at.index(position);
        check_name(&header.name, direction, &at.field("name"), seen, scope);
        scope.check(&at.field("value"), check::edit_value(&header.value));
    }
    written
        .iter()
        .map(|header| (header.name.clone(), header.value.clone()))
        .collect()
}

/// A filter may change each header only once.
fn check_name(
    name: &str,
    direction: Direction,
    at: &FieldPath,
    seen: &mut Vec<String>,
    scope: &mut Scope<'_>,
) {
    scope.check(at, check::edit_name(name, direction));
    let lower = name.to_ascii_lowercase();
    if seen.contains(&lower) {
        let reason = format!("{name} is edited twice in one filter");
        scope.error(
            at,
            reason,
            "keep one; several values go into one, joined by commas",
        );
    }
    seen.push(lower);
}

fn rewrite(
    written: &HttpUrlRewrite,
    prefix_only: bool,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Rewrite {
    Rewrite {
        hostname: hostname(written.hostname.as_deref(), at, scope),
        path: path(written.path.as_ref(), prefix_only, &at.field("path"), scope),
    }
}

fn redirect(
    written: &HttpRequestRedirect,
    prefix_only: bool,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Redirect {
    if let Some(scheme) = written.scheme.as_deref()
        && !matches!(scheme, "http" | "https")
    {
        let remedy = did_you_mean(scheme, ["http", "https"], "use http or https");
        scope.error(
            &at.field("scheme"),
            format!("{scheme:?} is no scheme"),
            remedy,
        );
    }
    let status = match written.status_code.unwrap_or(302) {
        301 => 301,
        302 => 302,
        303 => 303,
        307 => 307,
        308 => 308,
        other => {
            let remedy = "use 301, 302, 303, 307 or 308";
            scope.error(
                &at.field("statusCode"),
                format!("{other} is no redirect"),
                remedy,
            );
            302
        }
    };
    Redirect {
        scheme: written.scheme.clone(),
        hostname: hostname(written.hostname.as_deref(), at, scope),
        path: path(written.path.as_ref(), prefix_only, &at.field("path"), scope),
        port: written
            .port
            .and_then(|port| scope.check(&at.field("port"), check::port(port))),
        status,
    }
}

fn hostname(written: Option<&str>, at: &FieldPath, scope: &mut Scope<'_>) -> Option<String> {
    written.and_then(|name| scope.check(&at.field("hostname"), check::hostname(name)))
}

fn path(
    written: Option<&HttpPathModifier>,
    prefix_only: bool,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Option<PathRewrite> {
    let written = written?;
    let full = ("replaceFullPath", written.replace_full_path.as_deref());
    let prefix = (
        "replacePrefixMatch",
        written.replace_prefix_match.as_deref(),
    );
    let ((field, value), (other, unwanted)) = match written.kind.as_str() {
        "ReplaceFullPath" => (full, prefix),
        "ReplacePrefixMatch" => (prefix, full),
        kind => {
            let known = ["ReplaceFullPath", "ReplacePrefixMatch"];
            let remedy = did_you_mean(kind, known, "use ReplaceFullPath or ReplacePrefixMatch");
            scope.error(
                &at.field("type"),
                format!("{kind:?} is no way to replace a path"),
                remedy,
            );
            return None;
        }
    };
    if unwanted.is_some() {
        let reason = format!("{} does not have this field", written.kind);
        scope.error(&at.field(other), reason, "remove it, or change the type");
    }
    let Some(value) = value else {
        let reason = format!("{} needs this field", written.kind);
        scope.error(&at.field(field), reason, format!("add {field}"));
        return None;
    };
    let at = at.field(field);
    if written.kind == "ReplaceFullPath" {
        return scope
            .check(&at, check::full_path(value))
            .map(PathRewrite::ReplaceFull);
    }
    if !prefix_only {
        scope.error(
            &at,
            "only a rule with exactly one match, of type PathPrefix, has a prefix to replace",
            "split the rule, or use ReplaceFullPath",
        );
    }
    scope
        .check(&at, check::replacement_prefix(value))
        .map(PathRewrite::ReplacePrefix)
}
