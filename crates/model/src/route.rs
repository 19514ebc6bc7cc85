//! Routes: which requests go where, and what is changed on the way.
//!
//! A Gateway API HTTPRoute rule with several matches becomes one [`RouteRule`] per match, all
//! sharing one [`RouteAction`]; the rules of all routes attached to a port are merged into one list
//! in the specification's order of precedence, so that the first that matches is the one that wins.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ServiceName;

#[cfg(test)]
mod tests;

/// One match of one rule of a route, and what to do with a request that it matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRule {
    /// The route it comes from, `namespace/name`: the label in metrics and logs.
    pub name: Arc<str>,
    /// Which of the route's rules, from 0.
    pub rule: u32,
    /// What it matches.
    pub matcher: RouteMatch,
    /// What is done, shared by the matches of one rule: [`Arc::ptr_eq`] says whether two are one.
    pub action: Arc<RouteAction>,
}

/// Conditions on a request, all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteMatch {
    /// On the canonical path, without the query.
    pub path: PathMatch,
    /// On the method, compared by case; `None` takes any.
    pub method: Option<String>,
    /// Header names (lower case, each once) and the exact value that each must have.
    pub headers: Vec<(String, String)>,
    /// Query parameters (each name once) and the exact value that each must have. The first
    /// parameter of that name in the request counts.
    pub query: Vec<(String, String)>,
}

/// A condition on the canonical path of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMatch {
    /// The whole path, by case.
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

/// What happens to a matched request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteAction {
    /// Changes for every backend.
    pub filters: Filters,
    /// Where it goes.
    pub outcome: Outcome,
    /// From the end of the request's head to the end of its response, retries included, in ms.
    /// `None`: the proxy's own default; `Some(0)`: no limit.
    pub request_timeout_ms: Option<u64>,
    /// The same for one attempt at a backend, in ms; never above `request_timeout_ms`.
    pub backend_timeout_ms: Option<u64>,
}

/// Where a matched request goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// To one of these, by weight. No backend, or weights of 0 only: 500.
    Forward(Vec<Backend>),
    /// Back to the client.
    Redirect(Redirect),
}

/// One backend of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its share is its weight by the sum of all; 0 gets nothing. At most 1,000,000.
    pub weight: u32,
    /// Who it is.
    pub target: BackendTarget,
    /// Changes for this backend only, made after those of the rule.
    pub filters: Filters,
}

/// Who a backend is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendTarget {
    /// A Service's port that exists; it may have no endpoint, which is a 503. Its own routes are
    /// not consulted: a route leads to endpoints.
    Service {
        /// The Service.
        service: ServiceName,
        /// Its port.
        port: u16,
    },
    /// A reference that leads nowhere or is not permitted: its share of requests is answered 500,
    /// as the Gateway API asks.
    Unresolved {
        /// Why, for the log.
        reason: String,
    },
}

/// Changes to a request and its response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// Changes to the request's header.
    pub request: HeaderEdits,
    /// Changes to the response's header.
    pub response: HeaderEdits,
    /// A change of the request's target.
    pub rewrite: Option<Rewrite>,
}

impl Filters {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty() && self.rewrite.is_none()
    }
}

/// Changes to a header section. Names are field-name tokens (RFC 9110 section 5.1), never those of
/// framing, of the connection, or of the host; a name occurs once within each list; values hold no
/// control character and no white space at their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderEdits {
    /// Replaces every line of that name.
    pub set: Vec<(String, String)>,
    /// Adds a line, keeping those there are.
    pub add: Vec<(String, String)>,
    /// Removes every line of that name, compared without case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// Whether nothing is changed.
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

/// How a path is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathRewrite {
    /// By this path, which starts with a slash.
    ReplaceFull(String),
    /// The matched prefix by this one, which is empty or starts with a slash, and has none at its
    /// end. Only on a rule whose matches are all [`PathMatch::Prefix`].
    ReplacePrefix(String),
}

impl PathRewrite {
    /// Writes the path that takes the place of `path`, which `matched` matched.
    ///
    /// It starts with a slash whatever is replaced: `/foo` by nothing in `/foo` is `/`.
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

/// A redirect (RFC 9110 section 15.4). What is `None` stays as the request has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// The host of the Location.
    pub hostname: Option<String>,
    /// Its path; the query stays.
    pub path: Option<PathRewrite>,
    /// Its port. `None`: that of the scheme when a scheme is given, else that of the listener.
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}
