//! Bandwidth of offline pods, as written in the file.

use heddle_model::PacketMark;
use serde::{Deserialize, Serialize};

use super::super::contradiction::Contradiction;
use super::super::within::Within;

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
    /// Looks for values that are valid on their own, but contradict each other, or the kernel's rules for names.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
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
