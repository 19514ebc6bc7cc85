//! The fields of the settings file and their defaults.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use heddle_model::{Mode, TrustDomain};
use serde::{Deserialize, Serialize};

use super::SettingsError;
use super::contradiction::{self, Contradiction};
use super::control::Control;
use super::metrics::Metrics;
use super::proxy::Proxy;
use super::registry::RegistrySettings;
use super::within::Within;

/// Largest settings file.
const MAX_BYTES: u64 = 1 << 20;

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
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no YAML, has a field that does not exist, a value out of range, or
    /// values that contradict each other or this machine.
    pub fn load(file: &Path) -> Result<Self, SettingsError> {
        let text = read(file)?;
        Self::parse(file, &text)
    }

    /// The same for a node of a mesh: what its control plane decides may not be set.
    ///
    /// # Errors
    /// As for [`Settings::load`], and when it sets something of the mesh.
    pub fn load_for_node(file: &Path) -> Result<Self, SettingsError> {
        let text = read(file)?;
        let settings = Self::parse(file, &text)?;
        match contradiction::not_a_nodes(file, &text) {
            Some(error) => Err(error),
            None => Ok(settings),
        }
    }

    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, SettingsError> {
        let mut field = String::new();
        serde_saphyr::with_deserializer_from_str(text, |deserializer| {
            serde_path_to_error::deserialize(deserializer).map_err(|error| {
                field = error.path().to_string();
                error.into_inner()
            })
        })
        .map_err(|error| SettingsError::parse(file, &field, &error))
        .and_then(|settings: Settings| match settings.contradiction() {
            Some(contradiction) => Err(contradiction.at(file, text)),
            None => Ok(settings),
        })
    }

    /// What each field allows and all of them together do not.
    fn contradiction(&self) -> Option<Contradiction> {
        let Workloads {
            restart_min_ms,
            restart_max_ms,
            ..
        } = &self.workloads;
        let (min, max) = (restart_min_ms.get(), restart_max_ms.get());
        let restarts = (min > max).then(|| Contradiction {
            fields: &["workloads.restart_min_ms", "workloads.restart_max_ms"],
            reason: format!("{min} is more than restart_max_ms, {max}"),
            remedy: "lower restart_min_ms, or raise restart_max_ms".to_owned(),
        });
        restarts
            .or_else(|| self.proxy.contradiction())
            .or_else(|| self.registry.contradiction())
    }
}

fn read(file: &Path) -> Result<String, SettingsError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|opened| {
        let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        match read as u64 > MAX_BYTES {
            true => Err(io::Error::other("it has more than 1 MiB")),
            false => Ok(()),
        }
    });
    read.map_err(|error| SettingsError::unreadable(file, &error))?;
    Ok(text)
}
