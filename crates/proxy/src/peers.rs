//! The state of a Worker's connections with other nodes, as `heddle status` shows it.
//!
//! Requests update no counters for this. At a sweep, at most once a second, the existing connections are inspected;
//! between two sweeps only failures are recorded.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_telemetry::Seldom;

use crate::clock::{Clock, Millis};
use crate::failure::Reason;

/// Minimum time between two inspections, in milliseconds.
const LOOK_MS: Millis = 1_000;
/// How long the endpoints of a node that accepts no connections are avoided, in milliseconds. The node is tried again
/// at shorter intervals.
const AWAY_MS: Millis = 3_000;
/// Limit of nodes whose last failure is remembered. At the limit the oldest failure is forgotten.
const MAX_FAILURES: usize = 1_024;

/// Another node, identified by its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A node that is called from here, by the address at which it accepts connections.
    At(SocketAddr),
    /// A node that calls this node, by the source address of its connections.
    From(IpAddr),
}

/// The connections with another node, and its last failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Links whose other end responds.
    pub links_up: usize,
    /// Links that are being connected.
    pub links_connecting: usize,
    /// Links that were cut and may still reconnect.
    pub links_cut: usize,
    /// When the first of the links that are cut now was cut.
    pub cut_since: Option<Instant>,
    /// Requests and flows on links and HTTP/2 connections.
    pub streams: usize,
    pub http2_connections: usize,
    /// HTTP/1.1 connections to it, which carry one request or flow at a time. Counted only if `between_nodes` is
    /// HTTP/1.1.
    pub http1_connections: usize,
    /// Why the last call to it failed, or a link to it was lost.
    pub failure: Option<PeerFailure>,
}

/// The failure of a call to another node, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerFailure {
    /// The code of the failure's [`Reason`].
    pub code: &'static str,
    /// The time of the failure.
    pub at: Instant,
}

impl PeerStatus {
    /// Whether there is a connection, or was one that may reconnect.
    pub fn is_connected(&self) -> bool {
        let links = self.links_up + self.links_connecting + self.links_cut;
        links + self.http2_connections + self.http1_connections > 0
    }

    /// Counts a link that was cut at this time.
    pub(crate) fn add_cut(&mut self, since: Instant) {
        self.links_cut += 1;
        self.cut_since = Some(self.cut_since.map_or(since, |first| first.min(since)));
    }

    /// Adds what another Worker, or another part of this one, knows of the same node.
    pub(crate) fn add(&mut self, other: &PeerStatus) {
        self.links_up += other.links_up;
        self.links_connecting += other.links_connecting;
        self.links_cut += other.links_cut;
        self.cut_since = self.cut_since.into_iter().chain(other.cut_since).min();
        self.streams += other.streams;
        self.http2_connections += other.http2_connections;
        self.http1_connections += other.http1_connections;
        let failures = self.failure.into_iter().chain(other.failure);
        self.failure = failures.max_by_key(|failure| failure.at);
    }
}

/// What a Worker remembers of other nodes between two inspections.
#[derive(Debug)]
pub(crate) struct Peers {
    failures: RefCell<HashMap<SocketAddr, (Reason, Millis), RandomState>>,
    /// Nodes that accept no connections, and until when their endpoints are avoided.
    away: RefCell<Vec<(SocketAddr, Millis)>>,
    /// Earliest time of the next inspection.
    next_look: Cell<Millis>,
    /// The shown state may be outdated by the next inspection, or a change is not shown yet.
    is_stale: Cell<bool>,
    /// Limits how often each trouble of each node is logged.
    said: RefCell<Seldom<(SocketAddr, Trouble)>>,
}

impl Default for Peers {
    fn default() -> Self {
        Peers {
            failures: RefCell::default(),
            away: RefCell::default(),
            next_look: Cell::default(),
            is_stale: Cell::default(),
            // There may be many nodes, and each request tries one that is away.
            said: RefCell::new(Seldom::of_others()),
        }
    }
}

/// A trouble with another node that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It accepts no connection.
    Unreachable,
    /// It closes connections in the middle of the handshake.
    Left,
}

