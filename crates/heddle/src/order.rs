//! Orders of operators' commands to a control plane, and the answers, both as JSON over the admin socket. Fields are
//! only ever added.
//!
//! The control plane checks all values itself, so that a client other than our commands gets the same errors.

use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_node::status::{ConfigStatus, RegistryStatus, UsageStatus};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Body of `POST /order`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Create a join token. Answer: [`TokenCreated`].
    TokenCreate { node: String, ttl_s: u64 },
    /// List the unused tokens. Answer: a list of [`TokenStatus`].
    TokenList,
    /// Revoke a token. Answer: [`Changed`].
    TokenRevoke { id: String },
    /// Get the state of the root. Answer: [`RootStatus`].
    RootStatus,
    /// Begin or continue a rotation; `force` goes on without waiting for nodes. Answer: [`RootStatus`].
    RootRotate {
        force: bool,
        #[serde(default)]
        supplied: Option<SuppliedRoot>,
    },
    /// Cancel a rotation. Answer: [`RootStatus`].
    RootCancel,
    /// Deny an identity or a certificate; without `until`, for the default time of its kind. Answer: [`DenyStatus`].
    DenyAdd {
        what: String,
        reason: String,
        until: Option<u64>,
    },
    /// List the deny-list. Answer: a list of [`DenyStatus`].
    DenyList,
    /// Remove an entry of the deny-list. Answer: [`Changed`].
    DenyRemove { what: String },
    /// Sign a site's request, in PEM. Answer: [`SiteSigned`].
    SiteSign { request: String, ttl_s: u64 },
    /// Issue the certificate with which the Envoy of a workload connects. Answer: [`EnvoyLinked`].
    EnvoyLink { workload: String, ttl_s: u64 },
    /// List what a workload with an Envoy depends on. Answer: [`DependenciesStatus`].
    Dependencies { workload: String },
}

/// Files of an operator's own root. The control plane reads them: the key is not sent over the socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuppliedRoot {
    /// The certificate in PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key in PEM, unencrypted.
    pub(crate) key: PathBuf,
}

/// A new join token. Its text is shown only once, and wiped from memory on drop.
#[derive(Deserialize, Serialize)]
pub(crate) struct TokenCreated {
    pub(crate) id: String,
    pub(crate) node: String,
    /// Expiry, in seconds since 1970.
    pub(crate) expires: u64,
    /// Text of the token, for the node.
    pub(crate) token: Zeroizing<String>,
}

/// An unused join token. Times are in seconds since 1970.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TokenStatus {
    pub(crate) id: String,
    pub(crate) node: String,
    pub(crate) created: u64,
    pub(crate) expires: u64,
}

/// Whether the order changed something.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Changed {
    pub(crate) changed: bool,
}

/// An entry of the deny-list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DenyStatus {
    /// A SPIFFE id or a serial number.
    pub(crate) what: String,
    pub(crate) reason: String,
    /// Expiry of the entry, in seconds since 1970.
    pub(crate) until: u64,
}

/// Files that a site's authority starts from, besides its key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SiteSigned {
    /// Content of `intermediate.pem`.
    pub(crate) intermediate_pem: String,
    /// Content of `root.pem`.
    pub(crate) roots_pem: String,
    /// When the intermediate expires, in seconds since 1970.
    pub(crate) not_after: u64,
}

/// What the Envoy of a workload connects with.
#[derive(Deserialize, Serialize)]
pub(crate) struct EnvoyLinked {
    /// `NAMESPACE/NAME`.
    pub(crate) workload: String,
    pub(crate) trust_domain: String,
    /// The certificate and its chain in PEM.
    pub(crate) chain_pem: String,
    /// The private key in PEM, wiped from memory on drop.
    pub(crate) key_pem: Zeroizing<String>,
    pub(crate) roots_pem: String,
    /// When the certificate expires, in seconds since 1970.
    pub(crate) not_after: u64,
    /// Where the control plane listens.
    pub(crate) listen: SocketAddr,
}

/// What a workload with an Envoy depends on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DependenciesStatus {
    /// `NAMESPACE/NAME`.
    pub(crate) workload: String,
    /// The account whose workloads share what they learn: `NAMESPACE/NAME`.
    pub(crate) account: String,
    /// Whether its Envoy knows these Services only. If not, why it knows all of them.
    pub(crate) lazy: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) because: Option<String>,
    pub(crate) dependencies: Vec<DependencyStatus>,
}

/// A Service that a workload depends on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DependencyStatus {
    /// `NAMESPACE/NAME`.
    pub(crate) service: String,
    /// Whether the workload declares it: it is never forgotten.
    pub(crate) declared: bool,
    /// When it was learned, in seconds since 1970; none if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) learned: Option<u64>,
    /// When it was last used, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<u64>,
    /// Whether it exists.
    pub(crate) exists: bool,
    /// Resources of it that the Envoy has, and their bytes.
    pub(crate) resources: usize,
    pub(crate) bytes: usize,
}

/// Stage of a rotation of roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RootStage {
    /// No rotation: one root is trusted.
    Steady,
    /// Two roots are trusted, the old one signs.
    Begun,
    /// Two roots are trusted, the new one signs.
    Switched,
}

