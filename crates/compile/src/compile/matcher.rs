//! Matches: the conditions of a rule.

use heddle_model::{PathMatch, RouteMatch};

use super::{Scope, did_you_mean};
use crate::check::{self, Flaw};
use crate::manifest::gateway::{HttpPathMatch, HttpRouteMatch, ValueMatch};
use crate::manifest::node::FieldPath;

/// Limits of the Gateway API: header and query conditions of one match, and their values' bytes.
const MAX_CONDITIONS: usize = 16;
const MAX_HEADER_VALUE: usize = 4096;
const MAX_QUERY_VALUE: usize = 1024;

/// Methods that a match may name (Gateway API `HTTPMethod`), without CONNECT.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH",
];

/// The match of a rule without one: every request.
pub(super) fn everything() -> RouteMatch {
    RouteMatch {
        path: PathMatch::Prefix(String::new()),
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    }
}

/// Compiles a match. A faulty condition is reported and left out.
pub(super) fn compile(
    written: &HttpRouteMatch,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> RouteMatch {
    let headers = headers(&written.headers, &at.field("headers"), scope);
    let query = values(
        &written.query_params,
        &at.field("queryParams"),
        MAX_QUERY_VALUE,
        false,
        scope,
    );
    RouteMatch {
        path: path(written.path.as_ref(), &at.field("path"), scope),
        method: written
            .method
            .as_deref()
            .and_then(|m| method(m, &at.field("method"), scope)),
        headers,
        query,
    }
}

/// Compiles the conditions on headers, of which each name may occur once.
pub(super) fn headers(
    written: &[ValueMatch],
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> Vec<(String, String)> {
    values(written, at, MAX_HEADER_VALUE, true, scope)
}

/// Compiles the condition on the path. A faulty one is reported, and replaced by one that matches every path.
pub(super) fn path(
    written: Option<&HttpPathMatch>,
    at: &FieldPath,
    scope: &mut Scope<'_>,
) -> PathMatch {
    let everything = PathMatch::Prefix(String::new());
    let Some(written) = written else {
        return everything;
    };
    let value = written.value.as_deref().unwrap_or("/");
    let value_at = at.field("value");
    let kind = written.kind.as_deref().unwrap_or("PathPrefix");
    let compiled = match kind {
        "PathPrefix" => scope
            .check(&value_at, check::path_prefix(value))
            .map(PathMatch::Prefix),
        "Exact" => scope
            .check(&value_at, check::exact_path(value))
            .map(PathMatch::Exact),
        "RegularExpression" => {
            refuse_pattern(at, "use Exact or PathPrefix", scope);
            None
        }
        other => {
            unknown_type(other, &["Exact", "PathPrefix"], at, scope);
            None
        }
    };
    compiled.unwrap_or(everything)
}

fn refuse_pattern(at: &FieldPath, remedy: &str, scope: &mut Scope<'_>) {
    scope.error(
        &at.field("type"),
        "regular expressions are not supported",
        remedy,
    );
}

fn unknown_type(kind: &str, known: &[&str], at: &FieldPath, scope: &mut Scope<'_>) {
    let remedy = did_you_mean(
        kind,
        known.iter().copied(),
        &format!("use {}", known.join(" or ")),
    );
    scope.error(
        &at.field("type"),
        format!("{kind:?} is no type of match"),
        remedy,
    );
}

/// A method of the supported set; upper and lower case differ.
pub(super) fn method(method: &str, at: &FieldPath, scope: &mut Scope<'_>) -> Option<String> {
    if METHODS.contains(&method) {
        return Some(method.to_owned());
    }
    if method == "CONNECT" {
        scope.error(at, "CONNECT is refused before routing", "remove this match");
    } else {
        let remedy = did_you_mean(
            method,
            METHODS,
            &format!("use one of {}", METHODS.join(", ")),
        );
        scope.error(
            at,
            format!("{method:?} is no method that a route can match"),
            remedy,
        );
    }
    None
}

fn values(
    written: &[ValueMatch],
    at: &FieldPath,
    longest: usize,
    is_header: bool,
    scope: &mut Scope<'_>,
) -> Vec<(String, String)> {
    let written = scope.at_most(at, written, MAX_CONDITIONS);
    let mut conditions: Vec<(String, String)> = Vec::new();
    for (position, condition) in written.iter().enumerate() {
        let at = at.index(position);
        match condition.kind.as_deref() {
            None | Some("Exact") => {}
            Some("RegularExpression") => refuse_pattern(&at, "use Exact", scope),
            Some(other) => unknown_type(other, &["Exact"], &at, scope),
        }
        let name = match is_header {
            true => condition.name.to_ascii_lowercase(),
            false => condition.name.clone(),
        };
        let of = if is_header {
            "header"
        } else {
            "query parameter"
        };
        scope.check(&at.field("name"), check::match_name(&name, of));
        scope.check(
            &at.field("value"),
            value(&condition.value, longest, is_header),
        );
        if conditions.iter().any(|(known, _)| *known == name) {
            scope.warn(
                &at.field("name"),
                format!("{name:?} is already matched: only its first condition counts"),
                "remove this one",
            );
            continue;
        }
        conditions.push((name, condition.value.clone()));
    }
    conditions
}

/// Checks a value to compare with. A header's is limited to valid header characters; a query parameter's may be any
/// text, since escapes can encode any.
fn value(value: &str, longest: usize, is_header: bool) -> Result<(), Flaw> {
    if is_header || value.is_empty() || value.len() > longest {
        return check::match_value(value, longest);
    }
    Ok(())
}
