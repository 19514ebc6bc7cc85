//! What is counted for connections whose bytes are passed on as they are.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::{Counter, Gauge, ReasonCounters};

/// The numbers of one label set and one Worker. One writer.
#[derive(Debug, Default)]
pub struct TcpSeries {
    /// Connections joined to an endpoint so far; one that moves to another Worker counts once.
    pub connections_total: Counter,
    /// Connections open now.
    pub connections_active: Gauge,
    /// Bytes from clients to endpoints.
    pub received_bytes: Counter,
    /// Bytes from endpoints to clients.
    pub sent_bytes: Counter,
    /// Connections that failed, by reason, joined or not; nothing as long as none has.
    failed: OnceLock<ReasonCounters>,
}

impl TcpSeries {
    /// Counts a connection that failed for the reason at `index` of `reasons`, which must be the same
    /// list each time. Only the owning thread may call this.
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
    /// Only reasons for which one failed.
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
