//! What an enrolled pod is called, and what becomes of it without a proxy.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The port, in every pod, of the listener for what the pod dials.
pub const OUTBOUND_PORT: u16 = 15_001;
/// The port, in every pod, of the listener for what arrives.
pub const INBOUND_PORT: u16 = 15_006;

/// An enrolled pod. A pod that is released and enrolled again is another one: no number is used twice
/// while a holder lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodId(pub u32);

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What becomes of a pod's traffic while no proxy serves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is refused: not a byte of it travels unprotected.
    #[default]
    Refuse,
    /// It goes its way as if there were no mesh.
    Pass,
}

impl Fate {
    /// Its name in messages and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Refuse => "refuse",
            Fate::Pass => "pass",
        }
    }
}

/// Which of the two a socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// What is needed to reach an address.
    pub fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        }
    }
}