/// State of the root and of a rotation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RootStatus {
    pub(crate) stage: RootStage,
    /// When the current rotation began, in seconds since 1970; absent without a rotation, and for one that an older
    /// version began.
    #[serde(default)]
    pub(crate) began_at: Option<u64>,
    /// Only in the answer to [`Order::RootRotate`]: whether a rotation was under way before the order came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) joined: bool,
    /// Generation of the trust bundle.
    pub(crate) generation: u64,
    /// SHA-256 of the signing root's DER, as in a join token.
    pub(crate) sha256: String,
    /// Whether this authority is a site's, which signs with an intermediate.
    #[serde(default)]
    pub(crate) site: bool,
    /// Expiry of the signing certificate (root or intermediate), in seconds since 1970.
    pub(crate) expires: u64,
    /// Number of nodes that may hold a certificate and are not denied.
    pub(crate) nodes: usize,
    /// Nodes that a rotation waits for: they have not confirmed this generation. Empty without a rotation.
    pub(crate) waits_for: Vec<String>,
    /// Without a rotation: nodes that have not confirmed this generation since the control plane started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unheard: Vec<String>,
    /// Expiry of the last certificate that the old root signed; only while the new root signs.
    pub(crate) old_until: Option<u64>,
    /// When the old root is dropped automatically, a little after `old_until`.
    pub(crate) finish_from: Option<u64>,
    /// The control plane's time, in seconds since 1970.
    pub(crate) now: u64,
}

/// A control plane's answer to `GET /status`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ControlStatus {
    /// Always `control`: a node's status has no role.
    pub(crate) role: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_s: u64,
    pub(crate) ready: bool,
    pub(crate) draining: bool,
    pub(crate) trust_domain: String,
    /// Address at which nodes connect.
    pub(crate) listen: SocketAddr,
    /// TCP address of `/metrics` and `/ready`, if they are served.
    pub(crate) metrics: Option<SocketAddr>,
    /// The folder of manifests.
    pub(crate) folder: PathBuf,
    /// The authority's folder.
    pub(crate) state: PathBuf,
    pub(crate) config: ConfigStatus,
    /// The registry that providers register in; absent where none is followed.
    #[serde(default)]
    pub(crate) registry: Option<RegistryStatus>,
    /// Identifies this run of the control plane; `mesh_generation` counts within it.
    pub(crate) epoch: String,
    pub(crate) mesh_generation: u64,
    pub(crate) root: RootStatus,
    /// Number of unused join tokens.
    pub(crate) tokens: usize,
    /// Number of entries of the deny-list, whose generation is `deny_generation`.
    pub(crate) denied: usize,
    pub(crate) deny_generation: u64,
    pub(crate) nodes: Vec<NodeStatus>,
    /// Workloads with an Envoy.
    #[serde(default)]
    pub(crate) envoys: Vec<EnvoyStatus>,
    /// The gateways of lazy Envoys.
    #[serde(default)]
    pub(crate) gateways: Vec<GatewayStatus>,
    pub(crate) usage: UsageStatus,
}

/// The Envoy of a workload.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct EnvoyStatus {
    /// `NAMESPACE/NAME`.
    pub(crate) workload: String,
    /// For how long it has been connected; absent while it is not.
    pub(crate) connected_s: Option<u64>,
    /// Expiry of the certificate with which it has connected, in seconds since 1970.
    pub(crate) certificate_until: Option<u64>,
    /// Whether it knows only what its workload uses.
    pub(crate) lazy: bool,
}

/// A workload that makes its Envoy, or its node's proxy, a gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct GatewayStatus {
    /// `NAMESPACE/NAME`.
    pub(crate) workload: String,
    /// The node whose proxy is the gateway; absent for an Envoy.
    pub(crate) node: Option<String>,
    /// Whether the Envoy or the node is connected to the control plane.
    pub(crate) connected: bool,
}

/// A node that is connected, holds a certificate, or has workloads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct NodeStatus {
    pub(crate) name: String,
    /// Address at which other nodes reach it; absent while it is not connected.
    pub(crate) address: Option<SocketAddr>,
    /// Further addresses that it reported over other connections: it has just moved, or two machines use its identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also_at: Vec<SocketAddr>,
    /// Expiry of its certificate, in seconds since 1970; absent when it holds none.
    pub(crate) certificate_until: Option<u64>,
    /// Generation of the trust bundle that it has confirmed during this run; `deny_list` is that of the deny-list.
    pub(crate) bundle: Option<u64>,
    pub(crate) deny_list: Option<u64>,
    /// Generation of the mesh of which it has its part; absent while it has not been told everything.
    #[serde(default)]
    pub(crate) mesh_generation: Option<u64>,
    /// Generation of the last change of its part.
    #[serde(default)]
    pub(crate) changed_generation: Option<u64>,
    /// Number of the mesh's workloads on this node.
    pub(crate) workloads: usize,
    /// Whether its identity is on the deny-list.
    pub(crate) denied: bool,
}
