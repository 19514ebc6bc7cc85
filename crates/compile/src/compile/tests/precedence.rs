//! Precedence against a model that follows the Gateway API's text sentence by sentence.

use std::sync::Arc;

use heddle_model::{Outcome, PathMatch, RouteAction, RouteMatch};
use proptest::prelude::*;

use crate::compile::attach::ordered;
use crate::compile::precedence::Rank;
use crate::compile::route::{Route, Rule};

fn action() -> Arc<RouteAction> {
    Arc::new(RouteAction {
        filters: Default::default(),
        outcome: Outcome::Forward(Vec::new()),
        request_timeout_ms: None,
        backend_timeout_ms: None,
    })
}

fn path() -> impl Strategy<Value = PathMatch> {
    let text = prop::sample::select(vec!["", "/a", "/b", "/a/b", "/a/b/c"]);
    (any::<bool>(), text).prop_map(|(exact, text)| match exact {
        true => PathMatch::Exact(if text.is_empty() {
            "/".into()
        } else {
            text.into()
        }),
        false => PathMatch::Prefix(text.into()),
    })
}

fn pairs(names: &'static [&'static str]) -> impl Strategy<Value = Vec<(String, String)>> {
    prop::sample::subsequence(names.to_vec(), 0..=names.len()).prop_flat_map(|names| {
        let count = names.len();
        prop::collection::vec(prop::sample::select(vec!["1", "2"]), count).prop_map(move |values| {
            names
                .iter()
                .zip(values)
                .map(|(n, v)| ((*n).to_owned(), v.to_owned()))
                .collect()
        })
    })
}

fn matcher() -> impl Strategy<Value = RouteMatch> {
    let method = prop::option::of(prop::sample::select(vec!["GET", "POST"]));
    (path(), method, pairs(&["x", "y"]), pairs(&["p", "q"])).prop_map(
        |(path, method, headers, query)| RouteMatch {
            path,
            method: method.map(str::to_owned),
            headers,
            query,
        },
    )
}

/// Up to four routes with distinct names, some of equal age or without one.
fn routes() -> impl Strategy<Value = Vec<Route>> {
    let rule = prop::collection::vec(matcher(), 1..4).prop_map(|matches| Rule {
        matches,
        action: action(),
    });
    let body = (
        prop::option::of(0..3_i64),
        prop::collection::vec(rule, 1..4),
    );
    let names = prop::sample::subsequence(vec!["a/x", "a-b/x", "a/y", "b/x"], 1..=4).prop_shuffle();
    (names, prop::collection::vec(body, 4)).prop_map(|(names, bodies)| {
        let routes = names.into_iter().zip(bodies);
        routes
            .map(|(name, (created, rules))| Route {
                name: name.into(),
                created,
                rules,
                attachments: Vec::new(),
            })
            .collect()
    })
}

/// The parts of a request that matches evaluate.
#[derive(Debug, Clone)]
struct Asked {
    path: &'static str,
    method: &'static str,
    headers: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

fn request() -> impl Strategy<Value = Asked> {
    let path = prop::sample::select(vec!["/", "/a", "/b", "/a/b", "/a/b/c", "/a/b/c/d", "/ab"]);
    let method = prop::sample::select(vec!["GET", "POST", "PUT"]);
    (path, method, pairs(&["x", "y"]), pairs(&["p", "q"])).prop_map(
        |(path, method, headers, query)| Asked {
            path,
            method,
            headers,
            query,
        },
    )
}

fn matches(matcher: &RouteMatch, request: &Asked) -> bool {
    matcher.path.matches(request.path)
        && matcher
            .method
            .as_deref()
            .is_none_or(|method| method == request.method)
        && matcher
            .headers
            .iter()
            .all(|header| request.headers.contains(header))
        && matcher
            .query
            .iter()
            .all(|parameter| request.query.contains(parameter))
}

/// A candidate in the model: the match, and its place.
type Competitor<'a> = (&'a Route, usize, usize, &'a RouteMatch);

/// Keeps the candidates with the highest score, unless that would leave none.
fn keep_best<'a>(
    candidates: Vec<Competitor<'a>>,
    score: impl Fn(&Competitor<'a>) -> i64,
) -> Vec<Competitor<'a>> {
    let best = candidates.iter().map(&score).max();
    candidates
        .into_iter()
        .filter(|candidate| Some(score(candidate)) == best)
        .collect()
}

/// "Across all rules specified on applicable Routes, precedence must be given to the match having: …": each sentence
/// narrows the matches down, until one is left.
fn winner<'a>(routes: &'a [Route], request: &Asked) -> Option<(&'a str, usize)> {
    let mut candidates: Vec<Competitor<'a>> = Vec::new();
    for route in routes {
        for (rule_index, rule) in route.rules.iter().enumerate() {
            for (position, matcher) in rule.matches.iter().enumerate() {
                if matches(matcher, request) {
                    candidates.push((route, rule_index, position, matcher));
                }
            }
        }
    }
    let count = |length: usize| i64::try_from(length).unwrap();
    let best = keep_best(candidates, |c| {
        i64::from(matches!(c.3.path, PathMatch::Exact(_)))
    });
    let best = keep_best(best, |c| match &c.3.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => count(path.len()),
    });
    let best = keep_best(best, |c| i64::from(c.3.method.is_some()));
    let best = keep_best(best, |c| count(c.3.headers.len()));
    let best = keep_best(best, |c| count(c.3.query.len()));
    let best = keep_best(best, |c| -c.0.created.unwrap_or(i64::MAX));
    let first_name = best.iter().map(|c| c.0.name.to_string()).min()?;
    let best: Vec<_> = best
        .into_iter()
        .filter(|c| *c.0.name == *first_name)
        .collect();
    let best = keep_best(best, |c| -count(c.1));
    let best = keep_best(best, |c| -count(c.2));
    assert!(best.len() == 1, "one match is left");
    best.first().map(|c| (&*c.0.name, c.1))
}

proptest! {
    #[test]
    fn the_first_match_is_the_one_that_wins(routes in routes(), request in request()) {
        let borrowed: Vec<&Route> = routes.iter().collect();
        let rules = ordered(&borrowed);
        let first = rules
            .iter()
            .find(|rule| matches(&rule.matcher, &request))
            .map(|rule| (&*rule.name, usize::try_from(rule.rule).unwrap()));
        prop_assert_eq!(first, winner(&routes, &request));
    }

    /// The order does not depend on the order in which files are read.
    #[test]
    fn the_order_is_total(routes in routes()) {
        let forwards: Vec<&Route> = routes.iter().collect();
        let backwards: Vec<&Route> = routes.iter().rev().collect();
        prop_assert_eq!(ordered(&forwards), ordered(&backwards));
        let mut ranks = Vec::new();
        for route in &routes {
            for (rule, written) in route.rules.iter().enumerate() {
                for (position, matcher) in written.matches.iter().enumerate() {
                    let (created, route) = (route.created, &*route.name);
                    ranks.push(Rank { matcher, created, route, rule, position });
                }
            }
        }
        ranks.sort();
        prop_assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
