//! The rules of a port, in the form that Workers use.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use heddle_model::{BackendTarget, Filters, Outcome, PathMatch, RouteAction, RouteRule};

use super::names::PortIndex;
use super::{Matcher, Request};

/// Index of a rule in its port, plus one. A request holds a number and not an `Arc`: all Workers would share its
/// reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RuleIndex(NonZeroU32);

/// Rules in order of precedence.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// Their place among the rules of the port.
    rules: Range<usize>,
    /// Whether a rule depends on the path. If so, a path that two programs could interpret differently is refused.
    pub(super) strict_paths: bool,
}

/// One match of one route.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) index: RuleIndex,
    /// `namespace/route`.
    pub(crate) label: Arc<str>,
    pub(crate) path: PathMatch,
    pub(crate) action: Action,
    matcher: Matcher,
}

/// How the requests of a rule are handled.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) route: Arc<RouteAction>,
    pub(crate) backends: Vec<Backend>,
    pub(crate) total_weight: u64,
}

/// One backend of a rule.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) weight: u32,
    pub(crate) target: Target,
    pub(crate) filters: Filters,
}

/// Where a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Port(PortIndex),
    /// The reference has no target; this backend's share of requests is answered 500.
    Unresolved,
}

impl RuleIndex {
    pub(super) fn get(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl RouteTable {
    /// Compiles rules, and appends them to those of the port. `find` finds the targets of backends.
    pub(super) fn new(
        written: &[RouteRule],
        rules: &mut Vec<Rule>,
        find: impl Fn(&BackendTarget) -> Target + Copy,
    ) -> Self {
        let first = rules.len();
        for rule in written {
            let compiled = Rule::new(rule, rules.len(), find);
            rules.push(compiled);
        }
        let strict_paths = |rule: &Rule| rule.matcher.looks_at_path();
        RouteTable {
            strict_paths: rules[first..].iter().any(strict_paths),
            rules: first..rules.len(),
        }
    }

    /// The first rule that matches, of the rules of the port.
    pub(super) fn find<'a, F>(
        &self,
        rules: &'a [Rule],
        request: &Request<'_, F>,
    ) -> Option<&'a Rule>
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        let mut rules = rules.get(self.rules.clone())?.iter();
        rules.find(|rule| rule.matcher.matches(request))
    }
}

impl Rule {
    fn new(rule: &RouteRule, before: usize, find: impl Fn(&BackendTarget) -> Target) -> Self {
        // A mesh with more rules would not fit into memory.
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        Rule {
            index: RuleIndex(NonZeroU32::MIN.saturating_add(before)),
            label: Arc::clone(&rule.name),
            path: rule.matcher.path.clone(),
            action: Action::new(&rule.action, find),
            matcher: Matcher::new(&rule.matcher),
        }
    }
}

impl Action {
    fn new(route: &Arc<RouteAction>, find: impl Fn(&BackendTarget) -> Target) -> Self {
        let backends: Vec<Backend> = match &route.outcome {
            Outcome::Redirect(_) => Vec::new(),
            Outcome::Forward(backends) => backends
                .iter()
                .map(|backend| Backend {
                    weight: backend.weight,
                    target: find(&backend.target),
                    filters: backend.filters.clone(),
                })
                .collect(),
        };
        let total_weight = backends
            .iter()
            .map(|backend| u64::from(backend.weight))
            .sum();
        Action {
            route: Arc::clone(route),
            backends,
            total_weight,
        }
    }

    /// Whether the backends are still where they were when this was compiled.
    pub(super) fn holds(&self, find: impl Fn(&BackendTarget) -> Target) -> bool {
        let Outcome::Forward(written) = &self.route.outcome else {
            return true;
        };
        let mut pairs = self.backends.iter().zip(written);
        pairs.all(|(backend, written)| backend.target == find(&written.target))
    }

    /// The backend whose weight range contains `draw` (below `total_weight`), and its index.
    pub(crate) fn backend(&self, mut draw: u64) -> Option<(usize, &Backend)> {
        self.backends.iter().enumerate().find(|(_, backend)| {
            let weight = u64::from(backend.weight);
            let here = draw < weight;
            draw = draw.saturating_sub(weight);
            here
        })
    }
}
