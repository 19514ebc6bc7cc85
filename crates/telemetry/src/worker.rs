//! Metrics of a Worker besides those of requests, and of the Manager.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_model::Class;

use crate::{Counter, Gauge};

/// The metrics of one Worker. Single writer: the Worker, unless a field says otherwise.
#[derive(Debug)]
pub struct WorkerStats {
    /// Number of the Worker, from 0; the label `worker`.
    pub id: usize,
    /// Listeners that accept connections now.
    pub listeners: Gauge,
    /// Client connections open now.
    pub connections_active: Gauge,
    /// Client connections accepted.
    pub connections_total: Counter,
    /// Client connections refused because a limit was reached.
    pub connections_refused: Counter,
    /// The part of `connections_refused` whose source had used up its share of the limit.
    pub connections_over_share: Counter,
    /// Connections that the client had already reset when they were accepted.
    pub connections_abandoned: Counter,
    /// Client connections handed over to another Worker.
    pub connections_moved: Counter,
    /// Requests in progress: from the first byte of the request head to the last byte of the response.
    pub requests_active: Gauge,
    /// Connections to endpoints open now.
    pub upstream_connections_active: Gauge,
    /// Idle connections to endpoints in the pool.
    pub upstream_connections_idle: Gauge,
    /// Connections opened to endpoints.
    pub upstream_connections_total: Counter,
    /// Connections to endpoints that could not be opened.
    pub upstream_connect_failures: Counter,
    /// Retries: requests sent again because the first attempt failed before any of its bytes was used.
    pub upstream_retries: Counter,
    /// Retries that were not made because the retry budget was used up.
    pub upstream_retries_refused: Counter,
    /// Requests queued now because their endpoints are at their limit.
    pub upstream_requests_waiting: Gauge,
    /// Requests that were queued for that reason, whether they were sent in the end or not.
    pub upstream_requests_waited: Counter,
    /// How often an endpoint was ejected from balancing for a while because of its responses.
    pub upstream_ejections: Counter,
    /// Handshakes with other nodes that were started, by either side.
    pub handshakes: Counter,
    /// Handshakes in which one side rejected the other's identity, by reason.
    pub handshakes_refused: ReasonCounters,
    /// Handshakes that broke off, timed out or were evicted for newer ones.
    pub handshakes_failed: Counter,
    /// Links with other nodes now, whichever node opened them, including links that were cut and may be resumed.
    pub links_active: Gauge,
    /// Links with other nodes that were opened, by either side.
    pub links_total: Counter,
    /// How often a link that was cut was resumed with its streams.
    pub links_resumed: Counter,
    /// How often a calling node was asked to open another link, because this Worker is overloaded or about to retire.
    pub links_asked: Counter,
    /// Bytes exchanged with other nodes, as plaintext.
    pub node_bytes: NodeBytes,
    /// `Forwarded` and `X-Forwarded-*` fields removed from requests of untrusted clients.
    pub forwarding_headers_stripped: Counter,
    /// Decisions that would differ if the policies in dry run were in force.
    pub policy_dry_run_differences: Counter,
    /// Buffer blocks in use now.
    pub buffer_blocks_active: Gauge,
    /// Access-log lines that the Worker dropped because the writer thread could not keep up.
    pub access_log_dropped: Counter,
    /// Access-log lines of the Worker that could not be written to the target. Single writer: the access-log thread,
    /// of which a process has one.
    pub(crate) access_log_lost: Counter,
    /// Time spent working rather than waiting for events, in nanoseconds.
    pub busy_ns: Counter,
    /// Generation of the configuration that the Worker uses.
    pub config_generation: Gauge,
    /// Whether the Worker serves offline callers.
    is_offline: AtomicBool,
    /// Whether the Worker has ended; its gauges are then not exposed. Single writer: the Manager.
    ended: AtomicBool,
}

impl WorkerStats {
    pub(crate) fn new(id: usize, refusals: &'static [&'static str]) -> Self {
        WorkerStats {
            id,
            listeners: Gauge::default(),
            connections_active: Gauge::default(),
            connections_total: Counter::default(),
            connections_refused: Counter::default(),
            connections_over_share: Counter::default(),
            connections_abandoned: Counter::default(),
            connections_moved: Counter::default(),
            requests_active: Gauge::default(),
            upstream_connections_active: Gauge::default(),
            upstream_connections_idle: Gauge::default(),
            upstream_connections_total: Counter::default(),
            upstream_connect_failures: Counter::default(),
            upstream_retries: Counter::default(),
            upstream_retries_refused: Counter::default(),
            upstream_requests_waiting: Gauge::default(),
            upstream_requests_waited: Counter::default(),
            upstream_ejections: Counter::default(),
            handshakes: Counter::default(),
            handshakes_refused: ReasonCounters::new(refusals),
            handshakes_failed: Counter::default(),
            links_active: Gauge::default(),
            links_total: Counter::default(),
            links_resumed: Counter::default(),
            links_asked: Counter::default(),
            node_bytes: NodeBytes::default(),
            forwarding_headers_stripped: Counter::default(),
            policy_dry_run_differences: Counter::default(),
            buffer_blocks_active: Gauge::default(),
            access_log_dropped: Counter::default(),
            access_log_lost: Counter::default(),
            busy_ns: Counter::default(),
            config_generation: Gauge::default(),
            is_offline: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Says which callers the Worker serves. By default they are online.
    pub fn set_class(&self, class: Class) {
        let is_offline = class == Class::Offline;
        self.is_offline.store(is_offline, Ordering::Relaxed);
    }

    /// The class of the callers that the Worker serves.
    pub fn class(&self) -> Class {
        match self.is_offline.load(Ordering::Relaxed) {
            false => Class::Online,
            true => Class::Offline,
        }
    }

    /// Whether the Worker runs: [`WorkerStats::end`] was not called since it was started.
    pub fn is_running(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// Marks the Worker as running again: a replacement continues with these counters.
    pub fn begin_again(&self) {
        self.ended.store(false, Ordering::Relaxed);
    }

    /// Marks the Worker as ended and resets its gauges, because it may have died without decrementing them. Call it
    /// only when its thread no longer writes.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        for gauge in [
            &self.listeners,
            &self.connections_active,
            &self.requests_active,
            &self.upstream_connections_active,
            &self.upstream_connections_idle,
            &self.links_active,
            &self.upstream_requests_waiting,
            &self.buffer_blocks_active,
            &self.config_generation,
        ] {
            gauge.set(0);
        }
    }
}

