//! Status of a running process: written by `heddle up`, read by `heddle status` and by scripts. Fields are only ever
//! added.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_intercept::hooks::FullTables;
use heddle_model::report::{InForce, Report};
use heddle_model::{Mesh, SpiffeId};
use heddle_telemetry::exposition::{DescriptorEncoder, gauges};
use heddle_telemetry::families::process;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
pub use latencies::Latencies;
pub use learned::{DiscoveryStatus, LearnedState, LearnedStatus};
pub use registry::{LeftOutStatus, ProvidingStatus, RegistryStatus};

mod latencies;
mod learned;
mod registry;

/// The answer to `GET /status`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Id of the process.
    pub pid: u32,
    /// Time since the process started, in seconds.
    pub uptime_s: u64,
    /// Whether requests are served as the manifests define.
    pub ready: bool,
    /// Whether the process is draining before it ends.
    pub draining: bool,
    /// Progress of the drain; absent before it begins.
    #[serde(default)]
    pub drain: Option<DrainStatus>,
    /// Folder of the manifests; for a node of a mesh, its state folder.
    pub folder: PathBuf,
    /// This node's identity; absent where there is only one node.
    #[serde(default)]
    pub identity: Option<IdentityStatus>,
    /// The registry that providers register in; absent where none is followed.
    #[serde(default)]
    pub registry: Option<RegistryStatus>,
    /// Intercepted pods; absent without a holder.
    #[serde(default)]
    pub interception: Option<InterceptionStatus>,
    /// The agent of node QoS; absent where the node runs none.
    #[serde(default)]
    pub qos: Option<QosStatus>,
    /// TCP address of `/metrics` and `/ready`, if they are served.
    pub metrics: Option<SocketAddr>,
    /// Most client connections at a time: by the setting, or by the limit of descriptors.
    #[serde(default)]
    pub connections_limit: usize,
    /// Clients that were refused because the connection limit was reached.
    #[serde(default)]
    pub connections_refused: u64,
    pub config: ConfigStatus,
    /// The other nodes of the mesh, and further connected peers.
    #[serde(default)]
    pub nodes: Vec<OtherStatus>,
    /// What the node has learned of the mesh; absent for one that is told all of it.
    #[serde(default)]
    pub discovery: Option<DiscoveryStatus>,
    /// Listeners for local callers.
    pub listeners: Vec<ListenerStatus>,
    /// The workloads of this node.
    pub workloads: Vec<WorkloadStatus>,
    /// Status of the data plane, as it reports it.
    pub proxy: serde_json::Value,
    /// Resources that the process uses.
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

/// Numbers of intercepted pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct InterceptionStatus {
    /// Socket of the node's holder, for operators.
    pub holder_socket: PathBuf,
    /// Pods that are served.
    pub serving: u64,
    /// Pods that are not served, because their workload is not (yet) in the mesh.
    pub held: u64,
    /// Connections for which a table of the hooks was full.
    #[serde(default)]
    pub full: FullTables,
}

/// The agent of node QoS, which the node runs as a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct QosStatus {
    /// Folder of its journal, from which `heddle qos status` reads what it does.
    pub state: PathBuf,
}

impl QosStatus {
    /// That of a node with these settings.
    pub(crate) fn of(settings: &Settings) -> Option<QosStatus> {
        settings.qos.enabled.then(|| QosStatus {
            state: settings.qos.state_folder().to_owned(),
        })
    }
}

/// Progress of the drain, after which the process stops the workloads and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DrainStatus {
    /// Connections that are still open.
    pub connections: i64,
    /// Time until they are cut, in milliseconds.
    pub left_ms: u64,
}

/// The configuration that is served, and the problems of the newest one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ConfigStatus {
    /// Number of the configuration, counted up; 0 before the first.
    pub generation: u64,
    /// Number of Services in the mesh.
    pub services: usize,
    /// Whether the folder's current content was refused as a whole, so that an older state is served.
    pub stale: bool,
    /// Errors and warnings of the folder's current content, one line each.
    pub problems: Vec<String>,
    /// Objects of the folder that are not in force as they are written, while the others are; 500 at most.
    #[serde(default)]
    pub refused: Vec<RefusedStatus>,
    /// The number of all of them.
    #[serde(default)]
    pub refused_counts: RefusedCounts,
    /// Listeners that could not be opened, one line each.
    pub listener_problems: Vec<String>,
}

