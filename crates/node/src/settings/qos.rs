//! Node QoS, as written in the file.

use std::path::PathBuf;

use heddle_model::PacketMark;
use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::within::Within;

/// What node QoS does; only `heddle qos` does it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QosSettings {
    /// Folder of the journal; by default `/run/heddle/qos`.
    pub state: Option<PathBuf>,
    /// Whether offline pods yield the processors.
    pub preemption: bool,
    /// Whether pods may save up CPU quota that ask for it.
    pub burst: bool,
    /// Whether offline pods give up memory when the node runs short.
    pub memory: bool,
    /// How pods that ask for it get more CPU quota.
    pub turbo: TurboMode,
    /// Use of all processors, in percent, from which on quota is taken back slowly.
    pub turbo_high_percent: Within<1, 99>,
    /// Use of all processors, in percent, from which on quota is taken back at once.
    pub turbo_alarm_percent: Within<2, 100>,
    /// Bandwidth of offline pods.
    pub network: QosNetworkSettings,
}

/// Bytes per second that a class of traffic control can have.
type BytesPerSecond = Within<1_000, 1_000_000_000_000>;

/// Bandwidth of offline pods.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QosNetworkSettings {
    /// Whether offline pods share what online pods leave of the interfaces.
    pub enabled: bool,
    /// Interfaces of the node by which its pods reach others.
    pub interfaces: Vec<String>,
    /// Bytes per second that the network behind each interface carries, a little less rather than more. With it, offline
    /// pods get what online pods leave; without it, one of the two rates below.
    pub link_bytes_per_s: Option<BytesPerSecond>,
    /// Bytes per second of online pods at an interface from which on offline pods get the low rate. Unused where
    /// `link_bytes_per_s` is set.
    pub waterline_bytes_per_s: BytesPerSecond,
    /// Bytes per second that all offline pods together always get at an interface; at most a fiftieth of
    /// `link_bytes_per_s`.
    pub low_bytes_per_s: BytesPerSecond,
    /// Bytes per second that all offline pods together get at most at an interface.
    pub high_bytes_per_s: BytesPerSecond,
    /// Mark of the packets of offline pods, VALUE/MASK: bits that no other program on this machine uses.
    pub mark: PacketMark,
    /// Interfaces whose queueing discipline may be replaced until the agent stops, even if another program chose it, or
    /// it is `mq`.
    pub replace: Vec<String>,
}

impl Default for QosNetworkSettings {
    fn default() -> Self {
        QosNetworkSettings {
            enabled: false,
            interfaces: vec!["eth0".to_owned()],
            link_bytes_per_s: None,
            waterline_bytes_per_s: Within::new(20 << 20),
            low_bytes_per_s: Within::new(20 << 20),
            high_bytes_per_s: Within::new(1 << 30),
            mark: PacketMark::OFFLINE,
            replace: Vec::new(),
        }
    }
}

impl QosNetworkSettings {
    fn contradiction(&self) -> Option<Contradiction> {
        self.wrong_name("qos.network.interfaces", &self.interfaces)
            .or_else(|| self.wrong_name("qos.network.replace", &self.replace))
            .or_else(|| {
                let (low, high) = (self.low_bytes_per_s.get(), self.high_bytes_per_s.get());
                (low > high).then(|| Contradiction {
                    fields: vec![
                        "qos.network.low_bytes_per_s",
                        "qos.network.high_bytes_per_s",
                    ],
                    reason: format!("{low} is more than high_bytes_per_s, {high}"),
                    remedy: "lower low_bytes_per_s, or raise high_bytes_per_s".to_owned(),
                })
            })
    }

    /// The kernel's rules for names of interfaces (`dev_valid_name`).
    fn wrong_name(&self, field: &'static str, names: &[String]) -> Option<Contradiction> {
        let is_wrong = |name: &&String| {
            let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
            ["", ".", ".."].contains(&name.as_str()) || name.len() > 15 || name.contains(bad)
        };
        names.iter().find(is_wrong).map(|name| Contradiction {
            fields: vec![field],
            reason: format!(
                "{:?} is no name of an interface",
                name.chars().take(40).collect::<String>()
            ),
            remedy: "write one that ip link shows".to_owned(),
        })
    }
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
            burst: true,
            memory: true,
            turbo: TurboMode::Predictive,
            turbo_high_percent: Within::new(60),
            turbo_alarm_percent: Within::new(80),
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
        turbo.or_else(|| self.network.contradiction())
    }
}
