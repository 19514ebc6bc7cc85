//! What a running process says about itself: written by `heddle up`, read by `heddle status` and
//! by scripts. Fields are only ever added.

use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_intercept::hooks::FullTables;
use heddle_model::{Mesh, SpiffeId};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
pub use registry::{LeftOutStatus, ProvidingStatus, RegistryStatus};

mod registry;

/// The answer to `GET /status`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// How long ago it was started, in seconds.
    pub uptime_s: u64,
    /// Whether requests are being served as the manifests say.
    pub ready: bool,
    /// Whether the process is on its way out.
    pub draining: bool,
    /// What that waits for; absent before.
    #[serde(default)]
    pub drain: Option<DrainStatus>,
    /// The folder of manifests; that of its state for a node of a mesh.
    pub folder: PathBuf,
    /// Who this node is; absent where there is one node only.
    #[serde(default)]
    pub identity: Option<IdentityStatus>,
    /// Where providers register by themselves; absent where no registry is followed.
    #[serde(default)]
    pub registry: Option<RegistryStatus>,
    /// What is intercepted; absent where there is no holder.
    #[serde(default)]
    pub interception: Option<InterceptionStatus>,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub metrics: Option<SocketAddr>,
    /// Connections from clients that there may be at a time: the setting, or what the descriptors
    /// suffice for.
    #[serde(default)]
    pub connections_limit: usize,
    /// Clients that were turned away because there were as many as may be.
    #[serde(default)]
    pub connections_refused: u64,
    /// Which configuration is served.
    pub config: ConfigStatus,
    /// The other nodes of the mesh, and other peers that there is a connection with.
    #[serde(default)]
    pub nodes: Vec<OtherStatus>,
    /// Where local callers connect.
    pub listeners: Vec<ListenerStatus>,
    /// The workloads of this node.
    pub workloads: Vec<WorkloadStatus>,
    /// The data plane's own words.
    pub proxy: serde_json::Value,
    /// What the process costs.
    pub usage: UsageStatus,
}

/// The answer to `GET /config`.
#[derive(Serialize)]
pub struct ConfigDump<'a> {
    /// The settings of the process.
    pub settings: &'a Settings,
    /// The mesh that is served.
    pub mesh: &'a Mesh,
    /// Identities on the deny-list.
    pub denied: Vec<SpiffeId>,
}

/// The pods whose traffic is intercepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct InterceptionStatus {
    /// Where the node's holder is asked.
    pub holder_socket: PathBuf,
    /// Pods that are served.
    pub serving: u64,
    /// Pods that are not: nothing is known of their workload, or not yet.
    pub held: u64,
    /// How often the hooks had no room for a connection.
    #[serde(default)]
    pub full: FullTables,
}

/// What the process waits for before it stops the workloads and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DrainStatus {
    /// Connections that are not over.
    pub connections: i64,
    /// Time until they are cut.
    pub left_ms: u64,
}

/// Which configuration is served, and what is wrong with the newest one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ConfigStatus {
    /// Counts configurations; 0 before the first.
    pub generation: u64,
    /// Services of the mesh.
    pub services: usize,
    /// Whether the folder as it is now was refused, so that an older state is served.
    pub stale: bool,
    /// What is wrong in the folder as it is now, one line each.
    pub problems: Vec<String>,
    /// Listeners that could not be opened, one line each.
    pub listener_problems: Vec<String>,
}

/// Another node, and what there is between it and this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct OtherStatus {
    /// Absent where no more than an address is known, or several nodes have it.
    pub node: Option<String>,
    /// Where it takes connections; of one without a name that calls, from where.
    pub address: String,
    /// By which this node calls it.
    pub to: ConnectionsStatus,
    /// By which it calls this node.
    pub from: ConnectionsStatus,
    /// The code of the reason why it could not be spoken to, or a link to it was lost, the last time.
    pub failure: Option<String>,
    /// How long ago that was.
    pub failure_ago_s: Option<u64>,
}

/// Connections between two nodes that one of them has made, of all workers together, as of the last second or so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ConnectionsStatus {
    /// Links over which the other node is heard.
    pub links_up: usize,
    /// Those that are being made.
    pub links_connecting: usize,
    /// Those that were cut, and may come back.
    pub links_cut: usize,
    /// For how long the one has been that was cut first.
    pub cut_for_s: Option<u64>,
    /// Requests and flows on links and connections of HTTP/2.
    pub streams: usize,
    /// Connections of HTTP/2.
    pub http2_connections: usize,
    /// Of those that carry one request or flow at a time, the ones that this node has made, if it makes no others.
    pub http1_connections: usize,
}

