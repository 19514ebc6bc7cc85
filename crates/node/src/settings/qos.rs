//! Node QoS, as written in the file.

mod kubelet;
mod network;

use std::path::PathBuf;

use heddle_model::ControlGroup;
use serde::{Deserialize, Serialize};

pub use kubelet::{KubeletSettings, KubeletUrl};
pub use network::QosNetworkSettings;

use super::contradiction::Contradiction;
use super::within::Within;

/// What node QoS does; only `heddle qos` does it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QosSettings {
    /// Folder of the journal. Default: /run/heddle/qos.
    pub state: Option<PathBuf>,
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
    /// Whether offline pods get less CPU quota while an online pod misses its objective, `heddle.dev/latency-p99`.
    pub latency: bool,
    /// Control group that all pods are in, such as `kubepods`: its memory limit counts as the node's memory where that
    /// is less than the machine's.
    pub root: Option<ControlGroup>,
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

impl Default for QosSettings {
    fn default() -> Self {
        QosSettings {
            state: None,
            preemption: true,
            proxy_socket: None,
            proxy_group: ControlGroup::new("heddle-offline").expect("a path"),
            burst: true,
            memory: true,
            latency: true,
            root: None,
            turbo: TurboMode::Predictive,
            turbo_high_percent: Within::new(60),
            turbo_alarm_percent: Within::new(80),
            kubelet: KubeletSettings::default(),
            network: QosNetworkSettings::default(),
        }
    }
}

impl QosSettings {
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
