//! The clusters of a Service's port.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::thresholds::RetryBudget;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbConfig, LbPolicy,
    LeastRequestLbConfig, RingHashLbConfig, RoundRobinLbConfig, SlowStartConfig,
    TransportSocketMatch,
};
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, Cluster, OutlierDetection};
use envoy_types::pb::envoy::config::core::v3::{
    Http1ProtocolOptions, HttpProtocolOptions as CommonOptions, TransportSocket,
};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions,
};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::UInt64Value;
use heddle_model::{
    AppProtocol, Balancer, Balancing, Ejection, Failing, Service, ServiceAccountName, ServicePort,
    StockName, TrustDomain,
};

use crate::endpoints::{accounts, of_account};
use crate::names::{BLACKHOLE, ClusterName, Flavour, INBOUND, PASSTHROUGH};
use crate::values::{ads, ms, number, seconds};
use crate::{pack, tls};

/// Seconds within which a connection to an endpoint is open.
pub(crate) const CONNECT_S: u32 = 5;
/// An idle connection is closed before a node's proxy closes it, so that no request meets a closing one.
const IDLE_S: u32 = 30;
/// A connection is replaced after this time: the certificates of its ends may have been.
const LONGEST_S: u32 = 3_600;
/// No limit: the defaults of Envoy are 1,024 connections and requests.
const UNLIMITED: u32 = 1_000_000;
/// Entries of a hash ring, at most: by default a ring of very different weights has 8 million, and takes seconds to build.
const MAX_RING: u64 = 65_536;
/// The share with which a new endpoint begins, in percent.
const SLOW_START_PERCENT: f64 = 10.0;
/// Time in which retries are counted against requests, in seconds.
const BUDGET_S: u32 = 10;
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// How connections to a port may be used.
pub(crate) fn flavours(port: &ServicePort) -> &'static [Flavour] {
    match port.protocol {
        AppProtocol::Http => &[Flavour::Requests],
        AppProtocol::Undeclared if port.routes.is_some() || !port.consumer_routes.is_empty() => {
            &[Flavour::Requests]
        }
        AppProtocol::Undeclared => &[Flavour::Requests, Flavour::Bytes],
        AppProtocol::Tcp | AppProtocol::Tls | AppProtocol::Http2Cleartext | AppProtocol::Grpc => {
            &[Flavour::Bytes]
        }
    }
}

/// The cluster of a Service's port. `None`: an endpoint's server name would be too long.
pub(crate) fn of_port(
    trust_domain: &TrustDomain,
    service: &Service,
    port: &ServicePort,
    flavour: Flavour,
) -> Option<Cluster> {
    let name = ClusterName {
        service: &service.name,
        port: port.port,
        flavour,
    };
    let socket = |account: Option<&ServiceAccountName>| {
        let Some(account) = account else {
            return Some(tls::plain());
        };
        let stock = StockName {
            service: service.name.clone(),
            port: port.port,
            account: account.clone(),
        };
        tls::upstream(trust_domain, &stock, flavour)
    };
    let accounts = accounts(port);
    let mut cluster = Cluster {
        name: name.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ads()),
            ..EdsClusterConfig::default()
        }),
        ..balanced(service)
    };
    match accounts.as_slice() {
        [] => {}
        [only] => cluster.transport_socket = Some(socket(*only)?),
        several => {
            // The first match counts: that of endpoints without an account, which matches all of them, is the last.
            let matches = several.iter().rev();
            let matches = matches.map(|account| Some(socket_match(*account, socket(*account)?)));
            cluster.transport_socket_matches = matches.collect::<Option<_>>()?;
        }
    }
    if flavour == Flavour::Requests {
        cluster.typed_extension_protocol_options = http_options();
    }
    Some(cluster)
}

/// The clusters that every Envoy has: the workload itself, any original destination, and nothing.
pub(crate) fn fixed() -> [Cluster; 3] {
    let original = |name: &str| Cluster {
        name: name.to_owned(),
        connect_timeout: seconds(CONNECT_S),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(
            DiscoveryType::OriginalDst.into(),
        )),
        lb_policy: LbPolicy::ClusterProvided.into(),
        circuit_breakers: Some(breakers(unlimited())),
        ..Cluster::default()
    };
    let inbound = Cluster {
        typed_extension_protocol_options: http_options(),
        ..original(INBOUND)
    };
    let nothing = Cluster {
        name: BLACKHOLE.to_owned(),
        connect_timeout: seconds(CONNECT_S),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        ..Cluster::default()
    };
    [inbound, original(PASSTHROUGH), nothing]
}

