//! What a running process says about itself: written by `heddle up`, read by `heddle status` and
//! by scripts. Fields are only ever added.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
    /// The folder of manifests.
    pub(crate) folder: PathBuf,
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
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) workloads: Vec<WorkloadStatus>,
    /// The data plane's own words.
    pub(crate) proxy: serde_json::Value,
    pub(crate) usage: UsageStatus,
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

/// One open listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct ListenerStatus {
    /// `namespace/name`; absent for a forward proxy, which reaches all of them.
    pub(crate) service: Option<String>,
    /// The Service's port. That of `address` differs when this one is privileged.
    pub(crate) port: u16,
    /// The workload that a connection is counted as; absent for unidentified callers.
    pub(crate) caller: Option<String>,
    pub(crate) kind: ListenerKind,
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
    /// Absent when somebody else runs it.
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

/// What the process costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct UsageStatus {
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_ms: u64,
    pub(crate) threads: u64,
    pub(crate) open_fds: u64,
}
