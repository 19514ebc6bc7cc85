//! Names and ports of enrolled pods, and the fate of their traffic without a proxy.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Port of the listener in every pod for outbound connections.
pub const OUTBOUND_PORT: u16 = 15_001;
/// Port of the listener in every pod for inbound connections.
pub const INBOUND_PORT: u16 = 15_006;

/// Number of an enrolled pod. A pod that is released and enrolled again gets a new number: a holder never
/// reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodId(pub u32);

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happens to a pod's traffic while no proxy serves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is refused, so that no byte travels unprotected.
    #[default]
    Refuse,
    /// It passes as if there were no mesh.
    Pass,
}

impl Fate {
    /// The name in messages and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Refuse => "refuse",
            Fate::Pass => "pass",
        }
    }
}

/// Address family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        }
    }
}
