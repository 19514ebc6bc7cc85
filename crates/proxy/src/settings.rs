//! What an operator can set about the data plane. Every limit has a default that is safe on a
//! small node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use heddle_transport::Protocol;

mod elasticity;

pub use elasticity::Elasticity;

/// Settings of the data plane, fixed while it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// How long each kind of wait may last.
    pub timeouts: Timeouts,
    /// How much of everything there may be.
    pub bounds: Bounds,
    /// How many threads carry connections.
    pub workers: Elasticity,
    /// Processors to run them on, each on one of these in turn; any when empty.
    pub cpus: Vec<usize>,
    /// Sources whose own `X-Forwarded-*` and `Forwarded` fields are kept.
    pub trusted_sources: Vec<Network>,
    /// What is spoken to other nodes. All of it is understood, whichever node calls.
    pub between_nodes: Protocol,
    /// Says where an intercepted connection was going: the kernel, but for tests.
    pub original_destination: OriginalDestination,
    /// Says with which address this node speaks to its pods: the kernel, but for tests.
    pub node_address: NodeAddress,
}

/// Says where an accepted connection was going before it was intercepted.
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

/// Says with which address of its own this node would speak to a pod that has the given one; `None` where it has none.
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

/// How long each kind of wait may last. A zero duration means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head; on an undeclared port, from the end of its first line.
    pub request_head: Duration,
    /// A client's connection between two requests.
    pub client_idle: Duration,
    /// Connecting to an endpoint, for each attempt; the wait of bytes for room on a link is a part of it.
    pub connect: Duration,
    /// From the end of the request to the head of the response, where the route sets no limit.
    pub response_head: Duration,
    /// Either direction of a message without a byte moving.
    pub stream_idle: Duration,
    /// A pooled upstream connection without a request.
    pub upstream_idle: Duration,
    /// An opaque connection without a byte in either direction.
    pub tcp_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            request_head: Duration::from_secs(10),
            client_idle: Duration::from_secs(300),
            connect: Duration::from_secs(5),
            response_head: Duration::from_secs(60),
            stream_idle: Duration::from_secs(300),
            upstream_idle: Duration::from_secs(60),
            tcp_idle: Duration::from_secs(3600),
        }
    }
}

/// How much of everything there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Client connections of the process; one more is closed at once and counted.
    pub connections: usize,
    /// Of these, what each pod may open, may get from outside of the mesh, and each workload from other nodes;
    /// `None` for as many as are free besides. The last eighth is for those with few either way.
    pub connections_per_pod: Option<usize>,
    /// Of what comes in by one listener that serves any client, what each address may open; of IPv6 each network of
    /// 64 bits. `None` for as many as are free besides.
    pub connections_per_address: Option<usize>,
    /// Connections from other nodes that have not proven yet who they are; the oldest makes room for one more.
    pub handshakes: usize,
    /// Upstream connections for each endpoint. Each Worker has its share of them, at least one.
    pub connections_per_endpoint: usize,
    /// Idle upstream connections kept for each endpoint, shared among the Workers likewise.
    pub idle_per_endpoint: usize,
    /// Links to other nodes for each Worker; the one that has been idle for longest makes room for one more.
    pub links: usize,
    /// A request's or response's head, in bytes, of a client or an endpoint; at most [`MAX_HEAD_BYTES`](crate::MAX_HEAD_BYTES) count.
    pub head_bytes: usize,
    /// Fields in such a head; at most [`MAX_HEAD_FIELDS`](crate::MAX_HEAD_FIELDS) count.
    pub head_fields: usize,
    /// Size of a buffer block, in bytes.
    pub block_bytes: usize,
    /// Buffer blocks of the process; a connection that needs one more is refused. Bodies that fill
    /// blocks may take as many bytes again.
    pub blocks: usize,
    /// Bytes that one direction of one message may hold while the other side is slow.
    pub stream_window_bytes: usize,
    /// Requests on one client connection before it is closed, so that clients spread again.
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

    /// Whether the range holds `address`. An IPv4-mapped IPv6 address counts as its IPv4 one.
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
                .map_err(|_| format!("`{prefix}` is no prefix length"))?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, prefix).ok_or_else(|| format!("/{prefix} is too long for {address}"))
    }
}

#[cfg(test)]
mod tests;