impl Peers {
    /// Records that a call to another node failed, or that a link to it was lost.
    pub(crate) fn failed(&self, node: SocketAddr, reason: Reason, now: Millis) {
        let mut failures = self.failures.borrow_mut();
        if failures.len() >= MAX_FAILURES && !failures.contains_key(&node) {
            let oldest = failures.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(node, _)| *node) {
                failures.remove(&oldest);
            }
        }
        failures.insert(node, (reason, now));
        self.is_stale.set(true);
    }

    /// Whether a node's trouble is to be logged now: each at most once a minute.
    pub(crate) fn may_name(&self, node: SocketAddr, trouble: Trouble, now: Instant) -> bool {
        self.said.borrow_mut().may_name((node, trouble), now)
    }

    /// Records that a node accepts no connections. Requests for its endpoints go to other endpoints while there are
    /// any; else they wait for the node.
    pub(crate) fn went_away(&self, node: SocketAddr, now: Millis) {
        let mut away = self.away.borrow_mut();
        away.retain(|&(other, until)| other != node && now < until);
        away.push((node, now.saturating_add(AWAY_MS)));
    }

    /// Records that it accepts connections again.
    pub(crate) fn came_back(&self, node: SocketAddr) {
        self.away.borrow_mut().retain(|&(other, _)| other != node);
    }

    /// How much longer its endpoints are avoided, in milliseconds; 0 for a node that accepts connections.
    pub(crate) fn away_for(&self, node: SocketAddr, now: Millis) -> Millis {
        let away = self.away.borrow();
        let until = away.iter().find(|(other, _)| *other == node);
        until.map_or(0, |(_, until)| until.saturating_sub(now))
    }

    /// Whether another inspection is needed even if nothing else happens.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.get()
    }

    /// Whether it is time for the next inspection. If so, this call counts as one.
    pub(crate) fn is_time(&self, now: Millis) -> bool {
        let is_time = now >= self.next_look.get();
        if is_time {
            self.next_look.set(now + LOOK_MS);
        }
        is_time
    }

    /// Everything is shown now. If there is any connection, that may be outdated by the next inspection.
    pub(crate) fn shown(&self, is_any: bool) {
        self.is_stale.set(is_any);
    }

    pub(crate) fn show_failures(&self, clock: &Clock, shown: &mut BTreeMap<Peer, PeerStatus>) {
        for (node, (reason, at)) in &*self.failures.borrow() {
            let (code, at) = (reason.code(), clock.instant(*at));
            let status = shown.entry(Peer::At(*node)).or_default();
            status.failure = Some(PeerFailure { code, at });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_workers_show_adds_up() {
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let failed = |code, s| Some(PeerFailure { code, at: at(s) });
        let mut one = PeerStatus {
            links_up: 1,
            streams: 3,
            failure: failed("link_lost", 5),
            ..PeerStatus::default()
        };
        one.add_cut(at(9));
        one.add_cut(at(8));
        assert_eq!((one.links_cut, one.cut_since), (2, Some(at(8))));
        let mut other = PeerStatus {
            streams: 1,
            failure: failed("peer_refused", 6),
            ..PeerStatus::default()
        };
        assert!(one.is_connected() && !other.is_connected());
        other.add_cut(at(7));
        one.add(&other);
        assert_eq!((one.links_up, one.links_cut, one.streams), (1, 3, 4));
        assert_eq!(one.cut_since, Some(at(7)));
        assert_eq!(one.failure, failed("peer_refused", 6));
        one.add(&PeerStatus::default());
        assert_eq!(one.failure, failed("peer_refused", 6));
    }

    #[test]
    fn a_node_that_is_away_is_passed_over_for_a_while() {
        let peers = Peers::default();
        let node = |port| SocketAddr::from(([127, 0, 0, 1], port));
        peers.went_away(node(1), 0);
        peers.went_away(node(2), 1_000);
        let passed_over = |now| [1, 2, 3].map(|port| peers.away_for(node(port), now) > 0);
        assert_eq!(passed_over(AWAY_MS - 1), [true, true, false]);
        assert_eq!(passed_over(AWAY_MS), [false, true, false]);
        peers.went_away(node(2), AWAY_MS);
        assert_eq!(passed_over(2 * AWAY_MS - 1), [false, true, false]);
        assert_eq!(peers.away.borrow().len(), 1);
        peers.came_back(node(2));
        assert_eq!(passed_over(AWAY_MS), [false; 3]);
    }

    #[test]
    fn of_many_nodes_that_fail_the_oldest_failure_is_forgotten() {
        let peers = Peers::default();
        let node = |n: usize| SocketAddr::from(([127, 0, 0, 1], 1 + n as u16));
        for n in 0..MAX_FAILURES + 2 {
            peers.failed(node(n), Reason::ConnectFailed, n as Millis);
        }
        peers.failed(node(5), Reason::LinkLost, 5_000);
        let failures = peers.failures.borrow();
        assert_eq!(failures.len(), MAX_FAILURES);
        assert!(!failures.contains_key(&node(1)) && failures.contains_key(&node(2)));
        assert_eq!(failures[&node(5)], (Reason::LinkLost, 5_000));
    }
}
