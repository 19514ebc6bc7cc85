//! The fields of the settings file and their defaults.

use std::path::PathBuf;

use heddle_model::{Cidr, MAX_ADDRESS_RANGES, Mode, TrustDomain};
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
    /// Defaults for manifests that do not set these. In a mesh of several nodes the control plane sets them: `heddle
    /// node` refuses a file that sets one.
    pub mesh: MeshSettings,
    /// The admin socket and metrics.
    pub admin: Admin,
    /// Heddle's own messages, on standard error.
    pub log: Log,
    /// The log of requests.
    pub access_log: AccessLog,
    /// Listeners on loopback addresses.
    pub listeners: ListenerSettings,
    /// The commands of LocalWorkloads.
    pub workloads: Workloads,
    /// The end of the process.
    pub drain: Drain,
    /// The data plane.
    pub proxy: Proxy,
    /// Where providers register by themselves, beside the folder: docs/registry.md. Of `heddle up` and `heddle control`.
    pub registry: RegistrySettings,
    /// A node of a mesh that has several. Of `heddle node`, which needs the first three, here or as flags.
    pub node: NodeSettings,
    /// The control plane. Of `heddle control`. docs/identity.md explains each lifetime.
    pub control: Control,
    /// Node QoS. Of `heddle qos run`, which `heddle node` runs if `enabled` says so. docs/qos.md explains each.
    pub qos: QosSettings,
}

/// Properties of the mesh that manifests leave open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeshSettings {
    /// The trust domain of the identities of the mesh: the first part of each.
    pub trust_domain: TrustDomain,
    /// The mode of workloads that set none, in a namespace that sets none.
    ///
    /// Values: `permissive` or `strict`.
    pub mode: Mode,
    /// Whether the Envoy of a workload that has one knows only the Services that the workload uses, where neither the
    /// workload nor its namespace says so by the annotation `lazy-xds`.
    pub lazy_envoys: bool,
    /// Where the addresses of Services, endpoints and workloads are: a node that learns what it uses does not ask about
    /// other ones, and an object with another one is refused. Empty: they may be any. At most 64.
    pub address_ranges: Vec<Cidr>,
}

impl MeshSettings {
    fn contradiction(&self) -> Option<Contradiction> {
        let ranges = self.address_ranges.len();
        (ranges > MAX_ADDRESS_RANGES).then(|| Contradiction {
            fields: vec!["mesh.address_ranges"],
            reason: format!(
                "{ranges} ranges are too many: a mesh has at most {MAX_ADDRESS_RANGES}"
            ),
            remedy: "write wider ranges".to_owned(),
        })
    }
}

/// Admin socket and metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// The admin socket. Default: heddle.sock in $XDG_RUNTIME_DIR, else in /tmp/heddle-UID; for root in /run/heddle.
    pub socket: Option<PathBuf>,
    /// Where /metrics and /ready are served over TCP.
    ///
    /// Values: ADDRESS:PORT, or none.
    pub metrics: Metrics,
    /// How many label sets of requests, and of connections, metrics tell apart. Beyond that, source, identity, workload
    /// and route are `other`, and heddle_metrics_overflow_total grows; a tenth beyond that, the Service is `other` too.
    /// A set that is not used for a minute or two is shown for ten more minutes and then forgotten.
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
    /// The least important messages that are written. Libraries write only errors, except with debug and
    /// trace.
    pub level: LogLevel,
    /// How they are written: `text`, or `json`, one object a line.
    pub format: LogFormat,
}

/// The log of requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// A file, or "-" for standard output. null: no access log. The user that the proxy runs as has to be able to write
    /// it.
    pub path: Option<PathBuf>,
}

/// Listeners on loopback addresses.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerSettings {
    /// The limit of listeners. There is one for each caller and port of a Service, and one more.
    pub max: Within<1, 1_000_000>,
}

/// The commands of LocalWorkloads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workloads {
    /// Whether to run them.
    pub run: bool,
    /// Milliseconds from SIGTERM to SIGKILL.
    pub stop_grace_ms: MsWithinHour,
    /// The wait before the first restart, in milliseconds. It doubles before each further restart, up to
    /// restart_max_ms.
    pub restart_min_ms: Within<10, 3_600_000>,
    /// The longest wait, in milliseconds. A run that lasted this long resets the wait to restart_min_ms.
    pub restart_max_ms: Within<10, 3_600_000>,
}

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// How many milliseconds requests in progress may take to finish after SIGTERM.
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
    pub fn take_logs(&mut self, now: &Settings) -> bool {
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
            .or_else(|| self.mesh.contradiction())
            .or_else(|| self.proxy.contradiction())
            .or_else(|| self.registry.contradiction())
            .or_else(|| self.control.contradiction())
            .or_else(|| self.node.contradiction())
            .or_else(|| self.qos.contradiction())
    }
}