/// Protocol between two nodes, or with a stock proxy; the label `protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeProtocol {
    /// HTTP/1.1 or opaque bytes on a connection of their own (ALPN `heddle/1`).
    Http1,
    /// Streams multiplexed on a link (ALPN `heddle-link/1`).
    Link,
    /// HTTP/2 (ALPN `heddle-h2/1`).
    Http2,
    /// HTTP/1.1 with a stock proxy such as an Envoy (ALPN `http/1.1`).
    StockHttp,
    /// Opaque bytes with a stock proxy (ALPN `heddle-bytes/1`).
    StockBytes,
}

/// Bytes exchanged between nodes, counted before encryption and after decryption, by protocol. Single writer: the
/// Worker.
#[derive(Debug, Default)]
pub struct NodeBytes {
    sent: [Counter; NodeProtocol::ALL.len()],
    received: [Counter; NodeProtocol::ALL.len()],
}

impl NodeProtocol {
    pub(crate) const ALL: [NodeProtocol; 5] = [
        NodeProtocol::Http1,
        NodeProtocol::Link,
        NodeProtocol::Http2,
        NodeProtocol::StockHttp,
        NodeProtocol::StockBytes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            NodeProtocol::Http1 => "http1",
            NodeProtocol::Link => "link",
            NodeProtocol::Http2 => "http2",
            NodeProtocol::StockHttp => "stock_http",
            NodeProtocol::StockBytes => "stock_bytes",
        }
    }
}

impl NodeBytes {
    /// Bytes sent to other nodes.
    #[inline]
    pub fn sent(&self, protocol: NodeProtocol) -> &Counter {
        &self.sent[protocol as usize]
    }

    /// Bytes received from other nodes.
    #[inline]
    pub fn received(&self, protocol: NodeProtocol) -> &Counter {
        &self.received[protocol as usize]
    }
}

/// Metrics of the Manager and of the Workers as a whole. Single writer: the Manager.
#[derive(Debug, Default)]
pub struct ManagerStats {
    /// Listeners on which the Manager accepts: all of them while there are several Workers.
    pub listeners: Gauge,
    /// Workers that take new connections.
    pub workers_active: Gauge,
    /// Limit of the number of Workers.
    pub workers_limit: Gauge,
    /// Workers started, and Workers about to retire that were kept instead.
    pub workers_started: Counter,
    /// Workers told to hand over their connections and end.
    pub workers_retired: Counter,
    /// Workers that crashed and were replaced.
    pub workers_died: Counter,
    /// How often one Worker was told to take connections from another.
    pub takings: Counter,
    /// Client connections refused because a limit was reached or no Worker had room.
    pub connections_refused: Counter,
    /// The part of `connections_refused` whose source had used up its share of the limit.
    pub connections_over_share: Counter,
    /// Connections that the client had already reset when they were accepted, before a Worker was chosen.
    pub connections_abandoned: Counter,
    /// The part of `connections_refused` for which no Worker had room.
    pub connections_unplaced: Counter,
}

/// One counter for each reason code. The caller fixes the list of codes at creation, so that counting is an array
/// access and the number of label sets is bounded.
#[derive(Debug)]
pub struct ReasonCounters {
    reasons: &'static [&'static str],
    counts: Box<[Counter]>,
}

impl ReasonCounters {
    pub(crate) fn new(reasons: &'static [&'static str]) -> Self {
        ReasonCounters {
            reasons,
            counts: reasons.iter().map(|_| Counter::default()).collect(),
        }
    }

    /// Adds one for the reason at `index` of the list given at creation. An index outside the list is ignored. Only
    /// the owning thread may call this.
    #[inline]
    pub fn inc(&self, index: usize) {
        if let Some(counter) = self.counts.get(index) {
            counter.inc();
        }
    }

    /// Adds the counts that are not 0 to sums by reason. Any thread may call this.
    pub(crate) fn add_up(counted: Option<&Self>, sums: &mut BTreeMap<&'static str, u64>) {
        let counted = counted.into_iter().flat_map(ReasonCounters::iter);
        for (reason, count) in counted.filter(|(_, count)| *count > 0) {
            *sums.entry(reason).or_default() += count;
        }
    }

    /// Each reason with its count. Any thread may call this.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.reasons
            .iter()
            .copied()
            .zip(self.counts.iter().map(Counter::get))
    }
}
