//! Listeners, and what all of them are made of.

mod bytes;
mod gateway;
mod inbound;
mod manager;
mod outbound;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::address::Address as OneOf;
use envoy_types::pb::envoy::config::core::v3::{Address, TransportSocket};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType as ListenerConfigType;
use envoy_types::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter,
};
use envoy_types::pb::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use heddle_model::Workload;
use prost::{Message, Name};

pub(crate) use bytes::of_service;
pub(crate) use inbound::inbound;
pub use outbound::outbound;

use crate::names::BLACKHOLE;
use crate::pack;
use crate::values::{address, ms, number, seconds, truth};

/// The port to which a pod's outgoing connections are redirected.
pub const OUTBOUND_PORT: u16 = 15_001;
/// The port to which connections to a pod are redirected.
pub const INBOUND_PORT: u16 = 15_006;

/// How long the first bytes of a connection are waited for: a server of which the client expects the first bytes gets the
/// connection so much later.
const INSPECTED_MS: u64 = 100;
/// A connection is replaced after this time: the certificates of its ends may have been.
const LONGEST_S: u32 = 3_600;

/// A listener to which connections are redirected that have another destination. Only its filter chains may ever differ from
/// one version to the next: an Envoy then goes on with the connections of the others.
fn redirected(name: &str, workload: &Workload, port: u16) -> Listener {
    Listener {
        name: name.to_owned(),
        address: Some(any_address(workload, port)),
        use_original_dst: truth(true),
        listener_filters_timeout: ms(INSPECTED_MS),
        continue_on_listener_filters_timeout: true,
        ..Listener::default()
    }
}

/// All addresses of the pod: IPv6 only if it has an IPv6 address, since its kernel may have none.
fn any_address(workload: &Workload, port: u16) -> Address {
    let is_v6 = workload.all_addresses().any(|one| one.is_ipv6());
    if !is_v6 {
        return address(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    let mut any = address(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    if let Some(OneOf::SocketAddress(socket)) = &mut any.address {
        socket.ipv4_compat = true;
    }
    any
}

fn original_dst() -> ListenerFilter {
    listener_filter("envoy.filters.listener.original_dst", &OriginalDst {})
}

fn listener_filter<M: Message + Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(ListenerConfigType::TypedConfig(pack(config))),
        ..ListenerFilter::default()
    }
}

fn filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    Filter {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack(config))),
    }
}

/// Opaque bytes to a cluster.
fn tcp_proxy(stat_prefix: &str, cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: stat_prefix.to_owned(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }
}

fn tcp_filter(proxy: &TcpProxy) -> Filter {
    filter("envoy.filters.network.tcp_proxy", proxy)
}

fn chain(
    name: impl Into<String>,
    matching: FilterChainMatch,
    socket: Option<TransportSocket>,
    filters: Vec<Filter>,
) -> FilterChain {
    FilterChain {
        name: name.into(),
        filter_chain_match: Some(matching),
        transport_socket: socket,
        filters,
        ..FilterChain::default()
    }
}

/// Connections to the listener itself: without this they would go in a circle.
fn no_circle(port: u16) -> FilterChain {
    let to_itself = FilterChainMatch {
        destination_port: number(port.into()),
        ..FilterChainMatch::default()
    };
    let filters = vec![tcp_filter(&tcp_proxy("circle", BLACKHOLE))];
    chain("circle", to_itself, None, filters)
}

/// The longest time of a connection with mutual TLS.
fn longest() -> Option<envoy_types::pb::google::protobuf::Duration> {
    seconds(LONGEST_S)
}
