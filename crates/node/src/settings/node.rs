//! Settings of `heddle node`, as written in the file: who it is, and which pods it intercepts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use heddle_intercept::PortRange;
use heddle_intercept::hooks::Kind;
use heddle_model::{Cidr, NodeName, WorkloadName};
use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::text::Text;
use super::within::Within;
use crate::arguments::HostAndPort;
use crate::time;
use crate::user::ProxyUser;

/// Where a node keeps the guard unless it is told otherwise.
pub const BPFFS: &str = "/sys/fs/bpf/heddle";

/// Settings of a node of a mesh that has several.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSettings {
    /// The node's name: the one in its token, and the nodeName of its workloads' manifests.
    ///
    /// Values: such as `edge-1`.
    pub(crate) name: Option<NodeName>,
    /// Where the control plane is.
    ///
    /// Values: HOST:PORT.
    pub(crate) control: Option<Text<HostAndPort>>,
    /// Where other nodes connect.
    ///
    /// Values: ADDRESS:PORT, such as `0.0.0.0:15008`.
    pub(crate) listen: Option<SocketAddr>,
    /// A file with the token to join.
    pub(crate) token_file: Option<PathBuf>,
    /// The state folder. Default: as root /var/lib/heddle/node, else $XDG_STATE_HOME/heddle/node, else
    /// ~/.local/state/heddle/node.
    pub(crate) state: Option<PathBuf>,
    /// Whether to run the commands of this node's LocalWorkloads, which the control plane chooses; `workloads.run` is
    /// not read here.
    pub(crate) run: bool,
    /// How much of the mesh the node knows: docs/on-demand.md.
    pub(crate) discovery: Discovery,
    /// Pods whose traffic is intercepted: docs/interception.md.
    pub(crate) interception: Interception,
}

/// How much of the mesh a node knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Discovery {
    /// All of it (`eager`), or what its workloads call (`on-demand`). Null: what they call if their traffic is
    /// intercepted, else all of it.
    ///
    /// Values: `eager` or `on-demand`.
    pub(crate) mode: Option<DiscoveryMode>,
    /// What was not used for so many seconds is forgotten.
    ///
    /// Values: 1 to 31536000.
    pub(crate) forget_after_s: ForgetAfter,
}

/// How much of the mesh a node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DiscoveryMode {
    /// All Services and all addresses of workloads
    Eager,
    /// What its workloads call
    OnDemand,
}

/// Seconds without use after which something is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct ForgetAfter(Within<1, 31_536_000>);

impl Default for ForgetAfter {
    fn default() -> Self {
        ForgetAfter(Within::new(600))
    }
}

impl NodeSettings {
    /// How long something may be unused before it is forgotten, if the node knows only what it uses.
    pub(crate) fn forget_after(&self) -> Option<Duration> {
        // Processes without a holder are told of all Services, by listeners and variables.
        let is_on_demand = match self.discovery.mode {
            Some(mode) => mode == DiscoveryMode::OnDemand,
            None => self.interception.enabled,
        };
        is_on_demand.then(|| self.discovery.forget_after())
    }
}

impl Discovery {
    fn forget_after(&self) -> Duration {
        Duration::from_secs(self.forget_after_s.0.get())
    }
}