/// What a Service says of balancing.
fn balanced(service: &Service) -> Cluster {
    let Balancing {
        hash_on: _,
        line,
        ejection,
        retry_budget,
        slow_start_ms,
    } = &service.balancing;
    let slow_start = (*slow_start_ms > 0).then(|| SlowStartConfig {
        slow_start_window: ms(*slow_start_ms),
        min_weight_percent: Some(Percent {
            value: SLOW_START_PERCENT,
        }),
        ..SlowStartConfig::default()
    });
    let (policy, config) = match service.balancer {
        Balancer::RoundRobin => (
            LbPolicy::RoundRobin,
            LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
                slow_start_config: slow_start,
            }),
        ),
        // A stock Envoy has no moving average of latencies.
        Balancer::LeastRequest | Balancer::PeakEwma => (
            LbPolicy::LeastRequest,
            LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                choice_count: number(2),
                slow_start_config: slow_start,
                ..LeastRequestLbConfig::default()
            }),
        ),
        Balancer::RingHash => (
            LbPolicy::RingHash,
            LbConfig::RingHashLbConfig(RingHashLbConfig {
                maximum_ring_size: Some(UInt64Value { value: MAX_RING }),
                ..RingHashLbConfig::default()
            }),
        ),
    };
    let mut limits = unlimited();
    if line.max_waiting > 0 {
        limits.max_pending_requests = number(line.max_waiting);
    }
    limits.retry_budget = Some(RetryBudget {
        budget_percent: Some(Percent {
            value: retry_budget.percent.into(),
        }),
        budget_interval: seconds(BUDGET_S),
        min_retry_concurrency: number(retry_budget.min_per_second),
    });
    Cluster {
        connect_timeout: seconds(CONNECT_S),
        lb_policy: policy.into(),
        lb_config: Some(config),
        outlier_detection: ejection.as_ref().map(outliers),
        circuit_breakers: Some(breakers(limits)),
        ..Cluster::default()
    }
}

fn outliers(ejection: &Ejection) -> OutlierDetection {
    let (any, gateway) = match ejection.on {
        Failing::ServerError => (100, 0),
        Failing::GatewayFailure => (0, 100),
    };
    OutlierDetection {
        consecutive_5xx: number(ejection.after),
        enforcing_consecutive_5xx: number(any),
        consecutive_gateway_failure: number(ejection.after),
        enforcing_consecutive_gateway_failure: number(gateway),
        base_ejection_time: ms(ejection.base_ms),
        max_ejection_time: ms(ejection.base_ms.max(300_000)),
        max_ejection_percent: number(ejection.max_percent.into()),
        enforcing_success_rate: number(0),
        ..OutlierDetection::default()
    }
}

fn unlimited() -> Thresholds {
    Thresholds {
        max_connections: number(UNLIMITED),
        max_pending_requests: number(UNLIMITED),
        max_requests: number(UNLIMITED),
        max_retries: number(UNLIMITED),
        ..Thresholds::default()
    }
}

/// No limit of connections and requests.
pub(crate) fn unlimited_breakers() -> CircuitBreakers {
    breakers(unlimited())
}

fn breakers(limits: Thresholds) -> CircuitBreakers {
    CircuitBreakers {
        thresholds: vec![limits],
        ..CircuitBreakers::default()
    }
}

pub(crate) fn socket_match(
    account: Option<&ServiceAccountName>,
    socket: TransportSocket,
) -> TransportSocketMatch {
    TransportSocketMatch {
        name: account.map_or_else(|| "outside".to_owned(), ToString::to_string),
        r#match: account.map(of_account),
        transport_socket: Some(socket),
    }
}

pub(crate) fn http_options() -> HashMap<String, envoy_types::pb::google::protobuf::Any> {
    let http1 = ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default());
    let explicit = ExplicitHttpConfig {
        protocol_config: Some(http1),
    };
    let options = HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout: seconds(IDLE_S),
            max_connection_duration: seconds(LONGEST_S),
            ..CommonOptions::default()
        }),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)),
        ..HttpProtocolOptions::default()
    };
    HashMap::from([(HTTP_OPTIONS.to_owned(), pack(&options))])
}
