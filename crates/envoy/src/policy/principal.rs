//! Principals: conditions on the caller, and on its request.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::Principal;
use envoy_types::pb::envoy::config::rbac::v3::principal::{Identifier, Set};
use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::extensions::rbac::principals::mtls_authenticated::v3::Config;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::SubjectAltNameMatcher;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use envoy_types::pb::envoy::r#type::matcher::v3::path_matcher::Rule;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{PathMatcher, RegexMatcher, StringMatcher};
use heddle_model::{HttpMatch, PathMatch, Probe, Sources, SpiffeId};

use super::regex;
use crate::gateway::Roles;
use crate::names::CALLER;
use crate::pack;

/// Longest value of a header that an `ALLOW` rule can require, in bytes: the expression for any other one is longer by its
/// square.
const MAX_ALLOWED_VALUE: usize = 64;

/// All of these; anything, if there are none.
pub(super) fn all_of(mut ids: Vec<Principal>) -> Principal {
    match ids.len() {
        0 => of(Identifier::Any(true)),
        1 => ids.remove(0),
        _ => of(Identifier::AndIds(Set { ids })),
    }
}

/// One of these, of which there is at least one.
pub(super) fn any_of(mut ids: Vec<Principal>) -> Principal {
    match ids.len() {
        1 => ids.remove(0),
        _ => of(Identifier::OrIds(Set { ids })),
    }
}

pub(super) fn not(id: Principal) -> Principal {
    of(Identifier::NotId(Box::new(id)))
}

/// None of these; anything, if there are none.
pub(super) fn none_of(ids: Vec<Principal>) -> Principal {
    match ids.is_empty() {
        true => all_of(Vec::new()),
        false => not(any_of(ids)),
    }
}

/// Callers with one of these identities; `None` if there is none. A gateway counts as the caller that it asserts.
pub(super) fn sources(sources: &Sources, roles: Option<&Roles>) -> Option<Principal> {
    let identities = sources.identities.iter();
    let identities = identities.map(|id| MatchPattern::Exact(id.to_string()));
    let namespaces = sources.namespaces.iter().map(|one| {
        let accounts = format!("spiffe://{}/ns/{}/sa/", one.trust_domain, one.namespace);
        MatchPattern::Prefix(accounts)
    });
    let patterns: Vec<MatchPattern> = identities.chain(namespaces).collect();
    if patterns.is_empty() {
        return None;
    }
    let Some(roles) = roles.filter(|roles| !roles.gateways.is_empty()) else {
        return Some(any_of(patterns.into_iter().map(caller).collect()));
    };
    let lazy = roles.lazy.iter().filter(|account| {
        let id = SpiffeId::workload(roles.trust_domain.clone(), (*account).clone());
        sources.contains(Some(&id))
    });
    let asserted: Vec<Principal> = lazy
        .map(|account| header(CALLER, MatchPattern::Exact(roles.id(account))))
        .collect();
    let proven = any_of(patterns.into_iter().map(caller).collect());
    let direct = all_of(vec![proven, not(present(CALLER))]);
    if asserted.is_empty() {
        return Some(direct);
    }
    let forwarded = all_of(vec![gateways(roles), any_of(asserted)]);
    Some(any_of(vec![direct, forwarded]))
}

/// A caller that asserts another one and is no gateway, or asserts one that is not lazy.
pub(super) fn false_claim(roles: &Roles) -> Principal {
    let lazy = roles.lazy.iter();
    let lazy = lazy.map(|account| header(CALLER, MatchPattern::Exact(roles.id(account))));
    let lazy: Vec<Principal> = lazy.collect();
    let claims = present(CALLER);
    match lazy.is_empty() {
        true => claims,
        false => all_of(vec![
            claims,
            not(all_of(vec![gateways(roles), any_of(lazy)])),
        ]),
    }
}

fn gateways(roles: &Roles) -> Principal {
    let gateways = roles.gateways.iter();
    let gateways = gateways.map(|account| caller(MatchPattern::Exact(roles.id(account))));
    any_of(gateways.collect())
}

fn present(name: &str) -> Principal {
    of(Identifier::Header(HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
        ..HeaderMatcher::default()
    }))
}