/// An object that is refused by itself. The problems say why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RefusedStatus {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Its file and line.
    pub origin: String,
    /// What is in force instead.
    pub in_force: InForce,
}

/// Numbers of refused objects, by what is in force instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RefusedCounts {
    pub last_good: u64,
    pub closed: u64,
    pub nothing: u64,
}

impl RefusedCounts {
    /// All of them together.
    pub fn all(self) -> u64 {
        self.last_good + self.closed + self.nothing
    }
}

/// Most refused objects that are listed.
const MAX_REFUSED: usize = 500;

impl RefusedStatus {
    /// The refused objects of a report.
    fn of(report: &Report) -> Vec<RefusedStatus> {
        let refused = report.refused.iter().take(MAX_REFUSED);
        let refused = refused.map(|refused| RefusedStatus {
            object: refused.object.clone(),
            origin: refused.origin.to_string(),
            in_force: refused.in_force,
        });
        refused.collect()
    }
}

impl ConfigStatus {
    /// Takes note of the objects that a report says are refused. Of a folder that is refused as a whole, the same ones are
    /// as before.
    pub fn note_refused(&mut self, report: &Report) {
        if report.is_refused {
            return;
        }
        self.refused = RefusedStatus::of(report);
        let [(_, last_good), (_, closed), (_, nothing)] = report.refused_by_what_is_in_force();
        self.refused_counts = RefusedCounts {
            last_good,
            closed,
            nothing,
        };
    }

    /// Encodes how many objects are refused.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn encode_refused(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.refused_counts;
        let counts = [
            (InForce::LastGood, counts.last_good),
            (InForce::Closed, counts.closed),
            (InForce::Nothing, counts.nothing),
        ];
        let counts = counts.map(|(in_force, count)| ([("in_force", in_force.as_str())], count));
        gauges(encoder, &process::CONFIG_OBJECTS_REFUSED, counts)
    }
}

/// Another node, and the connections between it and this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct OtherStatus {
    /// Name of the node; absent where only an address is known, or several nodes share it.
    pub node: Option<String>,
    /// Address at which the node accepts connections; for an unnamed caller, its source address.
    pub address: String,
    /// Connections made by this node.
    pub to: ConnectionsStatus,
    /// Connections made by the other node.
    pub from: ConnectionsStatus,
    /// Reason code of the last failed connection or lost link.
    pub failure: Option<String>,
    /// Seconds since that failure.
    pub failure_ago_s: Option<u64>,
}

/// Connections between two nodes in one direction, summed over all Workers, as of the last second or so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ConnectionsStatus {
    /// Links that are up: the other node responds.
    pub links_up: usize,
    /// Links that are being established.
    pub links_connecting: usize,
    /// Links that were cut, and may recover.
    pub links_cut: usize,
    /// Seconds since the oldest of them was cut.
    pub cut_for_s: Option<u64>,
    /// Requests and flows on links and HTTP/2 connections.
    pub streams: usize,
    pub http2_connections: usize,
    /// Connections that carry one request or flow at a time. Counted only if this node made them and makes no others.
    pub http1_connections: usize,
}

/// One open listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ListenerStatus {
    /// `namespace/name`; absent for a forward proxy, which reaches all HTTP Services.
    pub service: Option<String>,
    /// The Service's port. The port of `address` differs when this one is privileged or in use.
    pub port: u16,
    /// The workload that callers at this listener count as; absent for unidentified callers.
    pub caller: Option<String>,
    pub kind: ListenerKind,
    /// Protocol: `http`, `h2c`, `grpc`, `tcp`, `tls`, or `undeclared` where it is detected from each connection's first
    /// bytes.
    #[serde(default)]
    pub protocol: String,
    pub address: SocketAddr,
}

