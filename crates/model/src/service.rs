//! Services: stable names with endpoints behind them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{
    Balancing, Namespace, NodeName, RouteRule, ServiceAccountName, ServiceName, WorkloadName,
};

/// A Service, resolved: who answers for it and which routes apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// `clusterIP: None`: it has no virtual address of its own in a cluster.
    pub headless: bool,
    /// Its virtual addresses in a cluster, sorted, each once, and no other Service's. A connection to one of
    /// them is one to the Service, once it is intercepted; none for a headless Service.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// How an endpoint is chosen.
    pub balancer: Balancer,
    /// How much each takes, and what happens to one that fails.
    #[serde(default)]
    pub balancing: Balancing,
    /// Its ports, sorted by number, each once.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// The port of that number.
    pub fn port(&self, port: u16) -> Option<&ServicePort> {
        let found = self
            .ports
            .binary_search_by(|known| known.port.cmp(&port))
            .ok()?;
        self.ports.get(found)
    }
}

/// How an endpoint is chosen among those that are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancer {
    /// Each in turn, by weight.
    RoundRobin,
    /// The less busy of two chosen at random ("the power of two choices", Mitzenmacher 2001).
    #[default]
    LeastRequest,
    /// Of two likewise, the one that should answer first: by its latency, of which a peak counts at once and
    /// is forgotten by and by, and by how busy it is.
    PeakEwma,
    /// The one that [`HashOn`](crate::HashOn) leads to, on a ring of all ("consistent hashing", Karger 1997).
    RingHash,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its number, never 0.
    pub port: u16,
    /// What is spoken on it.
    pub protocol: AppProtocol,
    /// Who answers: only ready endpoints, sorted by address, each once.
    pub endpoints: Vec<Endpoint>,
    /// `None`: no route is attached, a request goes straight to the endpoints.
    /// `Some`: the first rule that matches wins, and a request that none matches is a 404.
    pub routes: Option<Vec<RouteRule>>,
    /// Routes that a caller's own namespace attached (Gateway API consumer routes). For callers of
    /// that namespace they stand in place of `routes`; they do not add to them.
    pub consumer_routes: BTreeMap<Namespace, Vec<RouteRule>>,
}

/// What is spoken on a port, as its owner declared it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppProtocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 without TLS and without upgrade (`kubernetes.io/h2c`).
    Http2Cleartext,
    /// gRPC over cleartext HTTP/2.
    Grpc,
    /// Bytes.
    Tcp,
    /// TLS that Heddle does not end.
    Tls,
    /// Nothing was declared: HTTP/1.1 where there are routes, else what the first bytes say.
    Undeclared,
}

impl AppProtocol {
    /// Its name in messages and tables.
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

/// One address that answers for a Service's port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where to connect.
    pub address: SocketAddr,
    /// Its share beside the other endpoints, at least 1.
    pub weight: u32,
    /// How many requests it takes at once, from 1 to [`MAX_ROOM`](crate::MAX_ROOM); `None` for any number.
    #[serde(default)]
    pub max_requests: Option<u32>,
    /// The workload behind it, when this process hosts it.
    pub workload: Option<WorkloadName>,
    /// The workload behind it, when another node hosts it: what metrics and logs name.
    #[serde(default)]
    pub remote_workload: Option<WorkloadName>,
    /// Whose identity it must prove. `None`: it is outside the mesh, and proves none.
    pub account: Option<ServiceAccountName>,
    /// The node that it is on, through whose proxy it is reached. `None`: it is outside the mesh,
    /// or there is only one node.
    pub node: Option<NodeName>,
}

impl Endpoint {
    /// The workload behind it, on whichever node, if it is one of the mesh.
    #[must_use]
    pub fn workload_name(&self) -> Option<&WorkloadName> {
        self.workload.as_ref().or(self.remote_workload.as_ref())
    }
}
