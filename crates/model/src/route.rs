//! Routes: the destination of requests, and changes to them.
//!
//! A Gateway API HTTPRoute rule with several matches becomes one [`RouteRule`] per match, which share one
//! [`RouteAction`]. The rules of all routes attached to a port are merged into one list in the specification's order of
//! precedence, so that the first match wins.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ServiceName;

#[cfg(test)]
mod tests;

/// One match of one rule of a route, and the action for matching requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRule {
    /// The route's `namespace/name`, which is the label in metrics and logs.
    pub name: Arc<str>,
    /// Index of the rule in its route, from 0.
    pub rule: u32,
    /// The conditions of this match.
    pub matcher: RouteMatch,
    /// The action, shared by the matches of one rule: [`Arc::ptr_eq`] tells whether two matches are of one rule.
    pub action: Arc<RouteAction>,
}

/// Conditions on a request, which must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteMatch {
    /// Condition on the canonical path, without the query.
    pub path: PathMatch,
    /// The method, compared with case; `None` for any.
    pub method: Option<String>,
    /// Header names (lower case, each once) with the required exact values.
    pub headers: Vec<(String, String)>,
    /// Query parameters (each name once) with the required exact values. If a request has several of one name, the
    /// first counts.
    pub query: Vec<(String, String)>,
}

/// A condition on the canonical path of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMatch {
    /// The whole path, compared with case.
    Exact(String),
    /// A prefix of whole path elements, without a trailing slash: `/a` matches `/a`, `/a/` and
    /// `/a/b`, not `/ab`. The empty prefix matches everything.
    Prefix(String),
}

impl PathMatch {
    /// Whether `path` (canonical, without the query) meets the condition.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/')),
        }
    }
}

/// The treatment of a matching request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteAction {
    /// Changes that apply to every backend.
    pub filters: Filters,
    /// Forwarding or redirect.
    pub outcome: Outcome,
    /// Timeout from the end of the request's head to the end of its response, retries included, in ms. `None`: the
    /// proxy's default; `Some(0)`: no timeout.
    pub request_timeout_ms: Option<u64>,
    /// Timeout of one attempt at a backend, likewise in ms; at most `request_timeout_ms`.
    pub backend_timeout_ms: Option<u64>,
}

/// Whether a matching request is forwarded or redirected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// One of these backends, chosen by weight. No backend, or only weights of 0: 500.
    Forward(Vec<Backend>),
    /// A redirect as the answer to the client.
    Redirect(Redirect),
}

/// One backend of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// The backend's share is its weight divided by the sum of weights; 0 gets nothing. At most 1,000,000.
    pub weight: u32,
    /// The Service, or why there is none.
    pub target: BackendTarget,
    /// Changes for this backend only, made after those of the rule.
    pub filters: Filters,
}

/// The Service of a backend, if resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendTarget {
    /// An existing port of a Service; without endpoints the answer is 503. The routes of that Service do not apply: a
    /// route leads to endpoints.
    Service { service: ServiceName, port: u16 },
    /// An unresolved or forbidden reference: its share of requests is answered 500, as the Gateway API requires.
    Unresolved {
        /// Why, for the log.
        reason: String,
    },
}

/// Changes to a request and its response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// Changes to the request's headers.
    pub request: HeaderEdits,
    /// Changes to the response's headers.
    pub response: HeaderEdits,
    /// A change of the request's target.
    pub rewrite: Option<Rewrite>,
}

impl Filters {
    /// Whether the filters change nothing.
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty() && self.rewrite.is_none()
    }
}

/// Changes to headers. Names are field-name tokens (RFC 9110 section 5.1), but never a framing header, a hop-by-hop
/// header or the host; a name occurs once within each list; values have no control characters, and no white space at
/// their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderEdits {
    /// Replaces every field line of that name.
    pub set: Vec<(String, String)>,
    /// Adds a field line, and keeps existing ones.
    pub add: Vec<(String, String)>,
    /// Removes every field line of that name, compared without case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// Whether the edits change nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

/// A change of a request's target before it is forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// Replaces the Host field.
    pub hostname: Option<String>,
    /// Replaces all or part of the path; the query stays.
    pub path: Option<PathRewrite>,
}

/// The replacement of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathRewrite {
    /// Replaces the whole path by this one, which starts with a slash.
    ReplaceFull(String),
    /// Replaces the matched prefix by this one, which is empty or starts with a slash, and does not end with one. Only
    /// on a rule whose matches are all [`PathMatch::Prefix`].
    ReplacePrefix(String),
}

impl PathRewrite {
    /// Writes the replacement of `path`, which `matched` has matched.
    ///
    /// The result always starts with a slash: `/foo` with its prefix `/foo` replaced by nothing becomes `/`.
    pub fn write_to(&self, matched: &PathMatch, path: &[u8], out: &mut Vec<u8>) {
        match (self, matched) {
            (Self::ReplaceFull(full), _) => out.extend_from_slice(full.as_bytes()),
            (Self::ReplacePrefix(new), PathMatch::Prefix(old)) => {
                let rest = path.strip_prefix(old.as_bytes()).unwrap_or(path);
                out.extend_from_slice(new.as_bytes());
                out.extend_from_slice(rest);
                if new.is_empty() && rest.is_empty() {
                    out.push(b'/');
                }
            }
            (Self::ReplacePrefix(_), PathMatch::Exact(_)) => out.extend_from_slice(path),
        }
    }
}

/// A redirect (RFC 9110 section 15.4). Parts that are `None` are taken from the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// The host of the Location header.
    pub hostname: Option<String>,
    /// The path of the Location header; the query stays.
    pub path: Option<PathRewrite>,
    /// The port of the Location header. `None`: the scheme's port if a scheme is set, or else the listener's.
    pub port: Option<u16>,
    /// The status code: 301, 302, 303, 307 or 308.
    pub status: u16,
}
