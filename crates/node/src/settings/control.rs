//! The control plane's settings, as written in the file. Ranges and defaults of the lifetimes are the authority's,
//! which is not a dependency of this crate: a test in a crate that has both compares them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::metrics::Metrics;
use super::within::Within;

/// Settings of `heddle control`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Where nodes connect to.
    ///
    /// Values: ADDRESS:PORT.
    pub listen: SocketAddr,
    /// The authority's folder. Default: as root /var/lib/heddle/control, else $XDG_STATE_HOME/heddle/control, else
    /// ~/.local/state/heddle/control.
    pub state: Option<PathBuf>,
    /// Where its /metrics and /ready are served over TCP.
    ///
    /// Values: ADDRESS:PORT, or none.
    pub metrics: Metrics,
    /// A certificate's life, in seconds. A node works this long without the control plane, and a stolen key works this
    /// long.
    #[serde(alias = "leaf_life_s")]
    leaf_ttl_s: Within<300, 7_776_000>,
    /// A certificate begins this many seconds in the past, for nodes whose clocks are behind.
    backdate_s: Within<0, 86_400>,
    /// The life of a root that is made here, in seconds.
    #[serde(alias = "root_life_s")]
    root_ttl_s: Within<2_592_000, 948_672_000>,
    /// What a lazy Envoy has learned, and its workload has not used for so many seconds, is forgotten. 0: never.
    forget_dependencies_after_s: Within<0, 31_536_000>,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            listen: SocketAddr::from(([127, 0, 0, 1], 15_012)),
            state: None,
            metrics: Metrics::At(SocketAddr::from(([127, 0, 0, 1], 15_014))),
            leaf_ttl_s: Within::new(86_400),
            backdate_s: Within::new(3_600),
            root_ttl_s: Within::new(315_532_800),
            forget_dependencies_after_s: Within::new(86_400),
        }
    }
}

impl Control {
    /// Looks for values that are valid on their own, but contradict each other.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let (metrics, listen) = (self.metrics, self.listen);
        metrics.is_in_the_way_of(listen).then(|| Contradiction {
            fields: vec!["control.metrics", "control.listen"],
            reason: format!(
                "metrics at {metrics} and nodes at {listen} cannot be served at one port"
            ),
            remedy: "give one of them another port".to_owned(),
        })
    }

    /// How long a lazy Envoy's dependency may be unused; zero for ever.
    pub fn forget_dependencies_after(&self) -> Duration {
        Duration::from_secs(self.forget_dependencies_after_s.get())
    }

    /// Validity of a leaf certificate.
    pub fn leaf_life(&self) -> Duration {
        Duration::from_secs(self.leaf_ttl_s.get())
    }

    /// How long before its issue a leaf's validity begins.
    pub fn backdate(&self) -> Duration {
        Duration::from_secs(self.backdate_s.get())
    }

    /// Validity of a root that is created here.
    pub fn root_life(&self) -> Duration {
        Duration::from_secs(self.root_ttl_s.get())
    }
}
