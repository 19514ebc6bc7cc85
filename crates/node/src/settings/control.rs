//! The control plane's settings, as the file spells them. Lifetimes' ranges and defaults are those of the authority,
//! which no node has: where there is one, a test compares them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contradiction::Contradiction;
use super::metrics::Metrics;
use super::within::Within;

/// `heddle control`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Where nodes connect to.
    pub listen: SocketAddr,
    /// The authority's folder; one of the user's own when absent.
    pub state: Option<PathBuf>,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub metrics: Metrics,
    /// How long a leaf is valid.
    leaf_life_s: Within<300, 7_776_000>,
    /// How far a leaf begins in the past.
    backdate_s: Within<0, 86_400>,
    /// How long a root is valid that is made here.
    root_life_s: Within<2_592_000, 948_672_000>,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            listen: SocketAddr::from(([127, 0, 0, 1], 15_012)),
            state: None,
            metrics: Metrics::At(SocketAddr::from(([127, 0, 0, 1], 15_014))),
            leaf_life_s: Within::new(86_400),
            backdate_s: Within::new(3_600),
            root_life_s: Within::new(315_532_800),
        }
    }
}

impl Control {
    /// What each field allows and both together do not.
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

    /// How long a leaf is valid.
    pub fn leaf_life(&self) -> Duration {
        Duration::from_secs(self.leaf_life_s.get())
    }

    /// How far a leaf begins in the past.
    pub fn backdate(&self) -> Duration {
        Duration::from_secs(self.backdate_s.get())
    }

    /// How long a root is valid that is made here.
    pub fn root_life(&self) -> Duration {
        Duration::from_secs(self.root_life_s.get())
    }
}
