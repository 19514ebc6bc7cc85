//! What a Worker counts beside requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Counter, Gauge};

/// The numbers of one Worker. One writer: the Worker, but for what says otherwise.
#[derive(Debug)]
pub struct WorkerStats {
    /// Which Worker this is, counted from 0; the label `worker`.
    pub id: usize,
    /// Listeners that accept now.
    pub listeners: Gauge,
    /// Connections from clients, open now.
    pub connections_active: Gauge,
    /// Connections accepted so far.
    pub connections_total: Counter,
    /// Connections turned away because a bound was reached.
    pub connections_refused: Counter,
    /// Of these, those whose source had its share of all.
    pub connections_over_share: Counter,
    /// Connections that their clients had reset before anything was begun for them.
    pub connections_abandoned: Counter,
    /// Connections handed over to another Worker.
    pub connections_moved: Counter,
    /// Requests between the first byte of their head and the last byte of their response.
    pub requests_active: Gauge,
    /// Connections to endpoints, open now.
    pub upstream_connections_active: Gauge,
    /// Connections to endpoints that wait in a pool.
    pub upstream_connections_idle: Gauge,
    /// Connections to endpoints opened so far.
    pub upstream_connections_total: Counter,
    /// Connections to endpoints that could not be opened.
    pub upstream_connect_failures: Counter,
    /// Requests sent a second time because the first try failed before a byte of it was used.
    pub upstream_retries: Counter,
    /// Requests that could have been sent a second time, and were not since too many had been.
    pub upstream_retries_refused: Counter,
    /// Requests that wait now for an endpoint to have room.
    pub upstream_requests_waiting: Gauge,
    /// Requests that have waited so, however it ended.
    pub upstream_requests_waited: Counter,
    /// Endpoints that were left out for a while because of their answers.
    pub upstream_ejections: Counter,
    /// Handshakes with other nodes that were begun, on either side.
    pub handshakes: Counter,
    /// Those in which one side was not believed, by reason.
    pub handshakes_refused: ReasonCounters,
    /// Those that broke off, or took too long.
    pub handshakes_failed: Counter,
    /// Links with other nodes that are there now, whichever node opened them.
    pub links_active: Gauge,
    /// Links that were opened, on either side.
    pub links_total: Counter,
    /// How often one that was cut came back with its streams.
    pub links_resumed: Counter,
    /// How often a caller was asked for another link, since this Worker has too much to do, or is to end.
    pub links_asked: Counter,
    /// What other nodes were told and have said, below TLS.
    pub node_bytes: NodeBytes,
    /// `Forwarded` and `X-Forwarded-*` fields of untrusted clients that were removed.
    pub forwarding_headers_stripped: Counter,
    /// Decisions that policies in dry run would have made otherwise.
    pub policy_dry_run_differences: Counter,
    /// Buffer blocks that hold bytes now.
    pub buffer_blocks_active: Gauge,
    /// Access-log lines dropped by the Worker because the writer could not keep up.
    pub access_log_dropped: Counter,
    /// Access-log lines of the Worker that the writer could not write. One writer: the access log's
    /// thread, of which a process has one.
    pub(crate) access_log_lost: Counter,
    /// Time spent working rather than waiting for events, in nanoseconds.
    pub busy_ns: Counter,
    /// Generation of the configuration that the Worker serves.
    pub config_generation: Gauge,
    /// Whether the Worker has ended, so that its gauges are not shown. One writer: the Manager.
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
            ended: AtomicBool::new(false),
        }
    }

    /// Whether the Worker runs, as far as was said.
    pub fn is_running(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// The next Worker goes on with these numbers.
    pub fn begin_again(&self) {
        self.ended.store(false, Ordering::Relaxed);
    }

    /// The Worker has ended, perhaps without closing its books: nothing is open any more. Only when
    /// its thread writes no more.
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

/// What two nodes speak between them; the label `protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeProtocol {
    /// HTTP/1.1, or opaque bytes, on a connection of its own: `heddle/1`.
    Http1,
    /// Streams of links: `heddle-link/1`.
    Link,
    /// HTTP/2: `heddle-h2/1`.
    Http2,
}

/// Bytes between nodes as they are before they are encrypted and after they were decrypted, by what is
/// spoken. One writer: the Worker.
#[derive(Debug, Default)]
pub struct NodeBytes {
    sent: [Counter; NodeProtocol::ALL.len()],
    received: [Counter; NodeProtocol::ALL.len()],
}

impl NodeProtocol {
    pub(crate) const ALL: [NodeProtocol; 3] =
        [NodeProtocol::Http1, NodeProtocol::Link, NodeProtocol::Http2];

    pub(crate) fn name(self) -> &'static str {
        match self {
            NodeProtocol::Http1 => "http1",
            NodeProtocol::Link => "link",
            NodeProtocol::Http2 => "http2",
        }
    }
}

impl NodeBytes {
    /// Bytes that other nodes were told.
    #[inline]
    pub fn sent(&self, protocol: NodeProtocol) -> &Counter {
        &self.sent[protocol as usize]
    }

    /// Bytes that other nodes have said.
    #[inline]
    pub fn received(&self, protocol: NodeProtocol) -> &Counter {
        &self.received[protocol as usize]
    }
}

/// What is counted of the Workers as a whole. One writer: the Manager.
#[derive(Debug, Default)]
pub struct ManagerStats {
    /// Listeners from which the Manager accepts: all of them, while there are several Workers.
    pub listeners: Gauge,
    /// Workers that take connections.
    pub workers_active: Gauge,
    /// Workers that there may be.
    pub workers_limit: Gauge,
    /// Workers started, or kept that were about to retire.
    pub workers_started: Counter,
    /// Workers that were told to hand over what they have, and end.
    pub workers_retired: Counter,
    /// Workers that ended by a fault of theirs, and were replaced.
    pub workers_died: Counter,
    /// How often one Worker was told to take connections of another.
    pub takings: Counter,
    /// Connections closed because a bound was reached or no Worker had room.
    pub connections_refused: Counter,
    /// Of these, those whose source had its share of all.
    pub connections_over_share: Counter,
    /// Connections that their clients had reset before a Worker was chosen for them.
    pub connections_abandoned: Counter,
    /// Of those that were refused, those for which no Worker had room.
    pub connections_unplaced: Counter,
}

/// One counter for each reason code. The codes are the Worker's own, fixed when it is registered,
/// so that counting is an index and the label set is bounded by construction.
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

    /// Counts one for the reason at `index` of the list given to [`crate::Registry::worker`];
    /// an index outside the list counts nothing. Only the owning thread may call this.
    #[inline]
    pub fn inc(&self, index: usize) {
        if let Some(counter) = self.counts.get(index) {
            counter.inc();
        }
    }

    /// Adds what was counted, if anything was, to sums by reason; any thread.
    pub(crate) fn add_up(counted: Option<&Self>, sums: &mut BTreeMap<&'static str, u64>) {
        let counted = counted.into_iter().flat_map(ReasonCounters::iter);
        for (reason, count) in counted.filter(|(_, count)| *count > 0) {
            *sums.entry(reason).or_default() += count;
        }
    }

    /// Each reason with its count; any thread.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.reasons
            .iter()
            .copied()
            .zip(self.counts.iter().map(Counter::get))
    }
}