/// Which pods' traffic is intercepted, and how.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Interception {
    /// Whether pods are intercepted at all.
    pub(crate) enabled: bool,
    /// The cgroup (v2) above all pods of this node. Null: packet filters in each pod instead of BPF programs.
    ///
    /// Values: such as `/sys/fs/cgroup/kubepods.slice`.
    pub(crate) pods_cgroup: Option<PathBuf>,
    /// Addresses of the mesh's pods and Services: connections to other addresses are not intercepted.
    ///
    /// Values: such as `[10.0.0.0/8]`.
    pub(crate) mesh_ranges: Vec<Cidr>,
    /// Addresses within those that are not intercepted.
    pub(crate) exclude_ranges: Vec<Cidr>,
    /// Where `heddle enroll` finds the holder. Default: heddle-holder.sock in /run/heddle.
    pub(crate) holder_socket: Option<PathBuf>,
    /// A folder of a BPF file system, for the guard of pods that refuse without a proxy.
    pub(crate) bpffs: PathBuf,
    /// How to intercept: by BPF programs, by packet filters, or by what there is.
    ///
    /// Values: `auto`, `bpf` or `nft`.
    pub(crate) hooks: Kind,
    /// After so many seconds without an answer the proxy is killed and another started; 0 is never.
    ///
    /// Values: 0, or 5 to 86400.
    pub(crate) proxy_timeout_s: ProxyTimeout,
    /// Which user the proxy runs as. Default: a user heddle of /etc/passwd, else the number 65523.
    ///
    /// Values: a name, UID or UID:GID, in quotation marks.
    pub(crate) proxy_user: Option<Text<ProxyUser>>,
    /// For the proxy of one pod, inside its network namespace: the workload of that pod.
    ///
    /// Values: NAMESPACE/NAME.
    pub(crate) pod: Option<WorkloadName>,
    /// Ports of that pod that are left alone.
    ///
    /// Values: such as `["22", "8000-8010"]`.
    pub(crate) exclude_inbound: Vec<PortRange>,
}

impl Default for Interception {
    fn default() -> Self {
        Interception {
            enabled: false,
            pods_cgroup: None,
            mesh_ranges: Vec::new(),
            exclude_ranges: Vec::new(),
            holder_socket: None,
            bpffs: PathBuf::from(BPFFS),
            hooks: Kind::Auto,
            proxy_timeout_s: ProxyTimeout(30),
            proxy_user: None,
            pod: None,
            exclude_inbound: Vec::new(),
        }
    }
}

impl NodeSettings {
    /// Looks for values that take interception, or one pod, where there is none.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let it = &self.interception;
        let takes_interception = [
            ("node.interception.pods_cgroup", it.pods_cgroup.is_some()),
            ("node.interception.mesh_ranges", !it.mesh_ranges.is_empty()),
            (
                "node.interception.exclude_ranges",
                !it.exclude_ranges.is_empty(),
            ),
            (
                "node.interception.holder_socket",
                it.holder_socket.is_some(),
            ),
            ("node.interception.proxy_user", it.proxy_user.is_some()),
            ("node.interception.pod", it.pod.is_some()),
        ];
        let lone = takes_interception.iter().find(|(_, is_set)| *is_set);
        if let Some((field, _)) = lone.filter(|_| !it.enabled) {
            return Some(Contradiction {
                fields: vec![field, "node.interception.enabled"],
                reason: "pods are not intercepted".to_owned(),
                remedy: "turn interception on (--intercept, or node.interception.enabled), or leave this out".to_owned(),
            });
        }
        (it.pod.is_none() && !it.exclude_inbound.is_empty()).then(|| Contradiction {
            fields: vec!["node.interception.exclude_inbound", "node.interception.pod"],
            reason: "this is for the proxy of one pod".to_owned(),
            remedy: "name the pod (--pod, or node.interception.pod), or leave this out".to_owned(),
        })
    }
}

/// Seconds without an answer after which a proxy is replaced; 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "u32", into = "u32")]
pub(crate) struct ProxyTimeout(u32);

impl ProxyTimeout {
    /// The time in seconds; `None` for never.
    pub(crate) fn seconds(self) -> Option<u32> {
        Some(self.0).filter(|seconds| *seconds > 0)
    }
}

impl TryFrom<u32> for ProxyTimeout {
    type Error = &'static str;

    fn try_from(seconds: u32) -> Result<Self, Self::Error> {
        match seconds {
            0 | 5..=86_400 => Ok(ProxyTimeout(seconds)),
            _ => Err("expected 0, or 5 to 86400 seconds"),
        }
    }
}

impl From<ProxyTimeout> for u32 {
    fn from(timeout: ProxyTimeout) -> u32 {
        timeout.0
    }
}

impl std::str::FromStr for ProxyTimeout {
    type Err = &'static str;

    /// Parses a duration such as `30s`; a number alone is in seconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let written = || u32::try_from(time::parse(text).ok()?.as_secs()).ok();
        let seconds = text.parse().ok().or_else(written);
        seconds.unwrap_or(u32::MAX).try_into()
    }
}
