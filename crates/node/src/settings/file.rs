//! The fields of the settings file and their defaults.

use std::path::PathBuf;

use heddle_model::{Mode, TrustDomain};
use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::control::Control;
use super::metrics::Metrics;
use super::proxy::Proxy;
use super::registry::RegistrySettings;
use super::within::Within;

/// Milliseconds up to an hour; 0 means no limit where the field says so.
type MsWithinHour = Within<0, 3_600_000>;

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `mesh`.
    pub mesh: MeshSettings,
    /// `admin`.
    pub admin: Admin,
    /// `log`.
    pub log: Log,
    /// `access_log`.
    pub access_log: AccessLog,
    /// `listeners`.
    pub listeners: ListenerSettings,
    /// `workloads`.
    pub workloads: Workloads,
    /// `drain`.
    pub drain: Drain,
    /// `proxy`.
    pub proxy: Proxy,
    /// `control`.
    pub control: Control,
    /// `registry`.
    pub registry: RegistrySettings,
}

/// What manifests leave open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeshSettings {
    /// Who vouches for the identities of the mesh.
    pub trust_domain: TrustDomain,
    /// The mode of workloads of which neither they nor their namespace say one.
    pub mode: Mode,
}

/// Who may ask the process what it does.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// The Unix socket; by default in `$XDG_RUNTIME_DIR`, else in `/tmp/heddle-<uid>`.
    pub socket: Option<PathBuf>,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub metrics: Metrics,
    /// How many label sets of requests, and of connections, are told apart.
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

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// A file, or `-` for standard output; off when absent.
    pub path: Option<PathBuf>,
}

/// The loopback listeners.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerSettings {
    /// More are not opened: callers times Services grows fast.
    pub max: Within<1, 1_000_000>,
}

/// The commands of LocalWorkloads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workloads {
    /// Whether to run them at all.
    pub run: bool,
    /// From SIGTERM to SIGKILL.
    pub stop_grace_ms: MsWithinHour,
    /// Wait before the first restart; doubled with each further one.
    pub restart_min_ms: Within<10, 3_600_000>,
    /// Longest wait before a restart.
    pub restart_max_ms: Within<10, 3_600_000>,
}

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// How long requests in progress may take to finish after SIGTERM.
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

/// Least important messages that are logged.
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
    /// What each field allows and all of them together do not.
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
    }
}
