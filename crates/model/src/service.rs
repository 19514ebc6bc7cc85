//! Services: stable names of groups of endpoints.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{
    Balancing, Namespace, NodeName, RouteRule, ServiceAccountName, ServiceName, Workload,
    WorkloadName,
};

/// A resolved Service: its endpoints and its routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// The Service's namespace and name.
    pub name: ServiceName,
    /// `clusterIP: None`: the Service has no virtual address in a cluster.
    pub headless: bool,
    /// Virtual addresses in a cluster, sorted, each once, never shared with another Service. An intercepted connection
    /// to one of them is one to the Service. Empty for a headless Service.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The method by which an endpoint is chosen.
    pub balancer: Balancer,
    /// Limits of concurrent requests, queueing, ejection and retries.
    #[serde(default)]
    pub balancing: Balancing,
    /// The Service's ports, sorted by number, each once.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// The port of that number; a binary search.
    pub fn port(&self, port: u16) -> Option<&ServicePort> {
        let found = self
            .ports
            .binary_search_by(|known| known.port.cmp(&port))
            .ok()?;
        self.ports.get(found)
    }

    /// The endpoints of all ports.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.ports.iter().flat_map(|port| &port.endpoints)
    }
}

/// The method by which a ready endpoint is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancer {
    /// Endpoints in turn, by weight.
    RoundRobin,
    /// The less busy of two chosen at random ("the power of two choices", Mitzenmacher 2001).
    #[default]
    LeastRequest,
    /// The faster of two chosen at random, by expected latency: a moving average on which a peak acts at once and
    /// decays slowly, multiplied by the current load.
    PeakEwma,
    /// The endpoint for [`HashOn`](crate::HashOn) on a hash ring of all endpoints ("consistent hashing", Karger 1997).
    RingHash,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServicePort {
    /// The port's name, if any.
    pub name: Option<String>,
    /// The port number, never 0.
    pub port: u16,
    pub protocol: AppProtocol,
    /// The ready endpoints, sorted by address, each once.
    pub endpoints: Vec<Endpoint>,
    /// `None`: no route is attached, a request goes directly to the endpoints. `Some`: the first matching rule wins,
    /// and a request without a match is a 404.
    pub routes: Option<Vec<RouteRule>>,
    /// Routes from the callers' own namespaces (Gateway API consumer routes). For callers of such a namespace they
    /// replace `routes`; they are not added to them.
    pub consumer_routes: BTreeMap<Namespace, Vec<RouteRule>>,
}

impl ServicePort {
    /// The rules of all routes: those of `routes` first, then those of each namespace.
    pub fn all_rules(&self) -> impl Iterator<Item = &RouteRule> {
        let lists = self.routes.iter().chain(self.consumer_routes.values());
        lists.flatten()
    }
}

/// The protocol of a port, as its owner declared it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppProtocol {
    Http,
    /// HTTP/2 without TLS and without upgrade (`kubernetes.io/h2c`).
    Http2Cleartext,
    /// gRPC over cleartext HTTP/2.
    Grpc,
    /// A byte stream.
    Tcp,
    /// TLS that Heddle does not terminate.
    Tls,
    /// No declaration: HTTP/1.1 where there are routes, or else detected from the first bytes.
    Undeclared,
}

impl AppProtocol {
    /// The protocol's name in messages and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Http2Cleartext => "h2c",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Undeclared => "undeclared",
        }
    }
}

/// One address behind a Service's port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address and port to connect to.
    pub address: SocketAddr,
    /// Weight beside the other endpoints, at least 1.
    pub weight: u32,
    /// Limit of concurrent requests, from 1 to [`MAX_ROOM`](crate::MAX_ROOM); `None` for no limit.
    #[serde(default)]
    pub max_requests: Option<u32>,
    /// The endpoint's workload, if it is on this node.
    pub workload: Option<WorkloadName>,
    /// The endpoint's workload, if it is on another node: the name for metrics and logs.
    #[serde(default)]
    pub remote_workload: Option<WorkloadName>,
    /// The identity that the endpoint must prove. `None`: it is outside the mesh, and proves none.
    pub account: Option<ServiceAccountName>,
    /// The endpoint's node, through whose proxy it is reached. `None`: it is outside the mesh, or there is only one
    /// node.
    pub node: Option<NodeName>,
    /// Whether its workload has an Envoy of its own: then it is reached at its address, by mutual TLS, and not through
    /// its node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_envoy: bool,
}

impl Endpoint {
    /// The endpoint's workload, on any node, if it is in the mesh.
    #[must_use]
    pub fn workload_name(&self) -> Option<&WorkloadName> {
        self.workload.as_ref().or(self.remote_workload.as_ref())
    }

    /// Whether account, node, address and proxy are those of that workload.
    #[must_use]
    pub fn is_of(&self, workload: &Workload) -> bool {
        self.account.as_ref() == Some(&workload.service_account)
            && self.node == workload.node
            && self.has_envoy == workload.proxy.is_envoy()
            && self.address.ip() == workload.address
    }
}
