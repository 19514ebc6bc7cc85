//! The names of resources, and of what they refer to.

use std::fmt;
use std::net::SocketAddr;

use heddle_model::ServiceName;

/// Secret: the certificate and key of the workload.
pub const LEAF: &str = "heddle:leaf";
/// Secret: the roots that peers' certificates are verified with.
pub const ROOTS: &str = "heddle:roots";
/// The only RouteConfiguration: outbound requests.
pub(crate) const OUTBOUND: &str = "outbound";
/// The RouteConfiguration of a gateway: requests of lazy callers.
pub(crate) const FORWARDED: &str = "forwarded";
/// The filter of a gateway in which the policies of routes are.
pub(crate) const FORWARDED_POLICY: &str = "rbac.forwarded";
/// Cluster: the gateways, for what a lazy Envoy does not know.
pub(crate) const GATEWAY: &str = "heddle-gateway";
/// Cluster: the workload itself.
pub(crate) const INBOUND: &str = "heddle-inbound";
/// Cluster: the original destination, as the client asked for it.
pub(crate) const PASSTHROUGH: &str = "heddle-passthrough";
/// Cluster: nothing.
pub(crate) const BLACKHOLE: &str = "heddle-blackhole";
/// Cluster: the control plane, in the bootstrap.
pub(crate) const CONTROL: &str = "heddle-control";

/// Request header from a gateway to a destination: the original caller.
pub(crate) use heddle_model::CALLER_FIELD as CALLER;
/// Request header: the original destination of the client's connection. A client's own is replaced.
pub(crate) use heddle_model::ORIGINAL_DST_FIELD as ORIGINAL_DST;

/// How the connections of a cluster are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Flavour {
    /// HTTP/1.1 requests.
    Requests,
    /// Opaque bytes.
    Bytes,
}

/// The name of a Service port's cluster, and of its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterName<'m> {
    /// The Service.
    pub service: &'m ServiceName,
    /// The Service's port.
    pub port: u16,
    /// How its connections are used.
    pub flavour: Flavour,
}

impl fmt::Display for ClusterName<'_> {
    /// `NAMESPACE/SERVICE/PORT`, for bytes with `/bytes` behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.port)?;
        match self.flavour {
            Flavour::Requests => Ok(()),
            Flavour::Bytes => f.write_str("/bytes"),
        }
    }
}

/// The name of the listener for bytes to an address of a Service: `bytes/NAMESPACE/SERVICE/IP:PORT`.
pub(crate) fn bytes_listener(service: &ServiceName, at: SocketAddr) -> String {
    format!("bytes/{service}/{at}")
}

/// The Service, as `NAMESPACE/SERVICE`, that the name of a cluster or of a listener for bytes is about. `None`: it is about
/// none.
pub(crate) fn service_of(name: &str) -> Option<&str> {
    let name = name.strip_prefix("bytes/").unwrap_or(name);
    let (at, _) = name.match_indices('/').nth(1)?;
    name.get(..at)
}
