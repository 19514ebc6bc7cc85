//! Node QoS, as written in the file.

mod kubelet;
mod network;

use std::path::{Path, PathBuf};

use heddle_model::ControlGroup;
use serde::{Deserialize, Serialize};

pub use kubelet::{KubeletSettings, KubeletUrl};
pub use network::QosNetworkSettings;

use super::contradiction::Contradiction;
use super::metrics::Metrics;
use super::within::Within;

/// Where the journal is kept unless the settings say otherwise.
const STATE: &str = "/run/heddle/qos";

/// What node QoS does; `heddle qos` does it, by itself or started by `heddle node`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QosSettings {
    /// Whether `heddle node` runs the agent, as a process of its own. `heddle qos run` does not need it.
    pub enabled: bool,
    /// A folder of manifests: its LocalWorkloads with the annotation `heddle.dev/cgroup` are pods. The agent of a node has
    /// only those with its `spec.nodeName`. `heddle qos run DIR` wins over it.
    pub folder: Option<PathBuf>,
    /// Folder of the journal. Default: /run/heddle/qos.
    pub state: Option<PathBuf>,
    /// Where the agent's /metrics and /ready are served over TCP.
    ///
    /// Values: ADDRESS:PORT, or none.
    pub metrics: Metrics,
    /// Whether offline pods yield the processors to every online pod.
    pub preemption: bool,
    /// The admin socket of this machine's proxy, whose threads for offline callers yield, too; by default as for
    /// `admin.socket`.
    pub proxy_socket: Option<PathBuf>,
    /// The control group that is made for those threads. It has to be beside those of the pods, or above.
    pub proxy_group: ControlGroup,
    /// Whether pods may save up CPU quota that ask for it.
    pub burst: bool,
    /// Whether offline pods give up memory when the node runs short.
    pub memory: bool,
    /// Whether offline pods yield the disk to online pods, where a disk's scheduler uses weights.
    pub io: bool,
    /// Whether offline pods get less CPU quota while an online pod misses its objective, `heddle.dev/latency-p99`.
    pub latency: bool,
    /// Control group that all pods are in, such as `kubepods`: its memory limit counts as the node's memory where that
    /// is less than the machine's.
    pub root: Option<ControlGroup>,
    /// What is done when memory or processors stay short: an eviction is advised, or done, too. Only pods of a folder are
    /// evicted, at most one a minute.
    pub eviction: EvictionMode,
    /// How pods that ask for it get more CPU quota while the node has time to spare.
    pub turbo: TurboMode,
    /// Use of all processors, in percent, from which on that quota is taken back slowly.
    pub turbo_high_percent: Within<1, 99>,
    /// Use of all processors, in percent, from which on it is taken back at once.
    pub turbo_alarm_percent: Within<2, 100>,
    /// The kubelet of this machine, whose pods node QoS is for.
    pub kubelet: KubeletSettings,
    /// Bandwidth of offline pods.
    pub network: QosNetworkSettings,
}

/// How it is found out that a pod lacks CPU quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TurboMode {
    /// Quotas are left alone.
    Off,
    /// By the kernel's count of throttled periods.
    Reactive,
    /// By the time that it uses, too.
    Predictive,
}

/// What is done when memory or processors stay short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionMode {
    /// Nothing.
    Off,
    /// `heddle qos status` says which offline pod to evict.
    Advise,
    /// Its processes are ended, too.
    Act,
}

impl Default for QosSettings {
    fn default() -> Self {
        QosSettings {
            enabled: false,
            folder: None,
            state: None,
            metrics: Metrics::None,
            preemption: true,
            proxy_socket: None,
            proxy_group: ControlGroup::new("heddle-offline").expect("a path"),
            burst: true,
            memory: true,
            io: true,
            latency: true,
            root: None,
            eviction: EvictionMode::Advise,
            turbo: TurboMode::Predictive,
            turbo_high_percent: Within::new(60),
            turbo_alarm_percent: Within::new(80),
            kubelet: KubeletSettings::default(),
            network: QosNetworkSettings::default(),
        }
    }
}

impl QosSettings {
    /// Folder of the journal.
    pub fn state_folder(&self) -> &Path {
        self.state.as_deref().unwrap_or(Path::new(STATE))
    }

    /// Looks for what the agent of a node lacks, or cannot share with the node.
    pub(super) fn contradiction_in_node(&self, node: Metrics) -> Option<Contradiction> {
        if !self.enabled {
            return None;
        }
        if self.folder.is_none() && self.kubelet.url().is_none() {
            return Some(Contradiction {
                fields: vec!["qos.enabled"],
                reason: "nothing says which pods there are".to_owned(),
                remedy: "name this machine's kubelet (qos.kubelet.url), or a folder of manifests (qos.folder)".to_owned(),
            });
        }
        let Metrics::At(at) = node else { return None };
        self.metrics.is_in_the_way_of(at).then(|| Contradiction {
            fields: vec!["qos.metrics", "admin.metrics"],
            reason: format!(
                "metrics of the agent at {} and of the node at {at} cannot be served at one port",
                self.metrics
            ),
            remedy: "give one of them another port".to_owned(),
        })
    }

    /// Looks for values that are valid on their own, but contradict each other.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let (high, alarm) = (
            self.turbo_high_percent.get(),
            self.turbo_alarm_percent.get(),
        );
        let turbo = (high >= alarm).then(|| Contradiction {
            fields: vec!["qos.turbo_high_percent", "qos.turbo_alarm_percent"],
            reason: format!("{high} is not below {alarm}"),
            remedy: "quota is taken back slowly before it is taken back at once".to_owned(),
        });
        turbo
            .or_else(|| self.kubelet.contradiction())
            .or_else(|| self.network.contradiction())
    }
}
