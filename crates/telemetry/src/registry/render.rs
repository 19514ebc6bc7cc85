//! The registry as Prometheus text.

use std::sync::Arc;

use super::Registry;
use crate::http::{HttpTotals, STATUS_CLASSES};
use crate::tcp::TcpTotals;
use crate::text::{Encoder, Kind, Label};
use crate::worker::NodeProtocol;
use crate::{Counter, Gauge, HttpLabels, ManagerStats, TcpLabels, WorkerStats, histogram};

impl Registry {
    /// Appends all metrics to `out`, in Prometheus' text format ([`crate::text`]).
    ///
    /// Families come in a fixed order and samples sorted by label, so that two renderings can be
    /// compared line by line.
    pub fn render(&self, out: &mut String) {
        let (http, tcp, overflows, workers, manager) = {
            let inner = self.lock();
            let http: Vec<(HttpLabels, HttpTotals)> = inner
                .http
                .iter()
                .map(|(labels, all)| {
                    let mut totals = HttpTotals::default();
                    all.iter().for_each(|series| totals.add(series));
                    (labels.clone(), totals)
                })
                .collect();
            let tcp: Vec<(TcpLabels, TcpTotals)> = inner
                .tcp
                .iter()
                .map(|(labels, all)| {
                    let mut totals = TcpTotals::default();
                    all.iter().for_each(|series| totals.add(series));
                    (labels.clone(), totals)
                })
                .collect();
            (
                http,
                tcp,
                inner.overflows,
                inner.workers.clone(),
                inner.manager.clone(),
            )
        };
        let mut encoder = Encoder::new(out);
        requests(&mut encoder, &http);
        durations(&mut encoder, &http);
        bytes(&mut encoder, &http);
        opaque(&mut encoder, &tcp);
        let help = "Label sets that were counted as `other` because there were too many.";
        encoder.family("heddle_metrics_overflow_total", Kind::Counter, help);
        encoder.count("heddle_metrics_overflow_total", &[], overflows);
        render_workers(&mut encoder, &workers, manager.as_deref());
        if let Some(manager) = manager {
            render_manager(&mut encoder, &manager);
        }
    }
}

fn labels(of: &HttpLabels) -> [Label<'_>; 3] {
    [
        ("source", &of.source),
        ("destination_service", &of.destination_service),
        ("route", &of.route),
    ]
}

fn requests(encoder: &mut Encoder<'_>, http: &[(HttpLabels, HttpTotals)]) {
    let name = "heddle_http_requests_total";
    encoder.family(name, Kind::Counter, "Finished HTTP requests.");
    for (of, totals) in http {
        let [source, destination, route] = labels(of);
        for (class, count) in STATUS_CLASSES.iter().zip(totals.requests) {
            encoder.count(
                name,
                &[source, destination, route, ("status_class", class)],
                count,
            );
        }
    }
}

fn durations(encoder: &mut Encoder<'_>, http: &[(HttpLabels, HttpTotals)]) {
    let name = "heddle_http_request_duration_seconds";
    let help = "From the first byte of a request to the last byte of its response.";
    encoder.family(name, Kind::Histogram, help);
    let bounds = histogram::BOUNDS_S.iter().copied().chain(["+Inf"]);
    for (of, totals) in http {
        let [source, destination, route] = labels(of);
        let mut below = 0;
        for (bound, count) in bounds.clone().zip(totals.buckets) {
            below += count;
            let labels = [source, destination, route, ("le", bound)];
            encoder.count(
                "heddle_http_request_duration_seconds_bucket",
                &labels,
                below,
            );
        }
        let labels = labels(of);
        encoder.seconds(
            "heddle_http_request_duration_seconds_sum",
            &labels,
            totals.sum_us,
        );
        encoder.count("heddle_http_request_duration_seconds_count", &labels, below);
    }
}

fn bytes(encoder: &mut Encoder<'_>, http: &[(HttpLabels, HttpTotals)]) {
    let name = "heddle_http_request_bytes_total";
    encoder.family(
        name,
        Kind::Counter,
        "Bytes of request bodies received from clients.",
    );
    for (of, totals) in http {
        encoder.count(name, &labels(of), totals.request_bytes);
    }
    let name = "heddle_http_response_bytes_total";
    encoder.family(
        name,
        Kind::Counter,
        "Bytes of response bodies sent to clients.",
    );
    for (of, totals) in http {
        encoder.count(name, &labels(of), totals.response_bytes);
    }
}

/// One family of opaque connections: its name, kind, help, and where its value is found.
type TcpFamily = (&'static str, Kind, &'static str, fn(&TcpTotals) -> i64);

const TCP: &[TcpFamily] = &[
    (
        "heddle_tcp_connections_total",
        Kind::Counter,
        "Connections passed on as bytes.",
        |totals| level(totals.connections_total),
    ),
    (
        "heddle_tcp_connections_active",
        Kind::Gauge,
        "Connections passed on as bytes, open now.",
        |totals| totals.connections_active,
    ),
    (
        "heddle_tcp_received_bytes_total",
        Kind::Counter,
        "Bytes that they carried from clients to endpoints.",
        |totals| level(totals.received_bytes),
    ),
    (
        "heddle_tcp_sent_bytes_total",
        Kind::Counter,
        "Bytes that they carried from endpoints to clients.",
        |totals| level(totals.sent_bytes),
    ),
];