/// Purpose of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerKind {
    /// Reaches one Service.
    Service,
    /// Reaches every HTTP Service, as `http_proxy`.
    ForwardProxy,
}

/// One workload and, when it has a command, its process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct WorkloadStatus {
    /// `namespace/name`.
    pub name: String,
    /// Address at which it is called.
    pub address: std::net::IpAddr,
    /// Ports that it declares.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Whether it registered itself, rather than being in a manifest.
    #[serde(default)]
    pub registered: bool,
    /// Whether it registered, but is not an endpoint of any Service.
    #[serde(default)]
    pub uncalled: bool,
    /// Absent when heddle does not run it.
    pub process: Option<ProcessStatus>,
}

/// The process of a workload's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessStatus {
    /// Id of the process; absent between two runs.
    pub pid: Option<u32>,
    /// Runs after the first.
    pub restarts: u64,
    /// Failed starts since the last successful one.
    #[serde(default)]
    pub failed_starts: u64,
    /// How the last run ended, or why it failed to start.
    pub last_exit: Option<String>,
}

/// Resources that the process uses; unknown values are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UsageStatus {
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// CPU time since the start, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Limit of open file descriptors.
    #[serde(default)]
    pub max_fds: Option<u64>,
}

/// Identities of a node and their expiry. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct IdentityStatus {
    /// The node's name.
    pub node: String,
    /// Absent until the node has joined.
    pub trust_domain: Option<String>,
    /// Address at which other nodes connect to this one.
    pub mesh_address: Option<SocketAddr>,
    /// State of the connection to the control plane.
    pub control: ControlConnectionStatus,
    /// The clock that certificates are checked against.
    pub clock: ClockStatus,
    /// Absent until the node has joined.
    pub trust: Option<TrustStatus>,
    /// The node's own identity, and those of its workloads.
    pub identities: Vec<HeldStatus>,
    /// Earliest expiry of all certificates: until then all of them serve without renewal.
    pub serves_until: Option<u64>,
    /// Renewed certificates since the process started.
    pub renewals: u64,
    /// Failed requests for certificates since the process started.
    pub renewal_failures: u64,
    /// Whether a file of the state folder is damaged, or could not be written.
    #[serde(default)]
    pub unsaved: bool,
    /// Problems for the operator, one line each; empty when all is well.
    pub problems: Vec<String>,
}

/// State of the connection to the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ControlConnectionStatus {
    /// `HOST:PORT`, as configured.
    pub address: String,
    /// Whether the control plane is connected.
    pub connected: bool,
    /// Seconds since `connected` last changed.
    pub for_s: u64,
    /// Why it is not connected.
    pub problem: Option<String>,
}

/// The clock that certificates are checked against, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClockStatus {
    /// Current time of this clock.
    pub now: u64,
    /// Time floor: the latest time that is known to have passed.
    pub floor: u64,
    /// Whether the system's clock is behind the floor.
    pub degraded: bool,
}

/// Generations and sizes of a node's trust bundle and deny-list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TrustStatus {
    pub bundle_generation: u64,
    /// Number of trusted roots.
    pub roots: usize,
    /// Generation of the deny-list.
    pub deny_generation: u64,
    /// Deny-list entries that have not expired.
    pub denied: usize,
}

/// An identity that the node has or wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct HeldStatus {
    /// The identity's SPIFFE ID.
    pub spiffe_id: String,
    /// Serial number of its certificate, in the hexadecimal form that `heddle deny add` takes.
    #[serde(default)]
    pub serial: Option<String>,
    /// SHA-256 of the trusted root that signed it, as `heddle root status` shows it; absent when no trusted root did.
    #[serde(default)]
    pub root_sha256: Option<String>,
    /// Expiry of its certificate; absent before the first.
    pub not_after: Option<u64>,
    /// Why other nodes refuse it although it has not expired.
    #[serde(default)]
    pub refused: Option<String>,
    /// When renewal is due; absent before the first certificate.
    pub renew_at: Option<u64>,
    /// Failed requests since the last success.
    pub failures: u32,
    /// Why the last request failed.
    pub failure: Option<String>,
}
