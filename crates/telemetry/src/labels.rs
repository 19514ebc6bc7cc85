//! Which traffic is counted together: the labels of a series.

use std::sync::Arc;

/// Which proxy speaks: that of the caller, that of the endpoint, or one that is both.
///
/// A request between two nodes is counted on each of them, once by either side. One that stays on its node passes a
/// single proxy: it is counted once, and shown under both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reporter {
    /// The proxy of the caller's node, where the endpoint is on another or outside of the mesh.
    Source,
    /// The proxy of the endpoint's node, where the caller is on another or outside of the mesh.
    Destination,
    /// The proxy of a node that has both.
    Both,
}

/// Whether bytes left the node, or came to it, under mutual TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tls {
    /// In the clear: within the node, or with what is outside of the mesh.
    None,
    /// Under mutual TLS, between nodes.
    Mutual,
}

/// The two ends of a request or a connection, and how it went between them.
///
/// What is no name out of the configuration was proven by another node or said by one that has proven an identity, and the
/// number of label sets is bounded ([`crate::SeriesBounds`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficLabels {
    /// Which proxy speaks.
    pub reporter: Reporter,
    /// The workload that calls, `namespace/workload`, or `unidentified`.
    pub source: Arc<str>,
    /// Its identity, a SPIFFE ID; empty when it has none.
    pub source_principal: Arc<str>,
    /// The Service that was called, `namespace/name`.
    pub destination_service: Arc<str>,
    /// The workload behind the endpoint, `namespace/workload`; empty when none was chosen, or it is none of the mesh.
    pub destination_workload: Arc<str>,
    /// How it went between nodes.
    pub tls: Tls,
}

/// A label as it is written.
pub(crate) type Label<'l> = (&'static str, &'l str);

impl Reporter {
    /// Under which names it is shown.
    pub(crate) fn shown(self) -> &'static [Reporter] {
        match self {
            Reporter::Source => &[Reporter::Source],
            Reporter::Destination => &[Reporter::Destination],
            Reporter::Both => &[Reporter::Source, Reporter::Destination],
        }
    }

    /// As it is written: in metrics never as both.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reporter::Source => "source",
            Reporter::Destination => "destination",
            Reporter::Both => "both",
        }
    }
}

impl Tls {
    /// As it is written in metrics and in the access log.
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
