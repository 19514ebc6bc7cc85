//! Whether the work of a pod is latency-sensitive.

mod labels;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use labels::{CLASS_LABEL, LATENCY_ANNOTATION, QosFault, QosLabels};

use crate::ControlGroup;

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
    /// The other one.
    pub fn other(self) -> Class {
        match self {
            Class::Online => Class::Offline,
            Class::Offline => Class::Online,
        }
    }

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

/// What node QoS does for a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Qos {
    /// Its class.
    pub class: Class,
    /// Whether its CPU quota may grow while the node has time to spare.
    pub quota_turbo: bool,
    /// Microseconds of CPU quota that each of its containers may save up.
    pub quota_burst_us: Option<u64>,
    /// The p99 of its requests' durations, in milliseconds, for which offline pods are held back. Only an online workload
    /// has one.
    pub latency_p99_ms: Option<u64>,
    /// Its control group, where the machine has no kubelet that decides it.
    pub cgroup: Option<ControlGroup>,
}

impl Qos {
    /// Whether it is a workload like any other.
    pub fn is_default(&self) -> bool {
        *self == Qos::default()
    }
}
