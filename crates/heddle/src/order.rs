//! What operators' commands ask of a control plane, and what it answers, both as JSON over the admin
//! socket. Fields are only ever added.
//!
//! Texts are checked by the control plane, so that a client that is not one of our commands is told the
//! same.

use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_node::status::{ConfigStatus, RegistryStatus, UsageStatus};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// `POST /order`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Make a join token: [`TokenCreated`].
    TokenCreate { node: String, life_s: u64 },
    /// The tokens that were not used: a list of [`TokenStatus`].
    TokenList,
    /// Take a token back: [`Changed`].
    TokenRevoke { id: String },
    /// Where the root stands: [`RootStatus`].
    RootStatus,
    /// Begin a rotation, or go on with one: [`RootStatus`]. By force: whatever it waits for.
    RootRotate {
        force: bool,
        #[serde(default)]
        supplied: Option<SuppliedRoot>,
    },
    /// Give a rotation up: [`RootStatus`].
    RootCancel,
    /// Refuse an identity or a certificate: [`DenyStatus`]. Without a time, for as long as makes sense.
    DenyAdd {
        what: String,
        reason: String,
        until: Option<u64>,
    },
    /// What is refused: a list of [`DenyStatus`].
    DenyList,
    /// Refuse it no longer: [`Changed`].
    DenyRemove { what: String },
    /// Sign a site's request, in PEM: [`SiteSigned`].
    SiteSign { request: String, life_s: u64 },
}

/// Where a root is that is not to be made. The files are read by the control plane: no key travels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuppliedRoot {
    /// The certificate in PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key in PEM, unencrypted.
    pub(crate) key: PathBuf,
}

/// A new join token. Its text is shown once, and cleared when this is dropped.
#[derive(Deserialize, Serialize)]
pub(crate) struct TokenCreated {
    pub(crate) id: String,
    pub(crate) node: String,
    /// When it cannot be used any more, in seconds since 1970.
    pub(crate) expires: u64,
    /// What the node is given.
    pub(crate) token: Zeroizing<String>,
}

/// A join token that was not used.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TokenStatus {
    pub(crate) id: String,
    pub(crate) node: String,
    pub(crate) created: u64,
    pub(crate) expires: u64,
}

/// Whether there was something to change.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Changed {
    pub(crate) changed: bool,
}

/// What is refused, and until when.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DenyStatus {
    /// A SPIFFE id or a serial number.
    pub(crate) what: String,
    pub(crate) reason: String,
    /// From when on it is not refused any more, in seconds since 1970.
    pub(crate) until: u64,
}

/// What a site's authority starts from, besides its key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SiteSigned {
    /// What `intermediate.pem` holds.
    pub(crate) intermediate_pem: String,
    /// What `root.pem` holds.
    pub(crate) roots_pem: String,
    /// When the intermediate expires, in seconds since 1970.
    pub(crate) not_after: u64,
}

/// How far a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RootStage {
    /// There is one root.
    Steady,
    /// Two are trusted, the old one signs.
    Begun,
    /// Two are trusted, the new one signs.
    Switched,
}

/// Where the root stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RootStatus {
    pub(crate) stage: RootStage,
    /// When the rotation under way began, in seconds since 1970; absent while there is none, and of one that
    /// an older version began.
    #[serde(default)]
    pub(crate) began_at: Option<u64>,
    /// Only in the answer to [`Order::RootRotate`]: whether a rotation was under way before the order came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) joined: bool,
    /// Counts the bundles of roots.
    pub(crate) generation: u64,
    /// SHA-256 of the root that signs, in DER, as a join token has it.
    pub(crate) sha256: String,
    /// Whether it is a site, which signs with an intermediate.
    #[serde(default)]
    pub(crate) site: bool,
    /// When what signs expires, in seconds since 1970.
    pub(crate) expires: u64,
    /// How many nodes there are that may hold a certificate and are not denied.
    pub(crate) nodes: usize,
    /// Those that have not confirmed this generation, and that a rotation waits for; none while there is none.
    pub(crate) waits_for: Vec<String>,
    /// While there is no rotation: those that have not confirmed this generation since the control plane started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unheard: Vec<String>,
    /// When the last certificate of the old root expires; only while the new one signs.
    pub(crate) old_until: Option<u64>,
    /// When the old root is dropped by itself: a little later.
    pub(crate) finish_from: Option<u64>,
    /// What the control plane's clock shows, in seconds since 1970.
    pub(crate) now: u64,
}

/// What a control plane says about itself: its answer to `GET /status`.
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
    /// Where nodes connect to.
    pub(crate) listen: SocketAddr,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub(crate) metrics: Option<SocketAddr>,
    /// The folder of manifests.
    pub(crate) folder: PathBuf,
    /// The authority's folder.
    pub(crate) state: PathBuf,
    pub(crate) config: ConfigStatus,
    /// Where providers register by themselves; absent where no registry is followed.
    #[serde(default)]
    pub(crate) registry: Option<RegistryStatus>,
    /// Which run of the control plane counts the parts of the mesh, and how many there were.
    pub(crate) epoch: String,
    pub(crate) mesh_generation: u64,
    pub(crate) root: RootStatus,
    /// Join tokens that were not used.
    pub(crate) tokens: usize,
    /// Entries of the deny-list, and which list it is.
    pub(crate) denied: usize,
    pub(crate) deny_generation: u64,
    pub(crate) nodes: Vec<NodeStatus>,
    pub(crate) usage: UsageStatus,
}

/// A node that is here, holds a certificate, or has workloads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct NodeStatus {
    pub(crate) name: String,
    /// Where other nodes reach it; absent while it is away.
    pub(crate) address: Option<SocketAddr>,
    /// Where it says it is besides, over another connection: it has just moved, or two machines have its
    /// identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also_at: Vec<SocketAddr>,
    /// When its certificate expires, in seconds since 1970; absent when it holds none.
    pub(crate) certificate_until: Option<u64>,
    /// The generations of the roots and of the deny-list that it has confirmed since this run began.
    pub(crate) bundle: Option<u64>,
    pub(crate) deny_list: Option<u64>,
    /// Workloads of the mesh that are on it.
    pub(crate) workloads: usize,
    /// Whether its identity is on the deny-list.
    pub(crate) denied: bool,
}
