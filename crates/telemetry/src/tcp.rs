//! Metrics of opaque TCP connections, whose bytes are forwarded unchanged.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::{Counter, Gauge, ReasonCounters};

/// The counters of one label set and one Worker. Single writer.
#[derive(Debug, Default)]
pub struct TcpSeries {
    /// Connections that were connected to an endpoint. One that moves to another Worker counts once.
    pub connections_total: Counter,
    /// Connections open now.
    pub connections_active: Gauge,
    /// Bytes from clients to endpoints.
    pub received_bytes: Counter,
    /// Bytes from endpoints to clients.
    pub sent_bytes: Counter,
    /// Failed connections by reason, connected to an endpoint or not. Not allocated before the first failure.
    failed: OnceLock<ReasonCounters>,
}

impl TcpSeries {
    /// Counts a connection that failed for the reason at `index` of `reasons`, which must be the same
    /// list in every call. Only the owning thread may call this.
    pub fn fail(&self, reasons: &'static [&'static str], index: usize) {
        let failed = self.failed.get_or_init(|| ReasonCounters::new(reasons));
        failed.inc(index);
    }
}

/// The sum of several Workers' series.
#[derive(Debug, Default)]
pub(crate) struct TcpTotals {
    pub(crate) connections_total: u64,
    pub(crate) connections_active: i64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Only reasons with at least one failure.
    pub(crate) failed: BTreeMap<&'static str, u64>,
}

impl TcpTotals {
    pub(crate) fn add(&mut self, series: &TcpSeries) {
        self.connections_total += series.connections_total.get();
        self.connections_active += series.connections_active.get();
        self.received_bytes += series.received_bytes.get();
        self.sent_bytes += series.sent_bytes.get();
        ReasonCounters::add_up(series.failed.get(), &mut self.failed);
    }
}
