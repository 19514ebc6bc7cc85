//! What is counted for each kind of HTTP request.

use std::sync::Arc;

use crate::histogram::BUCKETS;
use crate::{Counter, Histogram};

/// Which caller called which Service by which route: the labels of a series.
///
/// Every value comes from configuration, never from a request, and the number of label sets is
/// bounded ([`crate::MAX_LABEL_SETS`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpLabels {
    /// The caller, `namespace/workload`, or `unidentified`.
    pub source: Arc<str>,
    /// The Service that was called, `namespace/name`.
    pub destination_service: Arc<str>,
    /// The route that matched, `namespace/name`; empty when the Service has none.
    pub route: Arc<str>,
}

/// How the status classes are written in the label `status_class`, by index into
/// [`HttpSeries::requests`].
pub const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Index into [`HttpSeries::requests`] for a response status; 0 (no response) for everything that
/// is no HTTP status.
#[inline]
pub fn status_class(status: u16) -> usize {
    match status / 100 {
        class @ 1..=5 => usize::from(class),
        _ => 0,
    }
}

/// The numbers of one label set and one Worker. One writer.
#[derive(Debug, Default)]
pub struct HttpSeries {
    /// Finished requests by status class; see [`status_class`].
    pub requests: [Counter; 6],
    /// From the first byte of the request's head to the last byte of the response.
    pub duration: Histogram,
    /// Bytes of request bodies, as received from the client.
    pub request_bytes: Counter,
    /// Bytes of response bodies, as sent to the client.
    pub response_bytes: Counter,
}

impl HttpSeries {
    /// Records a finished request: its status (0: no response was sent), its duration and the
    /// bytes of both bodies. Only the owning thread may call this.
    #[inline]
    pub fn record(&self, status: u16, duration_us: u64, request_bytes: u64, response_bytes: u64) {
        self.requests[status_class(status)].inc();
        self.duration.record_us(duration_us);
        self.request_bytes.add(request_bytes);
        self.response_bytes.add(response_bytes);
    }
}

/// The sum of several Workers' series.
#[derive(Debug, Default)]
pub(crate) struct HttpTotals {
    pub(crate) requests: [u64; 6],
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) sum_us: u64,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
}

impl HttpTotals {
    pub(crate) fn add(&mut self, series: &HttpSeries) {
        for (total, counter) in self.requests.iter_mut().zip(&series.requests) {
            *total += counter.get();
        }
        for (total, count) in self.buckets.iter_mut().zip(series.duration.buckets()) {
            *total += count;
        }
        self.sum_us += series.duration.sum_us();
        self.request_bytes += series.request_bytes.get();
        self.response_bytes += series.response_bytes.get();
    }
}
