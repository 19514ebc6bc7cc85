//! What an Envoy decides by RBAC filters and lists of identities.

use envoy_types::pb::envoy::config::rbac::v3::principal::Identifier;
use envoy_types::pb::envoy::config::rbac::v3::rbac::Action;
use envoy_types::pb::envoy::config::rbac::v3::{Principal, Rbac};
use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::rbac::principals::mtls_authenticated::v3::Config;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::path_matcher::Rule;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use heddle_model::SpiffeId;
use prost::Message;
use regex::Regex;

/// A request, as it arrives at the filters.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) caller: Option<SpiffeId>,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
}

/// Whether all filters let a request through.
pub(super) fn allows(filters: &[HttpFilter], request: &Request) -> bool {
    filters.iter().all(|filter| {
        let Some(ConfigType::TypedConfig(any)) = &filter.config_type else {
            panic!("{filter:?}");
        };
        let config = HttpRbac::decode(any.value.as_slice()).expect("RBAC");
        config
            .rules
            .is_none_or(|rules| lets_through(&rules, request))
    })
}

fn lets_through(rules: &Rbac, request: &Request) -> bool {
    let principals = rules
        .policies
        .values()
        .flat_map(|policy| &policy.principals);
    let is_matched = principals.into_iter().any(|one| matches(one, request));
    match Action::try_from(rules.action) {
        Ok(Action::Allow) => is_matched,
        Ok(Action::Deny) => !is_matched,
        other => panic!("{other:?}"),
    }
}

fn matches(principal: &Principal, request: &Request) -> bool {
    match principal.identifier.as_ref().expect("a condition") {
        Identifier::Any(any) => *any,
        Identifier::AndIds(set) => set.ids.iter().all(|one| matches(one, request)),
        Identifier::OrIds(set) => set.ids.iter().any(|one| matches(one, request)),
        Identifier::NotId(one) => !matches(one, request),
        Identifier::Header(header) => has(header, request),
        Identifier::UrlPath(path) => {
            let Some(Rule::Path(path)) = &path.rule else {
                panic!("{path:?}");
            };
            is_text(path, &request.path)
        }
        Identifier::Custom(custom) => {
            let any = custom.typed_config.as_ref().expect("a configuration");
            let config = Config::decode(any.value.as_slice()).expect("a configuration");
            let san = config.san_matcher.expect("a matcher");
            let matcher = san.matcher.expect("a matcher");
            let caller = request.caller.as_ref();
            caller.is_some_and(|caller| is_text(&matcher, &caller.to_string()))
        }
        other => panic!("{other:?}"),
    }
}

/// Each line of a header is compared alone.
fn has(matcher: &HeaderMatcher, request: &Request) -> bool {
    let target = match request.query.is_empty() {
        true => request.path.clone(),
        false => format!("{}?{}", request.path, request.query),
    };
    let of_request = [(":method", &request.method), (":path", &target)];
    let fields = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value));
    let mut lines = of_request.into_iter().chain(fields);
    lines.any(|(name, line)| {
        name == matcher.name
            && match matcher.header_match_specifier.as_ref().expect("a matcher") {
                HeaderMatchSpecifier::PresentMatch(present) => *present,
                HeaderMatchSpecifier::StringMatch(text) => is_text(text, line),
                other => panic!("{other:?}"),
            }
    })
}

fn is_text(matcher: &StringMatcher, text: &str) -> bool {
    let pattern = matcher.match_pattern.as_ref().expect("a pattern");
    match matcher.ignore_case {
        true => {
            let MatchPattern::Exact(exact) = pattern else {
                panic!("{matcher:?}");
            };
            exact.eq_ignore_ascii_case(text)
        }
        false => is_pattern(pattern, text),
    }
}

fn is_pattern(pattern: &MatchPattern, text: &str) -> bool {
    match pattern {
        MatchPattern::Exact(exact) => exact == text,
        MatchPattern::Prefix(prefix) => text.starts_with(prefix),
        // RE2 has to match all of the text.
        MatchPattern::SafeRegex(regex) => {
            let regex = Regex::new(&format!("^(?:{})$", regex.regex)).expect("an expression");
            regex.is_match(text)
        }
        other => panic!("{other:?}"),
    }
}

/// Whether one of these matches an identity.
pub(super) fn is_accepted(accepted: &[MatchPattern], caller: &SpiffeId) -> bool {
    accepted
        .iter()
        .any(|one| is_pattern(one, &caller.to_string()))
}
