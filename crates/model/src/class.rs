//! Whether the work of a pod is latency-sensitive.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of a pod, and of everything that is done for it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Latency-sensitive: goes first.
    #[default]
    Online,
    /// Batch work: takes what online work leaves.
    Offline,
}

impl Class {
    /// As in labels and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Online => "online",
            Class::Offline => "offline",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
