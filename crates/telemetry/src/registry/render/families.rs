//! Tables of metric families: name, help, and the function that reads the value.

use crate::http::HttpTotals;
use crate::tcp::TcpTotals;
use crate::worker::ReasonCounters;
use crate::{ManagerStats, WorkerStats};

/// Families with one counter or gauge for each `S`: name, help, and the function that reads the value.
pub(super) type Families<S, V> = [(&'static str, &'static str, fn(&S) -> V)];

pub(super) const BYTES: &Families<HttpTotals, u64> = &[
    (
        "heddle_http_request_bytes_total",
        "Bytes of request bodies received from clients.",
        |totals| totals.request_bytes,
    ),
    (
        "heddle_http_response_bytes_total",
        "Bytes of response bodies sent to clients.",
        |totals| totals.response_bytes,
    ),
];

pub(super) const TCP: &Families<TcpTotals, u64> = &[
    (
        "heddle_tcp_connections_total",
        "Connections passed on as bytes.",
        |totals| totals.connections_total,
    ),
    (
        "heddle_tcp_received_bytes_total",
        "Bytes of opaque connections from clients to endpoints.",
        |totals| totals.received_bytes,
    ),
    (
        "heddle_tcp_sent_bytes_total",
        "Bytes of opaque connections from endpoints to clients.",
        |totals| totals.sent_bytes,
    ),
];

/// Also a metric of the Manager, since connections are refused by the thread that accepts them: the Worker if it is
/// the only one, else the Manager. The same holds for `OVER_SHARE` and `ABANDONED`.
pub(super) const REFUSED: &str = "heddle_connections_refused_total";
pub(super) const OVER_SHARE: &str = "heddle_connections_over_share_total";
pub(super) const ABANDONED: &str = "heddle_connections_abandoned_total";

pub(super) const COUNTERS: &Families<WorkerStats, u64> = &[
    ("heddle_connections_total", "Connections accepted.", |w| {
        w.connections_total.get()
    }),
    (
        REFUSED,
        "Connections refused because a limit was reached.",
        |w| w.connections_refused.get(),
    ),
    (
        OVER_SHARE,
        "Of the connections refused, those whose source had used up its share of the limit.",
        |w| w.connections_over_share.get(),
    ),
    (
        ABANDONED,
        "Connections that the client had already reset when they were accepted.",
        |w| w.connections_abandoned.get(),
    ),
    (
        "heddle_connections_moved_total",
        "Connections handed over to another worker.",
        |w| w.connections_moved.get(),
    ),
    (
        "heddle_upstream_connections_total",
        "Connections opened to endpoints.",
        |w| w.upstream_connections_total.get(),
    ),
    (
        "heddle_upstream_connect_failures_total",
        "Connections to endpoints that could not be opened.",
        |w| w.upstream_connect_failures.get(),
    ),
    (
        "heddle_upstream_retries_total",
        "Requests sent a second time.",
        |w| w.upstream_retries.get(),
    ),
    (
        "heddle_upstream_retries_refused_total",
        "Requests not sent a second time because the retry budget was used up.",
        |w| w.upstream_retries_refused.get(),
    ),
    (
        "heddle_upstream_requests_waited_total",
        "Requests that waited because their endpoints were at their limit.",
        |w| w.upstream_requests_waited.get(),
    ),
    (
        "heddle_upstream_ejections_total",
        "Endpoints left out for a while because of their answers.",
        |w| w.upstream_ejections.get(),
    ),
    (
        "heddle_handshakes_total",
        "Handshakes with other nodes that were started, by either side.",
        |w| w.handshakes.get(),
    ),
    (
        "heddle_handshakes_failed_total",
        "Handshakes with other nodes that broke off or took too long.",
        |w| w.handshakes_failed.get(),
    ),
    (
        "heddle_links_total",
        "Links with other nodes that were opened, on either side.",
        |w| w.links_total.get(),
    ),
    (
        "heddle_links_resumed_total",
        "How often a link that was cut was resumed with its streams.",
        |w| w.links_resumed.get(),
    ),
    (
        "heddle_links_asked_total",
        "How often a calling node was asked to open another link, to a less loaded worker.",
        |w| w.links_asked.get(),
    ),
    (
        "heddle_forwarding_headers_stripped_total",
        "Forwarding fields of untrusted clients that were removed.",
        |w| w.forwarding_headers_stripped.get(),
    ),
    (
        "heddle_policy_dry_run_differences_total",
        "Decisions that would differ if policies in dry run were in force.",
        |w| w.policy_dry_run_differences.get(),
    ),
    (
        "heddle_access_log_dropped_total",
        "Access-log lines lost because they could not be written, or not in time.",
        |w| w.access_log_dropped.get() + w.access_log_lost.get(),
    ),
];

/// Also a metric of the Manager: the Worker accepts if it is the only one, else the Manager.
pub(super) const LISTENERS: &str = "heddle_listeners_active";

pub(super) const GAUGES: &Families<WorkerStats, i64> = &[
    (
        "heddle_links_active",
        "Links with other nodes now, including links that were cut and may be resumed.",
        |w| w.links_active.get(),
    ),
    (LISTENERS, "Listeners that accept now.", |w| {
        w.listeners.get()
    }),
    (
        "heddle_connections_active",
        "Connections from clients, open now.",
        |w| w.connections_active.get(),
    ),
    ("heddle_requests_active", "Requests in progress.", |w| {
        w.requests_active.get()
    }),
    (
        "heddle_upstream_connections_active",
        "Connections to endpoints, open now.",
        |w| w.upstream_connections_active.get(),
    ),
    (
        "heddle_upstream_requests_waiting",
        "Requests that wait because their endpoints are at their limit.",
        |w| w.upstream_requests_waiting.get(),
    ),
    (
        "heddle_upstream_connections_idle",
        "Connections to endpoints waiting in a pool.",
        |w| w.upstream_connections_idle.get(),
    ),
    (
        "heddle_buffer_blocks_active",
        "Buffer blocks in use.",
        |w| w.buffer_blocks_active.get(),
    ),
    (
        "heddle_worker_config_generation",
        "Configuration that the worker serves.",
        |w| w.config_generation.get(),
    ),
];

/// Selects the counters by reason of a Worker.
type Pick = fn(&WorkerStats) -> &ReasonCounters;

pub(super) const REASONS: &[(&str, &str, Pick)] = &[(
    "heddle_handshakes_refused_total",
    "Handshakes with other nodes in which one side rejected the other's identity.",
    |w| &w.handshakes_refused,
)];

pub(super) const MANAGER_GAUGES: &Families<ManagerStats, i64> = &[
    (
        "heddle_workers_active",
        "Workers that take connections.",
        |m| m.workers_active.get(),
    ),
    ("heddle_workers_limit", "Limit of workers.", |m| {
        m.workers_limit.get()
    }),
];

pub(super) const MANAGER_COUNTERS: &Families<ManagerStats, u64> = &[
    (
        "heddle_workers_started_total",
        "Workers started, and Workers about to retire that were kept.",
        |m| m.workers_started.get(),
    ),
    (
        "heddle_workers_retired_total",
        "Workers told to hand over what they have, and end.",
        |m| m.workers_retired.get(),
    ),
    (
        "heddle_workers_died_total",
        "Workers that crashed and were replaced.",
        |m| m.workers_died.get(),
    ),
    (
        "heddle_worker_takings_total",
        "How often one worker was told to take connections of another.",
        |m| m.takings.get(),
    ),
    (
        "heddle_connections_unplaced_total",
        "Of the connections refused, those for which no worker had room.",
        |m| m.connections_unplaced.get(),
    ),
];
