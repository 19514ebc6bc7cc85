//! Settings of the data plane. The default of every limit is safe on a small node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use heddle_transport::Protocol;

use crate::accesses::AccessSink;
use crate::questions::Questions;

mod elasticity;
mod share;

pub use elasticity::Elasticity;
pub(crate) use share::LimitShare;

/// Settings of the data plane, fixed while it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    pub timeouts: Timeouts,
    /// Limits on connections, buffers and requests.
    pub bounds: Bounds,
    /// The number of Workers, the threads that carry connections.
    pub workers: Elasticity,
    /// CPUs that Workers are pinned to, in turn. Empty: Workers are not pinned.
    pub cpus: Vec<usize>,
    /// Sources whose own `X-Forwarded-*` and `Forwarded` fields are kept.
    pub trusted_sources: Vec<Network>,
    /// The protocol for calls to other nodes. Calls from other nodes may use any of the protocols.
    pub between_nodes: Protocol,
    /// Returns the original destination of an intercepted connection. Asks the kernel; tests replace it.
    pub original_destination: OriginalDestination,
    /// Returns the address that this node uses towards its pods. Asks the kernel; tests replace it.
    pub node_address: NodeAddress,
    /// Where Workers ask about what a mesh that names what it has ([`Mesh::named`](heddle_model::Mesh::named)) does not
    /// name; the owner of this proxy answers with another mesh. `None`: such calls are refused.
    pub questions: Option<Questions>,
    /// Where Workers tell what lazy callers use by this node as their gateway. `None`: nowhere.
    pub accesses: Option<AccessSink>,
}

/// Returns the destination that an accepted connection had before it was intercepted.
#[derive(Debug, Clone, Copy)]
pub struct OriginalDestination(pub fn(BorrowedFd<'_>) -> io::Result<SocketAddr>);

impl Default for OriginalDestination {
    fn default() -> Self {
        OriginalDestination(|socket| heddle_intercept::original_destination(socket))
    }
}

impl PartialEq for OriginalDestination {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

/// Returns the node's own address that it would use as the source towards a pod with the given address; `None` if it
/// has none.
#[derive(Debug, Clone, Copy)]
pub struct NodeAddress(pub fn(IpAddr) -> Option<IpAddr>);

impl Default for NodeAddress {
    fn default() -> Self {
        NodeAddress(heddle_intercept::node_address)
    }
}

impl PartialEq for NodeAddress {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

/// Timeouts. A zero duration means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head. On an undeclared port it starts at the end of the first
    /// line.
    pub request_head: Duration,
    /// For each question to the control plane about a destination that the node does not know.
    pub discovery: Duration,
    /// For a client's connection between two requests.
    pub client_idle: Duration,
    /// For each attempt to connect to an endpoint. For opaque connections it includes the wait for room on a link.
    pub connect: Duration,
    /// From the end of the request to the response head, if the route sets no timeout.
    pub response_head: Duration,
    /// For a message in progress: how long either direction may move no byte.
    pub stream_idle: Duration,
    /// For a pooled upstream connection without a request.
    pub upstream_idle: Duration,
    /// For an opaque connection: how long neither direction may move a byte.
    pub tcp_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            request_head: Duration::from_secs(10),
            discovery: Duration::from_secs(4),
            client_idle: Duration::from_secs(300),
            connect: Duration::from_secs(5),
            response_head: Duration::from_secs(60),
            stream_idle: Duration::from_secs(300),
            upstream_idle: Duration::from_secs(60),
            tcp_idle: Duration::from_secs(3600),
        }
    }
}

/// Limits on connections, buffers and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Client connections of the process. One over the limit is closed at once and counted.
    pub connections: usize,
    /// Limits how many of these one workload may open, one pod may accept from outside of the mesh, and one workload
    /// may get from other nodes, each. `None`: as many as are still free. In every case the last eighth is reserved for
    /// sources with few.
    pub connections_per_pod: Option<usize>,
    /// Limits how many connections one client address may open through one listener that does not identify its callers.
    /// An IPv6 network of 64 bits counts as one address. `None`: as many as are still free.
    pub connections_per_address: Option<usize>,
    /// Connections from other nodes that have not proven an identity yet. At the limit the oldest is closed.
    pub handshakes: usize,
    /// Upstream connections for each endpoint. They are divided among the Workers; each Worker gets at least one. Callers
    /// beyond the limit wait, at most for the connect timeout.
    pub connections_per_endpoint: usize,
    /// Idle upstream connections kept for each endpoint, divided among the Workers in the same way. Connections that
    /// have been idle for less than a second do not count, unless this is 0.
    pub idle_per_endpoint: usize,
    /// Links to other nodes for each Worker. At the limit the link that has been idle longest is evicted.
    pub links: usize,
    /// Size of the head of a client's request or an endpoint's response, in bytes. Values above
    /// [`MAX_HEAD_BYTES`](crate::MAX_HEAD_BYTES) count as that.
    pub head_bytes: usize,
    /// Fields in such a head. Values above [`MAX_HEAD_FIELDS`](crate::MAX_HEAD_FIELDS) count as that.
    pub head_fields: usize,
    /// Size of a buffer block, in bytes.
    pub block_bytes: usize,
    /// Buffer blocks of the process. A connection that needs one more is refused. Large blocks for long bodies may take
    /// as many bytes again.
    pub blocks: usize,
    /// Bytes that one direction of one message may buffer while the receiving side is slow.
    pub stream_window_bytes: usize,
    /// Requests on one client connection before it is closed, so that clients reconnect and spread again.
    pub requests_per_connection: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            connections: 8192,
            connections_per_pod: None,
            connections_per_address: None,
            handshakes: 512,
            connections_per_endpoint: 1024,
            idle_per_endpoint: 256,
            links: 1024,
            head_bytes: 32 * 1024,
            head_fields: 100,
            block_bytes: 8 * 1024,
            blocks: 16_384,
            stream_window_bytes: 128 * 1024,
            requests_per_connection: u64::MAX,
        }
    }
}

/// A range of addresses in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The range of all addresses that share the first `prefix` bits with `address`.
    ///
    /// Returns `None` when the prefix is longer than the address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Network { address, prefix })
    }

    /// Whether the range contains `address`. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is not an IP address"))?;
        let prefix = match prefix {
            Some(prefix) => prefix
                .parse()
                .map_err(|_| format!("`{prefix}` is not a prefix length"))?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, prefix).ok_or_else(|| format!("/{prefix} is too long for {address}"))
    }
}

#[cfg(test)]
mod tests;
