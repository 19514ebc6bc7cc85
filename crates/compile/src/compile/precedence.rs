//! Precedence of matches.
//!
//! The Gateway API orders the matches of all routes on a port by: exact path before prefix, longer path, a method, more
//! headers, more query parameters, then older route, route name, and the order in the route (`HTTPRouteRule.matches`).
//! In this order the first match of a request wins, so the proxy compares no precedence per request.

use std::cmp::{Ordering, Reverse};

use heddle_model::{PathMatch, RouteMatch};

/// A match's position in the order; two matches of one port never have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank<'a> {
    pub(super) matcher: &'a RouteMatch,
    /// Seconds since 1970; a route without a creation time counts as newest.
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
    /// The match with higher precedence has the smaller key.
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