fn level(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn opaque(encoder: &mut Encoder<'_>, tcp: &[(TcpLabels, TcpTotals)]) {
    for (name, kind, help, pick) in TCP {
        encoder.family(name, *kind, help);
        for (of, totals) in tcp {
            let labels = [
                ("source", &*of.source),
                ("destination_service", &*of.destination_service),
            ];
            encoder.level(name, &labels, pick(totals));
        }
    }
    let name = "heddle_tcp_connections_failed_total";
    let help = "Connections passed on as bytes, or to be, that failed.";
    encoder.family(name, Kind::Counter, help);
    for (of, totals) in tcp {
        for (reason, count) in &totals.failed {
            let labels = [
                ("source", &*of.source),
                ("destination_service", &*of.destination_service),
                ("reason", reason),
            ];
            encoder.count(name, &labels, *count);
        }
    }
}

/// Where a Worker's counter of a family is found.
type Pick<T> = fn(&WorkerStats) -> &T;

/// Who accepts refuses: a Worker that is the only one, else the Manager.
const REFUSED: &str = "heddle_connections_refused_total";
const OVER_SHARE: &str = "heddle_connections_over_share_total";
const ABANDONED: &str = "heddle_connections_abandoned_total";

const COUNTERS: &[(&str, &str, Pick<Counter>)] = &[
    ("heddle_connections_total", "Connections accepted.", |w| {
        &w.connections_total
    }),
    (
        REFUSED,
        "Connections turned away because a bound was reached.",
        |w| &w.connections_refused,
    ),
    (
        OVER_SHARE,
        "Of the connections turned away, those whose source had its share.",
        |w| &w.connections_over_share,
    ),
    (
        ABANDONED,
        "Connections that their clients had reset before anything was begun for them.",
        |w| &w.connections_abandoned,
    ),
    (
        "heddle_connections_moved_total",
        "Connections handed over to another worker.",
        |w| &w.connections_moved,
    ),
    (
        "heddle_upstream_connections_total",
        "Connections opened to endpoints.",
        |w| &w.upstream_connections_total,
    ),
    (
        "heddle_upstream_connect_failures_total",
        "Connections to endpoints that could not be opened.",
        |w| &w.upstream_connect_failures,
    ),
    (
        "heddle_upstream_retries_total",
        "Requests sent a second time.",
        |w| &w.upstream_retries,
    ),
    (
        "heddle_upstream_retries_refused_total",
        "Requests not sent a second time because too many others had been.",
        |w| &w.upstream_retries_refused,
    ),
    (
        "heddle_upstream_requests_waited_total",
        "Requests that waited for an endpoint to have room.",
        |w| &w.upstream_requests_waited,
    ),
    (
        "heddle_upstream_ejections_total",
        "Endpoints left out for a while because of their answers.",
        |w| &w.upstream_ejections,
    ),
    (
        "heddle_handshakes_total",
        "Handshakes with other nodes that were begun.",
        |w| &w.handshakes,
    ),
    (
        "heddle_handshakes_failed_total",
        "Handshakes with other nodes that broke off or took too long.",
        |w| &w.handshakes_failed,
    ),
    (
        "heddle_links_total",
        "Links with other nodes that were opened, on either side.",
        |w| &w.links_total,
    ),
    (
        "heddle_links_resumed_total",
        "How often a link that was cut came back with its streams.",
        |w| &w.links_resumed,
    ),
    (
        "heddle_links_asked_total",
        "How often a caller was asked for another link, for a worker that has less to do.",
        |w| &w.links_asked,
    ),
    (
        "heddle_forwarding_headers_stripped_total",
        "Forwarding fields of untrusted clients that were removed.",
        |w| &w.forwarding_headers_stripped,
    ),
    (
        "heddle_policy_dry_run_differences_total",
        "Decisions that policies in dry run would have made otherwise.",
        |w| &w.policy_dry_run_differences,
    ),
];

/// Who accepts: a Worker that is the only one, else the Manager.
const LISTENERS: &str = "heddle_listeners_active";

const GAUGES: &[(&str, &str, Pick<Gauge>)] = &[
    (
        "heddle_links_active",
        "Links with other nodes that are there now.",
        |w| &w.links_active,
    ),
    (LISTENERS, "Listeners that accept now.", |w| &w.listeners),
    (
        "heddle_connections_active",
        "Connections from clients, open now.",
        |w| &w.connections_active,
    ),
    ("heddle_requests_active", "Requests in progress.", |w| {
        &w.requests_active
    }),
    (
        "heddle_upstream_connections_active",
        "Connections to endpoints, open now.",
        |w| &w.upstream_connections_active,
    ),
    (
        "heddle_upstream_requests_waiting",
        "Requests that wait for an endpoint to have room.",
        |w| &w.upstream_requests_waiting,
    ),
    (
        "heddle_upstream_connections_idle",
        "Connections to endpoints waiting in a pool.",
        |w| &w.upstream_connections_idle,
    ),
    (
        "heddle_buffer_blocks_active",
        "Buffer blocks in use.",
        |w| &w.buffer_blocks_active,
    ),
    (
        "heddle_worker_config_generation",
        "Configuration that the worker serves.",
        |w| &w.config_generation,
    ),
];

fn render_workers(
    encoder: &mut Encoder<'_>,
    workers: &[Arc<WorkerStats>],
    manager: Option<&ManagerStats>,
) {
    let ids: Vec<String> = workers.iter().map(|worker| worker.id.to_string()).collect();
    let each = || ids.iter().zip(workers);
    for (name, help, pick) in COUNTERS {
        encoder.family(name, Kind::Counter, help);
        for (id, worker) in each() {
            encoder.count(name, &[("worker", id)], pick(worker).get());
        }
        let by_manager = manager.and_then(|manager| match *name {
            REFUSED => Some(&manager.connections_refused),
            OVER_SHARE => Some(&manager.connections_over_share),
            ABANDONED => Some(&manager.connections_abandoned),
            _ => None,
        });
        if let Some(counter) = by_manager {
            encoder.count(name, &[("worker", "manager")], counter.get());
        }
    }
    let name = "heddle_access_log_dropped_total";
    let help = "Access-log lines lost because they could not be written, or not in time.";
    encoder.family(name, Kind::Counter, help);
    for (id, worker) in each() {
        let lost = worker.access_log_dropped.get() + worker.access_log_lost.get();
        encoder.count(name, &[("worker", id)], lost);
    }
    for (name, help, pick) in GAUGES {
        encoder.family(name, Kind::Gauge, help);
        // A Worker that has ended has no level of anything; what it has counted stays.
        for (id, worker) in each().filter(|(_, worker)| worker.is_running()) {
            encoder.level(name, &[("worker", id)], pick(worker).get());
        }
        if let (LISTENERS, Some(manager)) = (*name, manager) {
            encoder.level(name, &[("worker", "manager")], manager.listeners.get());
        }
    }
    let name = "heddle_worker_busy_seconds_total";
    encoder.family(
        name,
        Kind::Counter,
        "Time spent working rather than waiting for events.",
    );
    for (id, worker) in each() {
        encoder.seconds(name, &[("worker", id)], worker.busy_ns.get() / 1_000);
    }
    let name = "heddle_node_bytes_total";
    encoder.family(
        name,
        Kind::Counter,
        "Bytes between nodes, before they are encrypted and after they were decrypted.",
    );
    for (id, worker) in each() {
        for protocol in NodeProtocol::ALL {
            let bytes = &worker.node_bytes;
            for (direction, counter) in [
                ("sent", bytes.sent(protocol)),
                ("received", bytes.received(protocol)),
            ] {
                let labels = [
                    ("worker", &**id),
                    ("direction", direction),
                    ("protocol", protocol.name()),
                ];
                encoder.count(name, &labels, counter.get());
            }
        }
    }
    let name = "heddle_handshakes_refused_total";
    encoder.family(
        name,
        Kind::Counter,
        "Handshakes with other nodes in which one side was not believed.",
    );
    for (id, worker) in each() {
        for (reason, count) in worker.handshakes_refused.iter() {
            encoder.count(name, &[("worker", id), ("reason", reason)], count);
        }
    }
    let name = "heddle_requests_rejected_total";
    encoder.family(
        name,
        Kind::Counter,
        "Requests that the proxy answered itself or gave up.",
    );
    for (id, worker) in each() {
        for (reason, count) in worker.requests_rejected.iter() {
            encoder.count(name, &[("worker", id), ("reason", reason)], count);
        }
    }
}

fn render_manager(encoder: &mut Encoder<'_>, manager: &ManagerStats) {
    for (name, help, gauge) in [
        (
            "heddle_workers_active",
            "Workers that take connections.",
            &manager.workers_active,
        ),
        (
            "heddle_workers_limit",
            "Workers that there may be.",
            &manager.workers_limit,
        ),
    ] {
        encoder.family(name, Kind::Gauge, help);
        encoder.level(name, &[], gauge.get());
    }
    for (name, help, counter) in [
        (
            "heddle_workers_started_total",
            "Workers started, or kept that were about to retire.",
            &manager.workers_started,
        ),
        (
            "heddle_workers_retired_total",
            "Workers told to hand over what they have, and end.",
            &manager.workers_retired,
        ),
        (
            "heddle_workers_died_total",
            "Workers that ended by a fault of theirs, and were replaced.",
            &manager.workers_died,
        ),
        (
            "heddle_worker_takings_total",
            "How often one worker was told to take connections of another.",
            &manager.takings,
        ),
        (
            "heddle_connections_unplaced_total",
            "Of the connections that were turned away, those for which no worker had room.",
            &manager.connections_unplaced,
        ),
    ] {
        encoder.family(name, Kind::Counter, help);
        encoder.count(name, &[], counter.get());
    }
}
