//! The chain of a gateway for lazy callers.

use envoy_types::pb::envoy::config::accesslog::v3::AccessLog;
use envoy_types::pb::envoy::config::accesslog::v3::access_log::ConfigType as LogConfigType;
use envoy_types::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use envoy_types::pb::envoy::config::core::v3::{ApiVersion, GrpcService};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch};
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::{chain, manager};
use crate::gateway::{PORT, Roles};
use crate::names::{BLACKHOLE, CONTROL, Flavour, ORIGINAL_DST};
use crate::values::{ms, number};
use crate::{pack, tls};

/// How long an access may wait before it is reported.
const REPORTED_WITHIN_MS: u64 = 50;

/// Lazy callers, by mutual TLS; any other is refused in the handshake.
pub(super) fn forwarding(roles: &Roles) -> FilterChain {
    let matching = FilterChainMatch {
        destination_port: number(PORT.into()),
        ..FilterChainMatch::default()
    };
    let callers = roles.lazy.iter().map(|account| roles.id(account));
    let callers: Vec<MatchPattern> = callers.map(MatchPattern::Exact).collect();
    if callers.is_empty() {
        let closed = super::tcp_filter(&super::tcp_proxy("refused", BLACKHOLE));
        return chain("gateway", matching, None, vec![closed]);
    }
    let socket = tls::downstream(callers, Flavour::Requests);
    let filters = vec![manager::forwarding(reports())];
    chain("gateway", matching, Some(socket), filters)
}

/// The report of each request to the control plane, which learns from it what the caller uses: once it begins, since it may
/// last for long.
fn reports() -> AccessLog {
    let config = HttpGrpcAccessLogConfig {
        common_config: Some(CommonGrpcAccessLogConfig {
            log_name: "heddle".to_owned(),
            transport_api_version: ApiVersion::V3.into(),
            grpc_service: Some(GrpcService {
                target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
                    cluster_name: CONTROL.to_owned(),
                    ..EnvoyGrpc::default()
                })),
                ..GrpcService::default()
            }),
            buffer_flush_interval: ms(REPORTED_WITHIN_MS),
            ..CommonGrpcAccessLogConfig::default()
        }),
        additional_request_headers_to_log: vec![ORIGINAL_DST.to_owned()],
        ..HttpGrpcAccessLogConfig::default()
    };
    AccessLog {
        name: "envoy.access_loggers.http_grpc".to_owned(),
        config_type: Some(LogConfigType::TypedConfig(pack(&config))),
        ..AccessLog::default()
    }
}
