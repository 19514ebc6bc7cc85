//! HTTP connection managers.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutation as Mutation;
use envoy_types::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction;
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, Http1ProtocolOptions, HttpProtocolOptions, TypedExtensionConfig,
};
use envoy_types::pb::envoy::config::accesslog::v3::AccessLog;
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, HcmAccessLogOptions, PathWithEscapedSlashesAction, RouteSpecifier, ServerHeaderTransformation,
    UpgradeConfig,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds,
};
use envoy_types::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation;

use super::{filter, longest};
use crate::names::{CALLER, FORWARDED, FORWARDED_POLICY, ORIGINAL_DST, OUTBOUND};
use crate::pack;
use crate::values::{ads, seconds, truth};

/// Seconds within which the head of a request is complete.
const HEAD_S: u32 = 15;

/// The manager of outgoing requests: each gets its original destination into a header, by which its route is found.
pub(super) fn outgoing() -> Filter {
    let mut manager = manager("outbound", discovered(OUTBOUND), Vec::new());
    manager.early_header_mutation_extensions =
        vec![overwritten(ORIGINAL_DST, "%DOWNSTREAM_LOCAL_ADDRESS%")];
    packed(&manager)
}

/// The manager of requests and connections that a gateway forwards: each gets its proven caller into a header. Each route has
/// policies of its own.
pub(super) fn forwarding(reports: AccessLog) -> Filter {
    let policies = HttpFilter {
        name: FORWARDED_POLICY.to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack(&Rbac::default()))),
        ..HttpFilter::default()
    };
    let mut manager = manager(FORWARDED, discovered(FORWARDED), vec![policies]);
    manager.early_header_mutation_extensions =
        vec![overwritten(CALLER, "%DOWNSTREAM_PEER_URI_SAN%")];
    manager.access_log = vec![reports];
    manager.access_log_options = Some(HcmAccessLogOptions {
        flush_access_log_on_new_request: true,
        ..HcmAccessLogOptions::default()
    });
    manager.upgrade_configs.push(UpgradeConfig {
        upgrade_type: "CONNECT".to_owned(),
        ..UpgradeConfig::default()
    });
    guard(&mut manager);
    packed(&manager)
}

fn discovered(name: &str) -> RouteSpecifier {
    RouteSpecifier::Rds(Rds {
        config_source: Some(ads()),
        route_config_name: name.to_owned(),
    })
}

/// A header with this value instead of any that the client has sent.
fn overwritten(name: &str, value: &str) -> TypedExtensionConfig {
    let option = HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_owned(),
            value: value.to_owned(),
            ..HeaderValue::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    let mutations = HeaderMutation {
        mutations: vec![Mutation {
            action: Some(Action::Append(option)),
        }],
    };
    TypedExtensionConfig {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(pack(&mutations)),
    }
}

/// Refuses what a server may understand in another way than the policies do.
fn guard(manager: &mut HttpConnectionManager) {
    manager.merge_slashes = true;
    manager.path_with_escaped_slashes_action = PathWithEscapedSlashesAction::RejectRequest.into();
    if let Some(common) = &mut manager.common_http_protocol_options {
        common.headers_with_underscores_action = HeadersWithUnderscoresAction::RejectRequest.into();
    }
}

/// The manager of requests to the workload, after its policies.
pub(super) fn arriving(
    stat_prefix: &str,
    routes: RouteSpecifier,
    policies: Vec<HttpFilter>,
) -> Filter {
    // Where a policy looks at requests, one that the workload may understand in another way is refused.
    let is_guarded = !policies.is_empty();
    let mut manager = manager(stat_prefix, routes, policies);
    if is_guarded {
        guard(&mut manager);
    }
    packed(&manager)
}

fn manager(
    stat_prefix: &str,
    routes: RouteSpecifier,
    policies: Vec<HttpFilter>,
) -> HttpConnectionManager {
    let router = HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack(&Router {
            suppress_envoy_headers: true,
            ..Router::default()
        }))),
        ..HttpFilter::default()
    };
    HttpConnectionManager {
        codec_type: CodecType::Http1.into(),
        stat_prefix: stat_prefix.to_owned(),
        http_filters: policies.into_iter().chain([router]).collect(),
        common_http_protocol_options: Some(HttpProtocolOptions {
            max_connection_duration: longest(),
            ..HttpProtocolOptions::default()
        }),
        http_protocol_options: Some(Http1ProtocolOptions {
            accept_http_10: true,
            ..Http1ProtocolOptions::default()
        }),
        server_header_transformation: ServerHeaderTransformation::PassThrough.into(),
        request_headers_timeout: seconds(HEAD_S),
        // No timeout of its own: streams may be silent for longer. Routes have timeouts.
        stream_idle_timeout: seconds(0),
        use_remote_address: truth(false),
        skip_xff_append: true,
        generate_request_id: truth(false),
        normalize_path: truth(true),
        upgrade_configs: vec![UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..UpgradeConfig::default()
        }],
        route_specifier: Some(routes),
        ..HttpConnectionManager::default()
    }
}

fn packed(manager: &HttpConnectionManager) -> Filter {
    filter("envoy.filters.network.http_connection_manager", manager)
}
