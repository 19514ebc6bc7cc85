//! Renders the registry as metric families of the exposition.

mod families;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;

use self::families::{
    ABANDONED, BYTES, COUNTERS, GAUGES, LISTENERS, MANAGER_COUNTERS, MANAGER_GAUGES, OVER_SHARE,
    REASONS, REFUSED, TCP,
};
use super::Registry;
use crate::exposition::{self, DescriptorEncoder, counter, counters, gauge, gauges};
use crate::http::HttpTotals;
use crate::status;
use crate::tcp::TcpTotals;
use crate::worker::NodeProtocol;
use crate::{Counter, HttpLabels, ManagerStats, TrafficLabels, WorkerStats, histogram};

/// The series of a registry, summed over Workers when the snapshot is taken. The metrics of Workers and Manager are
/// read when it is encoded.
///
/// Families have a fixed order and samples are sorted by label, so that two renderings can be compared line by line.
#[derive(Debug)]
pub struct Snapshot {
    /// No key has `Reporter::Both`: such series are counted twice, once as source and once as destination.
    http: BTreeMap<HttpLabels, HttpTotals>,
    tcp: BTreeMap<TrafficLabels, TcpTotals>,
    overflows: u64,
    workers: Vec<Arc<WorkerStats>>,
    manager: Option<Arc<ManagerStats>>,
}

impl Registry {
    /// Sums all series, after dropping those label sets that have been unused for [`SeriesBounds::unused`]. Holds the
    /// lock while it sums.
    ///
    /// [`SeriesBounds::unused`]: crate::SeriesBounds::unused
    pub fn snapshot(&self) -> Snapshot {
        self.forget_unused(Instant::now());
        let inner = self.lock();
        let mut http: BTreeMap<HttpLabels, HttpTotals> = BTreeMap::new();
        for (labels, kept) in &inner.http {
            for &reporter in labels.traffic.reporter.shown() {
                let mut labels = labels.clone();
                labels.traffic.reporter = reporter;
                let totals = http.entry(labels).or_default();
                kept.iter().for_each(|series| totals.add(series));
            }
        }
        let mut tcp: BTreeMap<TrafficLabels, TcpTotals> = BTreeMap::new();
        for (labels, kept) in &inner.tcp {
            for &reporter in labels.reporter.shown() {
                let labels = TrafficLabels {
                    reporter,
                    ..labels.clone()
                };
                let totals = tcp.entry(labels).or_default();
                kept.iter().for_each(|series| totals.add(series));
            }
        }
        Snapshot {
            http,
            tcp,
            overflows: inner.overflows,
            workers: inner.workers.clone(),
            manager: inner.manager.clone(),
        }
    }

    /// Appends a complete OpenMetrics document with all metrics of this registry.
    pub fn render(&self, out: &mut String) {
        let snapshot = self.snapshot();
        out.push_str(&exposition::render(move |encoder| snapshot.encode(encoder)));
    }
}

