//! The control plane's settings, as the file spells them. Lifetimes' ranges and defaults are the authority's
//! own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use heddle_authority::AuthoritySettings;
use serde::{Deserialize, Serialize};

use super::file::Metrics;
use super::within::Within;

/// `heddle control`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Control {
    /// Where nodes connect to.
    pub(crate) listen: SocketAddr,
    /// The authority's folder; one of the user's own when absent.
    pub(crate) state: Option<PathBuf>,
    /// Where `/metrics` and `/ready` are served over TCP.
    pub(crate) metrics: Metrics,
    /// How long a leaf is valid.
    leaf_life_s: Within<300, 7_776_000>,
    /// How far a leaf begins in the past.
    backdate_s: Within<0, 86_400>,
    /// How long a root is valid that is made here.
    root_life_s: Within<2_592_000, 948_672_000>,
}

impl Default for Control {
    fn default() -> Self {
        let AuthoritySettings {
            leaf_life,
            backdate,
            root_life,
        } = AuthoritySettings::default();
        Control {
            listen: SocketAddr::from(([127, 0, 0, 1], 15_012)),
            state: None,
            metrics: Metrics::At(SocketAddr::from(([127, 0, 0, 1], 15_014))),
            leaf_life_s: Within::nearest(leaf_life.as_secs()),
            backdate_s: Within::nearest(backdate.as_secs()),
            root_life_s: Within::nearest(root_life.as_secs()),
        }
    }
}

impl Control {
    /// The lifetimes as the authority takes them.
    pub(crate) fn authority(&self) -> AuthoritySettings {
        AuthoritySettings {
            leaf_life: Duration::from_secs(self.leaf_life_s.get()),
            backdate: Duration::from_secs(self.backdate_s.get()),
            root_life: Duration::from_secs(self.root_life_s.get()),
        }
    }
}
