//! The listener of outgoing connections.

use envoy_types::pb::envoy::config::core::v3::{CidrRange, HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use envoy_types::pb::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TunnelingConfig;
use heddle_model::{Cidr, Workload};

use super::{
    OUTBOUND_PORT, chain, listener_filter, manager, no_circle, original_dst, redirected,
    tcp_filter, tcp_proxy,
};
use crate::names::{GATEWAY, ORIGINAL_DST, PASSTHROUGH};
use crate::values::number;

/// Attempts to connect to a gateway: another one is taken where one does not answer.
const GATEWAYS_TRIED: u32 = 3;

/// The listener of a workload's outgoing connections. The same whatever the mesh has: what is known is in routes, and in
/// listeners of their own for bytes.
///
/// Of a lazy Envoy, what goes to an address of the mesh that nothing is known of goes to a gateway, requests by the routes, and
/// bytes by HTTP CONNECT (RFC 9110 section 9.3.6). Anything else goes to where the client sent it.
pub fn outbound(workload: &Workload, is_lazy: bool, ranges: &[Cidr]) -> Listener {
    let within = || FilterChainMatch {
        prefix_ranges: ranges.iter().map(range).collect(),
        ..FilterChainMatch::default()
    };
    let requests = FilterChainMatch {
        application_protocols: ["http/1.0", "http/1.1"].map(str::to_owned).to_vec(),
        ..within()
    };
    let mut chains = vec![
        no_circle(OUTBOUND_PORT),
        chain("requests", requests, None, vec![manager::outgoing()]),
    ];
    if is_lazy {
        let mut proxy = tcp_proxy("unknown", GATEWAY);
        proxy.max_connect_attempts = number(GATEWAYS_TRIED);
        proxy.tunneling_config = Some(TunnelingConfig {
            hostname: "%DOWNSTREAM_LOCAL_ADDRESS%".to_owned(),
            headers_to_add: vec![HeaderValueOption {
                header: Some(HeaderValue {
                    key: ORIGINAL_DST.to_owned(),
                    value: "%DOWNSTREAM_LOCAL_ADDRESS%".to_owned(),
                    ..HeaderValue::default()
                }),
                ..HeaderValueOption::default()
            }],
            ..TunnelingConfig::default()
        });
        chains.push(chain("bytes", within(), None, vec![tcp_filter(&proxy)]));
    }
    let inspector = HttpInspector::default();
    Listener {
        filter_chains: chains,
        default_filter_chain: Some(FilterChain {
            name: "outside".to_owned(),
            filters: vec![tcp_filter(&tcp_proxy("outside", PASSTHROUGH))],
            ..FilterChain::default()
        }),
        listener_filters: vec![
            original_dst(),
            listener_filter("envoy.filters.listener.http_inspector", &inspector),
        ],
        ..redirected("virtual_outbound", workload, OUTBOUND_PORT)
    }
}

fn range(cidr: &Cidr) -> CidrRange {
    CidrRange {
        address_prefix: cidr.network().to_string(),
        prefix_len: number(cidr.prefix().into()),
    }
}
