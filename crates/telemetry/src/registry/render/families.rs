//! Which value each metric family of the proxy has.

use crate::families::{Family, proxy};
use crate::http::HttpTotals;
use crate::tcp::TcpTotals;
use crate::worker::ReasonCounters;
use crate::{ManagerStats, WorkerStats};

/// Families with one counter or gauge for each `S`, and the function that reads the value.
pub(super) type Families<S, V> = [(Family, fn(&S) -> V)];

pub(super) const BYTES: &Families<HttpTotals, u64> = &[
    (proxy::HTTP_REQUEST_BYTES, |totals| totals.request_bytes),
    (proxy::HTTP_RESPONSE_BYTES, |totals| totals.response_bytes),
];

pub(super) const TCP: &Families<TcpTotals, u64> = &[
    (proxy::TCP_CONNECTIONS, |totals| totals.connections_total),
    (proxy::TCP_RECEIVED_BYTES, |totals| totals.received_bytes),
    (proxy::TCP_SENT_BYTES, |totals| totals.sent_bytes),
];

pub(super) const COUNTERS: &Families<WorkerStats, u64> = &[
    (proxy::CONNECTIONS, |w| w.connections_total.get()),
    (proxy::CONNECTIONS_REFUSED, |w| w.connections_refused.get()),
    (proxy::CONNECTIONS_OVER_SHARE, |w| {
        w.connections_over_share.get()
    }),
    (proxy::CONNECTIONS_ABANDONED, |w| {
        w.connections_abandoned.get()
    }),
    (proxy::CONNECTIONS_MOVED, |w| w.connections_moved.get()),
    (proxy::UPSTREAM_CONNECTIONS, |w| {
        w.upstream_connections_total.get()
    }),
    (proxy::UPSTREAM_CONNECT_FAILURES, |w| {
        w.upstream_connect_failures.get()
    }),
    (proxy::UPSTREAM_RETRIES, |w| w.upstream_retries.get()),
    (proxy::UPSTREAM_RETRIES_REFUSED, |w| {
        w.upstream_retries_refused.get()
    }),
    (proxy::UPSTREAM_REQUESTS_WAITED, |w| {
        w.upstream_requests_waited.get()
    }),
    (proxy::UPSTREAM_EJECTIONS, |w| w.upstream_ejections.get()),
    (proxy::HANDSHAKES, |w| w.handshakes.get()),
    (proxy::HANDSHAKES_FAILED, |w| w.handshakes_failed.get()),
    (proxy::LINKS, |w| w.links_total.get()),
    (proxy::LINKS_RESUMED, |w| w.links_resumed.get()),
    (proxy::LINKS_ASKED, |w| w.links_asked.get()),
    (proxy::FORWARDING_HEADERS_STRIPPED, |w| {
        w.forwarding_headers_stripped.get()
    }),
    (proxy::POLICY_DRY_RUN_DIFFERENCES, |w| {
        w.policy_dry_run_differences.get()
    }),
    (proxy::ACCESS_LOG_DROPPED, |w| {
        w.access_log_dropped.get() + w.access_log_lost.get()
    }),
];

pub(super) const GAUGES: &Families<WorkerStats, i64> = &[
    (proxy::LINKS_ACTIVE, |w| w.links_active.get()),
    (proxy::LISTENERS_ACTIVE, |w| w.listeners.get()),
    (proxy::CONNECTIONS_ACTIVE, |w| w.connections_active.get()),
    (proxy::REQUESTS_ACTIVE, |w| w.requests_active.get()),
    (proxy::UPSTREAM_CONNECTIONS_ACTIVE, |w| {
        w.upstream_connections_active.get()
    }),
    (proxy::UPSTREAM_REQUESTS_WAITING, |w| {
        w.upstream_requests_waiting.get()
    }),
    (proxy::UPSTREAM_CONNECTIONS_IDLE, |w| {
        w.upstream_connections_idle.get()
    }),
    (proxy::BUFFER_BLOCKS_ACTIVE, |w| {
        w.buffer_blocks_active.get()
    }),
    (proxy::WORKER_CONFIG_GENERATION, |w| {
        w.config_generation.get()
    }),
];

/// Selects the counters by reason of a Worker.
type Pick = fn(&WorkerStats) -> &ReasonCounters;

pub(super) const REASONS: &[(Family, Pick)] =
    &[(proxy::HANDSHAKES_REFUSED, |w| &w.handshakes_refused)];

pub(super) const MANAGER_GAUGES: &Families<ManagerStats, i64> = &[
    (proxy::WORKERS_ACTIVE, |m| m.workers_active.get()),
    (proxy::WORKERS_LIMIT, |m| m.workers_limit.get()),
];

pub(super) const MANAGER_COUNTERS: &Families<ManagerStats, u64> = &[
    (proxy::WORKERS_STARTED, |m| m.workers_started.get()),
    (proxy::WORKERS_RETIRED, |m| m.workers_retired.get()),
    (proxy::WORKERS_DIED, |m| m.workers_died.get()),
    (proxy::WORKER_TAKINGS, |m| m.takings.get()),
    (proxy::CONNECTIONS_UNPLACED, |m| {
        m.connections_unplaced.get()
    }),
];