/// The conditions on a request, exactly; `None` if they cannot be said, and so nothing meets them.
pub(super) fn allowed(http: &HttpMatch) -> Option<Vec<Principal>> {
    let mut all = Vec::new();
    let methods = http.methods.iter();
    let methods: Vec<Principal> = methods.map(|one| method(one, false)).collect();
    if !methods.is_empty() {
        all.push(any_of(methods));
    }
    let paths = http.paths.iter().flat_map(|path| match path {
        PathMatch::Exact(exact) => vec![url_path(MatchPattern::Exact(exact.clone()))],
        PathMatch::Prefix(prefix) if prefix.is_empty() => vec![all_of(Vec::new())],
        PathMatch::Prefix(prefix) => vec![
            url_path(MatchPattern::Exact(prefix.clone())),
            url_path(MatchPattern::Prefix(format!("{prefix}/"))),
        ],
    });
    let starts = http.path_starts.iter();
    let starts = starts.map(|start| url_path(MatchPattern::Prefix(start.clone())));
    all.extend(one_path(paths.chain(starts).collect()));
    for (name, value) in &http.headers {
        if value.len() > MAX_ALLOWED_VALUE {
            return None;
        }
        // A matcher is met by any one line: no other line may be there.
        let other = regex::anything_but(value);
        all.push(header(name, MatchPattern::Exact(value.clone())));
        all.push(not(header(name, safe(other))));
    }
    Some(all)
}

/// The conditions on a request, in every reading that a server may have of it.
pub(super) fn denied(http: &HttpMatch) -> Vec<Principal> {
    let mut all = Vec::new();
    let methods = http.methods.iter();
    let methods: Vec<Principal> = methods.map(|one| method(one, true)).collect();
    if !methods.is_empty() {
        all.push(any_of(methods));
    }
    let paths = http.paths.iter().map(|path| match path {
        PathMatch::Prefix(prefix) if prefix.is_empty() => all_of(Vec::new()),
        path => url_path(safe(regex::with_parameters(path))),
    });
    let starts = http.path_starts.iter();
    let starts = starts.map(|start| url_path(safe(regex::beginning_with(start))));
    all.extend(one_path(paths.chain(starts).collect()));
    for (name, value) in &http.headers {
        let pieces = value.split([',', ';']);
        all.extend(pieces.map(|piece| header(name, safe(regex::has_piece(piece)))));
    }
    all
}

/// A request whose path some server may understand as another one.
pub(super) fn ambiguous() -> Principal {
    url_path(safe(regex::AMBIGUOUS.to_owned()))
}

/// A declared health check; `None` for one that sends nothing.
pub(super) fn probe(probe: &Probe) -> Option<Principal> {
    let path = probe.path.as_ref()?;
    let target = match probe.query.is_empty() {
        true => path.clone(),
        false => format!("{path}?{}", probe.query),
    };
    // A chunked body is not seen: an Envoy takes the field away before its filters.
    let bodies = ["content-length", "upgrade"];
    let bodies = bodies.map(|name| not(present(name)));
    let is_it = [
        method("GET", false),
        header(":path", MatchPattern::Exact(target)),
    ];
    Some(all_of(is_it.into_iter().chain(bodies).collect()))
}

fn one_path(paths: Vec<Principal>) -> Option<Principal> {
    (!paths.is_empty()).then(|| any_of(paths))
}

/// Callers whose SPIFFE id matches.
pub(super) fn caller(pattern: MatchPattern) -> Principal {
    let config = Config {
        san_matcher: Some(SubjectAltNameMatcher {
            san_type: SanType::Uri.into(),
            matcher: Some(text(pattern, false)),
            oid: String::new(),
        }),
        any_validated_client_certificate: false,
    };
    of(Identifier::Custom(TypedExtensionConfig {
        name: "envoy.rbac.principals.mtls_authenticated".to_owned(),
        typed_config: Some(pack(&config)),
    }))
}

fn method(method: &str, ignore_case: bool) -> Principal {
    let pattern = MatchPattern::Exact(method.to_owned());
    header_of(":method", text(pattern, ignore_case))
}

fn header(name: &str, pattern: MatchPattern) -> Principal {
    header_of(name, text(pattern, false))
}

fn header_of(name: &str, matcher: StringMatcher) -> Principal {
    of(Identifier::Header(HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher)),
        ..HeaderMatcher::default()
    }))
}

fn url_path(pattern: MatchPattern) -> Principal {
    of(Identifier::UrlPath(PathMatcher {
        rule: Some(Rule::Path(text(pattern, false))),
    }))
}

fn safe(regex: String) -> MatchPattern {
    MatchPattern::SafeRegex(RegexMatcher {
        regex,
        ..RegexMatcher::default()
    })
}

fn text(pattern: MatchPattern, ignore_case: bool) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(pattern),
        ignore_case,
    }
}

fn of(identifier: Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}
