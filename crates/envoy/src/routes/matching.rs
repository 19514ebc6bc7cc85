//! The conditions of a rule.

use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch as EnvoyMatch,
};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use heddle_model::{Namespace, PathMatch, RouteMatch, TrustDomain};

use crate::names::CALLER;

/// The conditions as Envoy writes them. Several lines of one header are compared one by one, not joined.
pub(super) fn of(matcher: &RouteMatch) -> EnvoyMatch {
    let method = matcher
        .method
        .iter()
        .map(|method| header(":method", method));
    let headers = matcher.headers.iter();
    let headers = headers.map(|(name, value)| header(name, value));
    let query = matcher
        .query
        .iter()
        .map(|(name, value)| QueryParameterMatcher {
            name: name.clone(),
            query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(
                exact(value),
            )),
        });
    EnvoyMatch {
        path_specifier: Some(path(&matcher.path)),
        headers: method.chain(headers).collect(),
        query_parameters: query.collect(),
        ..EnvoyMatch::default()
    }
}

/// Matches the requests from a namespace: a gateway's Envoy has written the identity of each caller into a header.
pub(super) fn callers_of(trust_domain: &TrustDomain, namespace: &Namespace) -> HeaderMatcher {
    let prefix = format!("spiffe://{trust_domain}/ns/{namespace}/");
    let matcher = StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(prefix)),
        ignore_case: false,
    };
    HeaderMatcher {
        name: CALLER.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher)),
        ..HeaderMatcher::default()
    }
}

fn path(path: &PathMatch) -> PathSpecifier {
    match path {
        PathMatch::Exact(exact) => PathSpecifier::Path(exact.clone()),
        PathMatch::Prefix(all) if all.is_empty() => PathSpecifier::Prefix("/".to_owned()),
        PathMatch::Prefix(prefix) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
    }
}

fn header(name: &str, value: &str) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact(value))),
        ..HeaderMatcher::default()
    }
}

fn exact(value: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Exact(value.to_owned())),
        ignore_case: false,
    }
}
