//! `LocalWorkload`, Heddle's own kind for processes outside of a cluster: which process runs where.
//!
//! It takes the place of a pod and is never applied to a cluster. Its command has the fields of a container (`command`,
//! `args`, `env`, `workingDir`), so that there is nothing new to learn.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::core::IntOrString;

/// heddle.dev/v1alpha1 LocalWorkload.
#[derive(Debug, Deserialize)]
pub(crate) struct LocalWorkload {
    pub(crate) spec: LocalWorkloadSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalWorkloadSpec {
    pub(crate) service_account_name: Option<String>,
    /// Empty if absent: compilation decides whether it is required.
    #[serde(default)]
    pub(crate) address: String,
    #[serde(default)]
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) ports: Vec<LocalPort>,
    pub(crate) weight: Option<i64>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: Vec<LocalVariable>,
    pub(crate) working_dir: Option<String>,
    pub(crate) node_name: Option<String>,
    pub(crate) liveness_probe: Option<LocalProbe>,
    pub(crate) readiness_probe: Option<LocalProbe>,
    pub(crate) startup_probe: Option<LocalProbe>,
}

/// A container's probe, with exactly one of these fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalProbe {
    pub(crate) http_get: Option<HttpGet>,
    pub(crate) tcp_socket: Option<TcpSocket>,
    pub(crate) exec: Option<IgnoredAny>,
    pub(crate) grpc: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpGet {
    pub(crate) path: Option<String>,
    pub(crate) port: IntOrString,
    pub(crate) scheme: Option<String>,
    pub(crate) host: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TcpSocket {
    pub(crate) port: IntOrString,
    pub(crate) host: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LocalPort {
    pub(crate) name: Option<String>,
    pub(crate) port: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LocalVariable {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) value: String,
}
