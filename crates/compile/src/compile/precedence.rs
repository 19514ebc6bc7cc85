//! Which match goes first.
//!
//! The Gateway API orders the matches of all routes on a port by: exact path before prefix, longer
//! path, a method, more headers, more query parameters, then older route, route name, and the order
//! in the route (`HTTPRouteRule.matches`). Ordered so, the first that matches a request is the one
//! that wins, and the proxy does not weigh anything per request.

use std::cmp::{Ordering, Reverse};

use heddle_model::{PathMatch, RouteMatch};

/// A match's place in the order; two matches of one port never have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank<'a> {
    pub(super) matcher: &'a RouteMatch,
    /// Seconds since 1970; a route that does not say when it was made counts as newest.
    pub(super) created: Option<i64>,
    /// `namespace/name`, compared as one text.
    pub(super) route: &'a str,
    pub(super) rule: usize,
    pub(super) position: usize,
}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Rank<'_> {
    /// What goes first has the smaller key.
    fn key(&self) -> impl Ord {
        let matcher = self.matcher;
        let (kind, path) = match &matcher.path {
            PathMatch::Exact(path) => (0, path),
            PathMatch::Prefix(path) => (1, path),
        };
        (
            (kind, Reverse(path.len())),
            matcher.method.is_none(),
            Reverse(matcher.headers.len()),
            Reverse(matcher.query.len()),
            self.created.unwrap_or(i64::MAX),
            self.route,
            self.rule,
            self.position,
        )
    }
}
