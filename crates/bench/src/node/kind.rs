//! The systems that carry the traffic between pods.

use std::fmt;

use clap::ValueEnum;

/// A system that carries the traffic between pods.
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
    /// One Envoy for the node, without TLS within it.
    Shared,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [
        Kind::Direct,
        Kind::Node,
        Kind::Pod,
        Kind::Envoy,
        Kind::Shared,
    ];
    /// Those that have proxies.
    pub(super) const CARRIED: [Kind; 4] = [Kind::Node, Kind::Pod, Kind::Envoy, Kind::Shared];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Node => "node",
            Kind::Pod => "pod",
            Kind::Envoy => "envoy",
            Kind::Shared => "shared",
        }
    }

    /// The value of `carried` in the file of its lab.
    pub(super) fn carried(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Pod => "pod",
            // Envoys are added to such a lab afterwards.
            Kind::Direct | Kind::Envoy | Kind::Shared => "nothing",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::Direct => "no proxy",
            Kind::Node => "Heddle, one per node",
            Kind::Pod => "Heddle, one per pod",
            Kind::Envoy => "Envoy, one per pod",
            Kind::Shared => "Envoy, one per node",
        }
    }
}

impl Kind {
    /// Whether its proxies are Envoys.
    pub(super) fn has_envoys(self) -> bool {
        matches!(self, Kind::Envoy | Kind::Shared)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
