//! Metrics of HTTP requests.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::histogram::BUCKETS;
use crate::labels::{Label, TrafficLabels};
use crate::status::Statuses;
use crate::{Counter, Histogram, ReasonCounters};

/// The labels of a series: caller, Service and route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpLabels {
    /// Caller and Service, as for connections.
    pub traffic: TrafficLabels,
    /// The route that matched, `namespace/name`; empty when the Service has none.
    pub route: Arc<str>,
}

/// The counters of one label set and one Worker. Single writer.
#[derive(Debug, Default)]
pub struct HttpSeries {
    /// Finished requests by status.
    requests: Statuses,
    /// From the first byte of the request head to the last byte of the response.
    pub duration: Histogram,
    /// Bytes of request bodies, as received from the client.
    pub request_bytes: Counter,
    /// Bytes of response bodies, as sent to the client.
    pub response_bytes: Counter,
    /// Requests that the proxy answered itself or gave up, by reason. Not allocated before the first one.
    rejected: OnceLock<ReasonCounters>,
}

impl HttpLabels {
    pub(crate) fn list(&self) -> [Label<'_>; 7] {
        let [a, b, c, d, e, f] = self.traffic.list();
        [a, b, c, d, e, ("route", &self.route), f]
    }
}

impl HttpSeries {
    /// Records a finished request: its status (0: no response was sent), its duration and the
    /// bytes of both bodies. Only the owning thread may call this.
    #[inline]
    pub fn record(&self, status: u16, duration_us: u64, request_bytes: u64, response_bytes: u64) {
        self.requests.inc(status);
        self.duration.record_us(duration_us);
        self.request_bytes.add(request_bytes);
        self.response_bytes.add(response_bytes);
    }

    /// Counts a request that the proxy answered itself or gave up, for the reason at `index` of `reasons`, which must
    /// be the same list in every call. Only the owning thread may call this.
    pub fn reject(&self, reasons: &'static [&'static str], index: usize) {
        let rejected = self.rejected.get_or_init(|| ReasonCounters::new(reasons));
        rejected.inc(index);
    }

    /// Finished requests that had this status.
    pub fn requests(&self, status: u16) -> u64 {
        let mut counts = self.requests.iter();
        let found = counts.find(|(known, _)| *known == status);
        found.map_or(0, |(_, count)| count)
    }
}

/// The sum of several Workers' series.
#[derive(Debug, Default)]
pub(crate) struct HttpTotals {
    /// By status. Keys 0 and 1 to 5 are those of [`crate::status::Statuses::iter`].
    pub(crate) requests: BTreeMap<u16, u64>,
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) sum_us: u64,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    /// Only reasons with at least one rejected request.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
}

impl HttpTotals {
    pub(crate) fn add(&mut self, series: &HttpSeries) {
        for (status, count) in series.requests.iter() {
            *self.requests.entry(status).or_default() += count;
        }
        for (total, count) in self.buckets.iter_mut().zip(series.duration.buckets()) {
            *total += count;
        }
        self.sum_us += series.duration.sum_us();
        self.request_bytes += series.request_bytes.get();
        self.response_bytes += series.response_bytes.get();
        ReasonCounters::add_up(series.rejected.get(), &mut self.rejected);
    }
}
