//! The systems: who carries what pods say to each other.

use std::fmt;

use clap::ValueEnum;

/// Who carries the pods' traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// No proxy.
    Direct,
    /// One Heddle for each node.
    Node,
    /// One Heddle for each pod.
    Pod,
    /// One Envoy for each pod.
    Envoy,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Direct, Kind::Node, Kind::Pod, Kind::Envoy];
    /// Those that have proxies.
    pub(super) const CARRIED: [Kind; 3] = [Kind::Node, Kind::Pod, Kind::Envoy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Node => "node",
            Kind::Pod => "pod",
            Kind::Envoy => "envoy",
        }
    }

    /// What the file of its lab says.
    pub(super) fn carried(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Pod => "pod",
            // Envoys come into the pods of such a lab afterwards.
            Kind::Direct | Kind::Envoy => "nothing",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::Direct => "no proxy",
            Kind::Node => "Heddle, one per node",
            Kind::Pod => "Heddle, one per pod",
            Kind::Envoy => "Envoy, one per pod",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
