//! The labels of a series, by which traffic is grouped.

use std::sync::Arc;

/// The proxy that reports the traffic: that of the caller, that of the endpoint, or one that is both.
///
/// A request between two nodes is counted by each of the two proxies. A request within one node passes a single
/// proxy: it is counted once, and exposed both as `source` and as `destination`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reporter {
    /// The proxy of the caller's node, when the endpoint is on another node or outside the mesh.
    Source,
    /// The proxy of the endpoint's node, when the caller is on another node or outside the mesh.
    Destination,
    /// The proxy of a node that has both caller and endpoint.
    Both,
}

/// Whether the bytes left the node, or came to it, under mutual TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tls {
    /// Plaintext: within the node, or to and from peers outside the mesh.
    None,
    /// Mutual TLS between two nodes.
    Mutual,
}

/// Caller and Service of a request or a connection, and the TLS between them.
///
/// Values that are not names from the configuration were proven by another node, or claimed by a node that has proven
/// its identity. The number of label sets is bounded ([`crate::SeriesBounds`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficLabels {
    /// The proxy that reports the traffic.
    pub reporter: Reporter,
    /// The calling workload, `namespace/workload`, or `unidentified`.
    pub source: Arc<str>,
    /// SPIFFE ID of the calling workload; empty when it has none.
    pub source_principal: Arc<str>,
    /// The Service that was called, `namespace/name`.
    pub destination_service: Arc<str>,
    /// The workload behind the endpoint, `namespace/workload`; empty when no endpoint was chosen, or it is outside
    /// the mesh.
    pub destination_workload: Arc<str>,
    /// Whether the traffic between nodes was under mutual TLS.
    pub tls: Tls,
}

/// Label name and value.
pub(crate) type Label<'l> = (&'static str, &'l str);

impl Reporter {
    /// The reporters under which a series is exposed in metrics.
    pub(crate) fn shown(self) -> &'static [Reporter] {
        match self {
            Reporter::Source => &[Reporter::Source],
            Reporter::Destination => &[Reporter::Destination],
            Reporter::Both => &[Reporter::Source, Reporter::Destination],
        }
    }

    /// The label value. `both` appears only in the access log, see [`Reporter::shown`].
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reporter::Source => "source",
            Reporter::Destination => "destination",
            Reporter::Both => "both",
        }
    }
}

impl Tls {
    /// The label value, in metrics and in the access log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tls::None => "none",
            Tls::Mutual => "mutual",
        }
    }
}

impl TrafficLabels {
    pub(crate) fn list(&self) -> [Label<'_>; 6] {
        [
            ("reporter", self.reporter.name()),
            ("source", &self.source),
            ("source_principal", &self.source_principal),
            ("destination_service", &self.destination_service),
            ("destination_workload", &self.destination_workload),
            ("tls", self.tls.name()),
        ]
    }
}
