//! What a running process says about itself: written by `heddle up`, read by `heddle status` and
//! by scripts. Fields are only ever added.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_intercept::hooks::FullTables;
use heddle_model::{Mesh, SpiffeId};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// The answer to `GET /status`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_s: u64,
    /// Whether requests are being served as the manifests say.
    pub(crate) ready: bool,
    /// Whether the process is on its way out.
    pub(crate) draining: bool,
    /// What that waits for; absent before.
    #[serde(default)]
    pub(crate) drain: Option<DrainStatus>,
    /// The folder of manifests; that of its state for a node of a mesh.
    pub(crate) folder: PathBuf,
    /// Who this node is; absent where there is one node only.
    #[serde(default)]
    pub(crate) identity: Option<IdentityStatus>,
    /// Where providers register by themselves; absent where no registry is followed.
    #[serde(default)]
    pub(crate) registry: Option<RegistryStatus>,
    /// What is intercepted; absent where there is no holder.
    #[serde(default)]
    pub(crate) interception: Option<InterceptionStatus>,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub(crate) metrics: Option<SocketAddr>,
    /// Connections from clients that there may be at a time: the setting, or what the descriptors
    /// suffice for.
    #[serde(default)]
    pub(crate) connections_limit: usize,
    /// Clients that were turned away because there were as many as may be.
    #[serde(default)]
    pub(crate) connections_refused: u64,
    pub(crate) config: ConfigStatus,
    /// The other nodes of the mesh, and other peers that there is a connection with.
    #[serde(default)]
    pub(crate) nodes: Vec<OtherStatus>,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) workloads: Vec<WorkloadStatus>,
    /// The data plane's own words.
    pub(crate) proxy: serde_json::Value,
    pub(crate) usage: UsageStatus,
}

/// The answer to `GET /config`.
#[derive(Serialize)]
pub(crate) struct ConfigDump<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) mesh: &'a Mesh,
    /// Identities on the deny-list.
    pub(crate) denied: Vec<SpiffeId>,
}

/// The registry that is followed beside the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct RegistryStatus {
    /// The member of etcd that is asked, or was last.
    pub(crate) endpoint: String,
    /// What its keys begin with.
    pub(crate) prefix: String,
    /// Whether changes are heard.
    pub(crate) connected: bool,
    /// For how long it is as it is.
    pub(crate) for_s: u64,
    /// Why it is not reached.
    pub(crate) problem: Option<String>,
    /// The revision of etcd up to which everything is known.
    pub(crate) revision: i64,
    /// Providers that are right for themselves.
    pub(crate) providers: usize,
    /// What in it is wrong, left out, or of no use, by reason.
    #[serde(default)]
    pub(crate) problems_by_reason: BTreeMap<String, usize>,
    /// How many of its providers each Service has.
    #[serde(default)]
    pub(crate) services: Vec<ProvidingStatus>,
    /// Providers that are left out, of which there may be a hundred.
    #[serde(default)]
    pub(crate) left_out: Vec<LeftOutStatus>,
}

/// The providers that registered under the name of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ProvidingStatus {
    /// `namespace/name`.
    pub(crate) service: String,
    /// Those that are called.
    pub(crate) called: usize,
    /// All of them, right or wrong.
    pub(crate) registered: usize,
}

/// A provider that registered and is not in the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct LeftOutStatus {
    /// The name that its workload would have, `namespace/service.provider`.
    pub(crate) workload: String,
    pub(crate) reason: String,
}

/// The pods whose traffic is intercepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct InterceptionStatus {
    /// Where the node's holder is asked.
    pub(crate) holder_socket: PathBuf,
    /// Pods that are served.
    pub(crate) serving: u64,
    /// Pods that are not: nothing is known of their workload, or not yet.
    pub(crate) held: u64,
    /// How often the hooks had no room for a connection.
    #[serde(default)]
    pub(crate) full: FullTables,
}

/// What the process waits for before it stops the workloads and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DrainStatus {
    /// Connections that are not over.
    pub(crate) connections: i64,
    /// Time until they are cut.
    pub(crate) left_ms: u64,
}

/// Which configuration is served, and what is wrong with the newest one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ConfigStatus {
    pub(crate) generation: u64,
    pub(crate) services: usize,
    /// Whether the folder as it is now was refused, so that an older state is served.
    pub(crate) stale: bool,
    /// What is wrong in the folder as it is now, one line each.
    pub(crate) problems: Vec<String>,
    /// Listeners that could not be opened, one line each.
    pub(crate) listener_problems: Vec<String>,
}

/// Another node, and what there is between it and this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct OtherStatus {
    /// Absent where no more than an address is known, or several nodes have it.
    pub(crate) node: Option<String>,
    /// Where it takes connections; of one without a name that calls, from where.
    pub(crate) address: String,
    /// By which this node calls it.
    pub(crate) to: ConnectionsStatus,
    /// By which it calls this node.
    pub(crate) from: ConnectionsStatus,
    /// The code of the reason why it could not be spoken to, or a link to it was lost, the last time.
    pub(crate) failure: Option<String>,
    /// How long ago that was.
    pub(crate) failure_ago_s: Option<u64>,
}