/// One open listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ListenerStatus {
    /// `namespace/name`; absent for a forward proxy, which reaches all that speak HTTP.
    pub service: Option<String>,
    /// The Service's port. That of `address` differs when this one is privileged.
    pub port: u16,
    /// The workload that a connection is counted as; absent for unidentified callers.
    pub caller: Option<String>,
    /// What it is for.
    pub kind: ListenerKind,
    /// What is spoken: `http`, `h2c`, `grpc`, `tcp`, `tls`, or `undeclared` where each connection's first
    /// bytes say it.
    #[serde(default)]
    pub protocol: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerKind {
    /// One Service.
    Service,
    /// Every Service that speaks HTTP, as `http_proxy`.
    ForwardProxy,
}

/// One workload and, when it has a command, its process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct WorkloadStatus {
    /// `namespace/name`.
    pub name: String,
    /// Where it is called.
    pub address: std::net::IpAddr,
    /// The ports that it declares.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Whether it registered by itself, and stands in no manifest.
    #[serde(default)]
    pub registered: bool,
    /// Whether it registered, and no Service calls it.
    #[serde(default)]
    pub uncalled: bool,
    /// Absent when heddle does not run it.
    pub process: Option<ProcessStatus>,
}

/// The process of a workload's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessStatus {
    /// Absent between two runs.
    pub pid: Option<u32>,
    /// Runs after the first.
    pub restarts: u64,
    /// Starts that failed since the last one that did not.
    #[serde(default)]
    pub failed_starts: u64,
    /// How the last run ended, or why it could not begin.
    pub last_exit: Option<String>,
}

/// What the process costs; absent is what cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UsageStatus {
    /// Memory that the process has, in bytes.
    pub resident_bytes: Option<u64>,
    /// Time on processors since its start, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Descriptors that are open.
    pub open_fds: Option<u64>,
    /// Descriptors that there may be.
    #[serde(default)]
    pub max_fds: Option<u64>,
}

/// Who a node of a mesh is, and for how long. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct IdentityStatus {
    /// The node's name.
    pub node: String,
    /// Absent until the node has joined.
    pub trust_domain: Option<String>,
    /// Where other nodes connect.
    pub mesh_address: Option<SocketAddr>,
    /// How the control plane is reached.
    pub control: ControlConnectionStatus,
    /// What certificates are judged by.
    pub clock: ClockStatus,
    /// Absent until the node has joined.
    pub trust: Option<TrustStatus>,
    /// The node's own, and those of its workloads.
    pub identities: Vec<HeldStatus>,
    /// Until when all of them serve if none is renewed.
    pub serves_until: Option<u64>,
    /// Certificates that took the place of others.
    pub renewals: u64,
    /// Attempts to get one that came to nothing.
    pub renewal_failures: u64,
    /// What an operator should look at, one line each; with none all is well.
    pub problems: Vec<String>,
}

/// Whether the control plane is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ControlConnectionStatus {
    /// `HOST:PORT`, as it was given.
    pub address: String,
    /// Whether it is reached.
    pub connected: bool,
    /// For how long it is as it is.
    pub for_s: u64,
    /// Why it is not reached.
    pub problem: Option<String>,
}

/// The time that certificates are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClockStatus {
    /// What it shows.
    pub now: u64,
    /// What was certain once.
    pub floor: u64,
    /// Whether the system's clock shows less than that.
    pub degraded: bool,
}

/// What a node trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TrustStatus {
    /// Counts the bundles of roots.
    pub bundle_generation: u64,
    /// Roots that are trusted.
    pub roots: usize,
    /// Counts the deny-lists.
    pub deny_generation: u64,
    /// Entries of the deny-list that have not ended.
    pub denied: usize,
}

/// An identity that is held or wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct HeldStatus {
    /// The identity.
    pub spiffe_id: String,
    /// The serial number of its certificate, in hexadecimal, as `heddle deny add` takes it.
    #[serde(default)]
    pub serial: Option<String>,
    /// SHA-256 of the root that vouches for it, as `heddle root status` has it; absent when no root that is
    /// trusted does.
    #[serde(default)]
    pub root_sha256: Option<String>,
    /// Absent until there is a certificate.
    pub not_after: Option<u64>,
    /// Why others do not believe it, though it has not expired.
    #[serde(default)]
    pub refused: Option<String>,
    /// When its certificate is renewed; absent when none is held.
    pub renew_at: Option<u64>,
    /// Attempts to get one that failed since the last that did not.
    pub failures: u32,
    /// Why the last one did.
    pub failure: Option<String>,
}
