//! Renders the registry as metric families of the exposition.

mod families;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use heddle_model::Class;
use prometheus_client::encoding::NoLabelSet;

use self::families::{BYTES, COUNTERS, GAUGES, MANAGER_COUNTERS, MANAGER_GAUGES, REASONS, TCP};
use super::Registry;
use crate::exposition::{self, DescriptorEncoder, counter, counters, gauge, gauges};
use crate::families::{Family, proxy};
use crate::http::HttpTotals;
use crate::status;
use crate::tcp::TcpTotals;
use crate::worker::NodeProtocol;
use crate::{Counter, HttpLabels, ManagerStats, Reporter, TrafficLabels, WorkerStats, histogram};

/// The series of a registry, summed over Workers when the snapshot is taken. The metrics of Workers and Manager are
/// read when it is encoded.
///
/// Families have a fixed order and samples are sorted by label, so that two renderings can be compared line by line.
#[derive(Debug)]
pub struct Snapshot {
    /// No key has `Reporter::Both`: such series are counted twice, once as source and once as destination.
    http: BTreeMap<HttpLabels, HttpTotals>,
    tcp: BTreeMap<TrafficLabels, TcpTotals>,
    /// Seconds of processor time, by caller and class.
    cpu: BTreeMap<(Arc<str>, Class), f64>,
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
            cpu: inner.cpu.seconds(),
            overflows: inner.overflows,
            workers: inner.workers.clone(),
            manager: inner.manager.clone(),
        }
    }

    /// Durations of requests to each workload behind an endpoint of this node, `namespace/workload`, of all callers,
    /// Services and routes: how many are in each bucket (not cumulative), the last one above all bounds
    /// ([`crate::latency_bounds_us`]). A count goes down when label sets are forgotten.
    pub fn latencies(&self) -> BTreeMap<Arc<str>, Vec<u64>> {
        self.forget_unused(Instant::now());
        let mut all: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        for (labels, kept) in &self.lock().http {
            let of = &labels.traffic;
            if of.reporter == Reporter::Source || of.destination_workload.is_empty() {
                continue;
            }
            let sum = all.entry(Arc::clone(&of.destination_workload));
            let sum = sum.or_insert_with(|| vec![0; histogram::BUCKETS]);
            for series in kept.iter() {
                let buckets = series.duration.buckets();
                sum.iter_mut()
                    .zip(buckets)
                    .for_each(|(to, more)| *to += more);
            }
        }
        all
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
        let cpu = self.cpu.iter();
        let cpu = cpu.map(|((source, class), seconds)| {
            ([("source", &**source), ("class", class.as_str())], *seconds)
        });
        counters(encoder, &proxy::SOURCE_CPU, cpu)?;
        counter(encoder, &proxy::METRICS_OVERFLOW, self.overflows)?;
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
        counters(encoder, &proxy::HTTP_REQUESTS, samples)?;
        let rejected = self.http.iter().flat_map(|(of, totals)| {
            let [a, b, c, d, e, f, g] = of.list();
            let rejected = totals.rejected.iter();
            rejected
                .map(move |(reason, count)| ([a, b, c, d, e, f, g, ("reason", *reason)], *count))
        });
        counters(encoder, &proxy::REQUESTS_REJECTED, rejected)
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = exposition::begin(encoder, &proxy::HTTP_REQUEST_DURATION)?;
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
        for (family, pick) in BYTES {
            let samples = self.http.iter();
            let samples = samples.map(|(of, totals)| (of.list(), pick(totals)));
            counters(encoder, family, samples)?;
        }
        Ok(())
    }

    fn opaque(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (family, pick) in TCP {
            let samples = self.tcp.iter();
            let samples = samples.map(|(of, totals)| (of.list(), pick(totals)));
            counters(encoder, family, samples)?;
        }
        let active = self.tcp.iter();
        let active = active.map(|(of, totals)| (of.list(), totals.connections_active));
        gauges(encoder, &proxy::TCP_CONNECTIONS_ACTIVE, active)?;
        let failed = self.tcp.iter().flat_map(|(of, totals)| {
            let [a, b, c, d, e, f] = of.list();
            let failed = totals.failed.iter();
            failed.map(move |(reason, count)| ([a, b, c, d, e, f, ("reason", *reason)], *count))
        });
        counters(encoder, &proxy::TCP_CONNECTIONS_FAILED, failed)
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ids: Vec<String> = self.workers.iter().map(|w| w.id.to_string()).collect();
        let each = || ids.iter().map(String::as_str).zip(&self.workers);
        let manager = self.manager.as_deref();
        for (family, pick) in COUNTERS {
            let own = each().map(|(id, worker)| ([("worker", id)], pick(worker)));
            let by_manager = manager.and_then(|manager| by_manager(family, manager));
            let by_manager = by_manager.map(|counter| ([("worker", "manager")], counter.get()));
            counters(encoder, family, own.chain(by_manager))?;
        }
        for (family, pick) in GAUGES {
            // A Worker that has ended exposes no gauges; its counters stay.
            let running = each().filter(|(_, worker)| worker.is_running());
            let own = running.map(|(id, worker)| ([("worker", id)], pick(worker)));
            let by_manager = manager.filter(|_| family.name == proxy::LISTENERS_ACTIVE.name);
            let by_manager = by_manager.map(|m| ([("worker", "manager")], m.listeners.get()));
            gauges(encoder, family, own.chain(by_manager))?;
        }
        let info = each().map(|(id, worker)| {
            let class = worker.class().as_str();
            ([("worker", id), ("class", class)], 1)
        });
        gauges(encoder, &proxy::WORKER_INFO, info)?;
        let busy = each().map(|(id, w)| ([("worker", id)], w.busy_ns.get() as f64 / 1e9));
        counters(encoder, &proxy::WORKER_BUSY, busy)?;
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
        counters(encoder, &proxy::NODE_BYTES, bytes)?;
        for (family, pick) in REASONS {
            let samples = each().flat_map(|(id, worker)| {
                let reasons = pick(worker).iter();
                reasons.map(move |(reason, count)| ([("worker", id), ("reason", reason)], count))
            });
            counters(encoder, family, samples)?;
        }
        Ok(())
    }
}

/// The Manager's part of a family of the Workers. The thread that accepts a connection counts it as refused or
/// abandoned: the Worker if it is the only one, else the Manager.
fn by_manager<'m>(family: &Family, manager: &'m ManagerStats) -> Option<&'m Counter> {
    let counters = [
        (proxy::CONNECTIONS_REFUSED, &manager.connections_refused),
        (
            proxy::CONNECTIONS_OVER_SHARE,
            &manager.connections_over_share,
        ),
        (proxy::CONNECTIONS_ABANDONED, &manager.connections_abandoned),
    ];
    let mut counters = counters.into_iter();
    counters.find_map(|(of, counter)| (of.name == family.name).then_some(counter))
}

fn manager_alone(encoder: &mut DescriptorEncoder<'_>, manager: &ManagerStats) -> fmt::Result {
    for (family, pick) in MANAGER_GAUGES {
        gauge(encoder, family, pick(manager))?;
    }
    for (family, pick) in MANAGER_COUNTERS {
        counter(encoder, family, pick(manager))?;
    }
    Ok(())
}