/// Connections between two nodes that one of them has made, of all workers together, as of the last second or so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ConnectionsStatus {
    /// Links over which the other node is heard.
    pub(crate) links_up: usize,
    /// Those that are being made.
    pub(crate) links_connecting: usize,
    /// Those that were cut, and may come back.
    pub(crate) links_cut: usize,
    /// For how long the one has been that was cut first.
    pub(crate) cut_for_s: Option<u64>,
    /// Requests and flows on links and connections of HTTP/2.
    pub(crate) streams: usize,
    pub(crate) http2_connections: usize,
    /// Of those that carry one request or flow at a time, the ones that this node has made, if it makes no others.
    pub(crate) http1_connections: usize,
}

/// One open listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct ListenerStatus {
    /// `namespace/name`; absent for a forward proxy, which reaches all that speak HTTP.
    pub(crate) service: Option<String>,
    /// The Service's port. That of `address` differs when this one is privileged.
    pub(crate) port: u16,
    /// The workload that a connection is counted as; absent for unidentified callers.
    pub(crate) caller: Option<String>,
    pub(crate) kind: ListenerKind,
    /// What is spoken: `http`, `h2c`, `grpc`, `tcp`, `tls`, or `undeclared` where each connection's first
    /// bytes say it.
    #[serde(default)]
    pub(crate) protocol: String,
    pub(crate) address: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ListenerKind {
    Service,
    ForwardProxy,
}

/// One workload and, when it has a command, its process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct WorkloadStatus {
    pub(crate) name: String,
    pub(crate) address: std::net::IpAddr,
    /// The ports that it declares.
    #[serde(default)]
    pub(crate) ports: Vec<u16>,
    /// Whether it registered by itself, and stands in no manifest.
    #[serde(default)]
    pub(crate) registered: bool,
    /// Whether it registered, and no Service calls it.
    #[serde(default)]
    pub(crate) uncalled: bool,
    /// Absent when heddle does not run it.
    pub(crate) process: Option<ProcessStatus>,
}

/// The process of a workload's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ProcessStatus {
    /// Absent between two runs.
    pub(crate) pid: Option<u32>,
    /// Runs after the first.
    pub(crate) restarts: u64,
    /// Starts that failed since the last one that did not.
    #[serde(default)]
    pub(crate) failed_starts: u64,
    /// How the last run ended, or why it could not begin.
    pub(crate) last_exit: Option<String>,
}

/// What the process costs; absent is what cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct UsageStatus {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) cpu_ms: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) open_fds: Option<u64>,
    /// Descriptors that there may be.
    #[serde(default)]
    pub(crate) max_fds: Option<u64>,
}

/// Who a node of a mesh is, and for how long. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct IdentityStatus {
    /// The node's name.
    pub(crate) node: String,
    /// Absent until the node has joined.
    pub(crate) trust_domain: Option<String>,
    /// Where other nodes connect.
    pub(crate) mesh_address: Option<SocketAddr>,
    pub(crate) control: ControlConnectionStatus,
    pub(crate) clock: ClockStatus,
    /// Absent until the node has joined.
    pub(crate) trust: Option<TrustStatus>,
    /// The node's own, and those of its workloads.
    pub(crate) identities: Vec<HeldStatus>,
    /// Until when all of them serve if none is renewed.
    pub(crate) serves_until: Option<u64>,
    /// Certificates that took the place of others.
    pub(crate) renewals: u64,
    /// Attempts to get one that came to nothing.
    pub(crate) renewal_failures: u64,
    /// What an operator should look at, one line each; with none all is well.
    pub(crate) problems: Vec<String>,
}

/// Whether the control plane is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ControlConnectionStatus {
    pub(crate) address: String,
    pub(crate) connected: bool,
    /// For how long it is as it is.
    pub(crate) for_s: u64,
    /// Why it is not reached.
    pub(crate) problem: Option<String>,
}

/// The time that certificates are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ClockStatus {
    pub(crate) now: u64,
    /// What was certain once.
    pub(crate) floor: u64,
    /// Whether the system's clock shows less than that.
    pub(crate) degraded: bool,
}

/// What a node trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct TrustStatus {
    pub(crate) bundle_generation: u64,
    pub(crate) roots: usize,
    pub(crate) deny_generation: u64,
    /// Entries of the deny-list that have not ended.
    pub(crate) denied: usize,
}

/// An identity that is held or wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct HeldStatus {
    pub(crate) spiffe_id: String,
    /// The serial number of its certificate, in hexadecimal, as `heddle deny add` takes it.
    #[serde(default)]
    pub(crate) serial: Option<String>,
    /// SHA-256 of the root that vouches for it, as `heddle root status` has it; absent when no root that is
    /// trusted does.
    #[serde(default)]
    pub(crate) root_sha256: Option<String>,
    /// Absent until there is a certificate.
    pub(crate) not_after: Option<u64>,
    /// Why others do not believe it, though it has not expired.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    pub(crate) renew_at: Option<u64>,
    /// Attempts to get one that failed since the last that did not.
    pub(crate) failures: u32,
    /// Why the last one did.
    pub(crate) failure: Option<String>,
}
