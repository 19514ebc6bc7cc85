//! The fields of the settings file and their defaults.

use std::path::PathBuf;

use heddle_model::{Mode, TrustDomain};
use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::control::Control;
use super::metrics::Metrics;
use super::node::NodeSettings;
use super::proxy::Proxy;
use super::qos::QosSettings;
use super::registry::RegistrySettings;
use super::within::Within;

/// Milliseconds up to an hour; 0 means no limit where the field says so.
type MsWithinHour = Within<0, 3_600_000>;

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Section `mesh`: properties of the mesh that manifests leave open.
    pub mesh: MeshSettings,
    /// Section `admin`: admin socket and metrics.
    pub admin: Admin,
    /// Section `log`: the process's own log.
    pub log: Log,
    /// Section `access_log`: one entry per request; off by default.
    pub access_log: AccessLog,
    /// Section `listeners`: the loopback listeners.
    pub listeners: ListenerSettings,
    /// Section `workloads`: commands of LocalWorkloads.
    pub workloads: Workloads,
    /// Section `drain`: the end of the process.
    pub drain: Drain,
    /// Section `proxy`: the data plane.
    pub proxy: Proxy,
    /// Section `node`: a node of a mesh that has several; other commands ignore it.
    pub node: NodeSettings,
    /// Section `control`: the control plane; nodes ignore it.
    pub control: Control,
    /// Section `registry`: providers that register in etcd.
    pub registry: RegistrySettings,
    /// Section `qos`: node QoS.
    pub qos: QosSettings,
}

/// Properties of the mesh that manifests leave open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeshSettings {
    /// The trust domain of all identities of the mesh.
    pub trust_domain: TrustDomain,
    /// Mode of a workload when neither it nor its namespace sets one.
    pub mode: Mode,
}

/// Admin socket and metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// The Unix socket; by default in `$XDG_RUNTIME_DIR`, else in `/tmp/heddle-<uid>`; for root in `/run/heddle`.
    pub socket: Option<PathBuf>,
    /// TCP address of `/metrics` and `/ready`.
    pub metrics: Metrics,
    /// Most label sets that are counted separately, for requests and for connections each.
    pub metric_series: Within<100, 1_000_000>,
}

impl Default for Admin {
    fn default() -> Self {
        let default = heddle_telemetry::SeriesBounds::default();
        Admin {
            socket: None,
            metrics: Metrics::default(),
            metric_series: Within::nearest(default.label_sets as u64),
        }
    }
}

/// The process's own log, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// The log of requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// A file, or `-` for standard output; off when absent.
    pub path: Option<PathBuf>,
}

/// Listeners on loopback addresses.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerSettings {
    /// Most listeners that are opened: there is one per pair of caller and Service, which grows fast.
    pub max: Within<1, 1_000_000>,
}

/// The commands of LocalWorkloads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workloads {
    /// Whether to run the commands.
    pub run: bool,
    /// Time from SIGTERM to SIGKILL, in milliseconds.
    pub stop_grace_ms: MsWithinHour,
    /// Wait before the first restart, in milliseconds; doubled with each further one.
    pub restart_min_ms: Within<10, 3_600_000>,
    /// Longest wait before a restart, in milliseconds.
    pub restart_max_ms: Within<10, 3_600_000>,
}

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// How long requests may take to finish after SIGTERM, in milliseconds.
    pub timeout_ms: MsWithinHour,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        ListenerSettings {
            max: Within::new(8_192),
        }
    }
}

impl Default for Workloads {
    fn default() -> Self {
        Workloads {
            run: true,
            stop_grace_ms: Within::new(5_000),
            restart_min_ms: Within::new(200),
            restart_max_ms: Within::new(30_000),
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Drain {
            timeout_ms: Within::new(10_000),
        }
    }
}

/// Lowest level of messages that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[expect(
    missing_docs,
    reason = "the help of flags would list them one below the other"
)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How a log message is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Settings {
    /// Takes over the settings of the log and the access log, which change while a process runs. Returns whether `now`
    /// has other changes, which take effect at the next start.
    pub(crate) fn take_logs(&mut self, now: &Settings) -> bool {
        self.log.level = now.log.level;
        self.access_log = now.access_log.clone();
        self != now
    }

    /// Looks for values that are valid on their own, but contradict each other.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let Workloads {
            restart_min_ms,
            restart_max_ms,
            ..
        } = &self.workloads;
        let (min, max) = (restart_min_ms.get(), restart_max_ms.get());
        let restarts = (min > max).then(|| Contradiction {
            fields: vec!["workloads.restart_min_ms", "workloads.restart_max_ms"],
            reason: format!("{min} is more than restart_max_ms, {max}"),
            remedy: "lower restart_min_ms, or raise restart_max_ms".to_owned(),
        });
        restarts
            .or_else(|| self.proxy.contradiction())
            .or_else(|| self.registry.contradiction())
            .or_else(|| self.control.contradiction())
            .or_else(|| self.node.contradiction())
            .or_else(|| self.qos.contradiction())
    }
}