impl Snapshot {
    /// Encodes all families.
    ///
    /// # Errors
    /// When the output of the encoder fails.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.requests(encoder)?;
        self.durations(encoder)?;
        self.bytes(encoder)?;
        self.opaque(encoder)?;
        let name = "heddle_metrics_overflow_total";
        let help = "Label sets that were counted as `other` because there were too many.";
        counter(encoder, name, help, self.overflows)?;
        self.workers(encoder)?;
        match &self.manager {
            Some(manager) => manager_alone(encoder, manager),
            None => Ok(()),
        }
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut samples = Vec::new();
        for (of, totals) in &self.http {
            let counts = totals.requests.iter();
            samples.extend(
                counts.map(|(status, count)| (of.list(), status::written(*status), *count)),
            );
        }
        let samples = samples.iter().map(|(of, status, count)| {
            let [a, b, c, d, e, f, g] = *of;
            ([a, b, c, d, e, f, g, ("status", status.as_str())], *count)
        });
        let help = "Finished HTTP requests.";
        counters(encoder, "heddle_http_requests_total", help, samples)?;
        let rejected = self.http.iter().flat_map(|(of, totals)| {
            let [a, b, c, d, e, f, g] = of.list();
            let rejected = totals.rejected.iter();
            rejected
                .map(move |(reason, count)| ([a, b, c, d, e, f, g, ("reason", *reason)], *count))
        });
        let help = "HTTP requests that the proxy answered itself or gave up.";
        counters(encoder, "heddle_requests_rejected_total", help, rejected)
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "heddle_http_request_duration_seconds";
        let help = "From the first byte of a request to the last byte of its response.";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (of, totals) in &self.http {
            let buckets = std::array::from_fn::<_, { histogram::BUCKETS }, _>(|bucket| {
                (histogram::bound_s(bucket), totals.buckets[bucket])
            });
            let count = totals.buckets.iter().sum();
            // `f64` is exact up to 2^53 µs, which is 285 years.
            let sum = totals.sum_us as f64 / 1e6;
            family
                .encode_family(&of.list())?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn bytes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, pick) in BYTES {
            let samples = self.http.iter();
            let samples = samples.map(|(of, totals)| (of.list(), pick(totals)));
            counters(encoder, name, help, samples)?;
        }
        Ok(())
    }

    fn opaque(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, pick) in TCP {
            let samples = self.tcp.iter();
            let samples = samples.map(|(of, totals)| (of.list(), pick(totals)));
            counters(encoder, name, help, samples)?;
        }
        let name = "heddle_tcp_connections_active";
        let help = "Connections passed on as bytes, open now.";
        let active = self.tcp.iter();
        let active = active.map(|(of, totals)| (of.list(), totals.connections_active));
        gauges(encoder, name, help, active)?;
        let name = "heddle_tcp_connections_failed_total";
        let help = "Opaque connections that failed, before or after they reached an endpoint.";
        let failed = self.tcp.iter().flat_map(|(of, totals)| {
            let [a, b, c, d, e, f] = of.list();
            let failed = totals.failed.iter();
            failed.map(move |(reason, count)| ([a, b, c, d, e, f, ("reason", *reason)], *count))
        });
        counters(encoder, name, help, failed)
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ids: Vec<String> = self.workers.iter().map(|w| w.id.to_string()).collect();
        let each = || ids.iter().map(String::as_str).zip(&self.workers);
        let manager = self.manager.as_deref();
        for (name, help, pick) in COUNTERS {
            let own = each().map(|(id, worker)| ([("worker", id)], pick(worker)));
            let by_manager = manager.and_then(|manager| match *name {
                REFUSED => Some(&manager.connections_refused),
                OVER_SHARE => Some(&manager.connections_over_share),
                ABANDONED => Some(&manager.connections_abandoned),
                _ => None,
            });
            let by_manager = by_manager.map(|counter| ([("worker", "manager")], counter.get()));
            counters(encoder, name, help, own.chain(by_manager))?;
        }
        for (name, help, pick) in GAUGES {
            // A Worker that has ended exposes no gauges; its counters stay.
            let running = each().filter(|(_, worker)| worker.is_running());
            let own = running.map(|(id, worker)| ([("worker", id)], pick(worker)));
            let by_manager = manager.filter(|_| *name == LISTENERS);
            let by_manager = by_manager.map(|m| ([("worker", "manager")], m.listeners.get()));
            gauges(encoder, name, help, own.chain(by_manager))?;
        }
        let name = "heddle_worker_busy_seconds_total";
        let help = "Time spent working rather than waiting for events.";
        let busy = each().map(|(id, w)| ([("worker", id)], w.busy_ns.get() as f64 / 1e9));
        counters(encoder, name, help, busy)?;
        let bytes = each().flat_map(|(id, worker)| {
            NodeProtocol::ALL.into_iter().flat_map(move |protocol| {
                let of = |direction, counter: &Counter| {
                    let labels = [
                        ("worker", id),
                        ("direction", direction),
                        ("protocol", protocol.name()),
                    ];
                    (labels, counter.get())
                };
                let bytes = &worker.node_bytes;
                [
                    of("sent", bytes.sent(protocol)),
                    of("received", bytes.received(protocol)),
                ]
            })
        });
        let help = "Bytes between nodes, before they are encrypted and after they were decrypted.";
        counters(encoder, "heddle_node_bytes_total", help, bytes)?;
        for (name, help, pick) in REASONS {
            let samples = each().flat_map(|(id, worker)| {
                let reasons = pick(worker).iter();
                reasons.map(move |(reason, count)| ([("worker", id), ("reason", reason)], count))
            });
            counters(encoder, name, help, samples)?;
        }
        Ok(())
    }
}

fn manager_alone(encoder: &mut DescriptorEncoder<'_>, manager: &ManagerStats) -> fmt::Result {
    for (name, help, pick) in MANAGER_GAUGES {
        gauge(encoder, name, help, pick(manager))?;
    }
    for (name, help, pick) in MANAGER_COUNTERS {
        counter(encoder, name, help, pick(manager))?;
    }
    Ok(())
}
