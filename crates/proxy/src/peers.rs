//! How a Worker stands with other nodes: what `heddle status` shows of them.
//!
//! Nothing is counted for that. At a sweep, once a second at most, it is looked at what there is, where a request never
//! comes by; between two looks only what failed is remembered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_telemetry::Seldom;

use crate::clock::{Clock, Millis};
use crate::failure::Reason;

/// How often it is looked, in milliseconds.
const LOOK_MS: Millis = 1_000;
/// How long the endpoints of a node are passed over that takes no connections, in milliseconds. It is tried again more
/// often than that.
const AWAY_MS: Millis = 3_000;
/// Nodes of which it is remembered how they failed; the oldest is forgotten for one more.
const MAX_FAILURES: usize = 1_024;

/// Another node, by what its connections show of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// One that is called here, where it takes connections.
    At(SocketAddr),
    /// One that calls from here.
    From(IpAddr),
}

/// What there is with another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Links over which the other end is heard.
    pub links_up: usize,
    /// Those that are being made.
    pub links_connecting: usize,
    /// Those that were cut, and may come back.
    pub links_cut: usize,
    /// Since when the one has been that was cut first.
    pub cut_since: Option<Instant>,
    /// Requests and flows on links and connections of HTTP/2.
    pub streams: usize,
    /// Connections that speak HTTP/2.
    pub http2_connections: usize,
    /// Connections to it that carry one request or flow at a time; only where all do.
    pub http1_connections: usize,
    /// Why it could not be spoken to, or a link to it was lost, the last time.
    pub failure: Option<PeerFailure>,
}

/// Why another node could not be spoken to, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerFailure {
    /// The code of the reason.
    pub code: &'static str,
    /// When it was.
    pub at: Instant,
}

impl PeerStatus {
    /// Whether there is any connection, or was one that may come back.
    pub fn is_connected(&self) -> bool {
        let links = self.links_up + self.links_connecting + self.links_cut;
        links + self.http2_connections + self.http1_connections > 0
    }

    /// One link more that was cut, at this time.
    pub(crate) fn add_cut(&mut self, since: Instant) {
        self.links_cut += 1;
        self.cut_since = Some(self.cut_since.map_or(since, |first| first.min(since)));
    }

    /// What there is with the same node elsewhere.
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

/// What a Worker remembers for it.
#[derive(Debug)]
pub(crate) struct Peers {
    failures: RefCell<HashMap<SocketAddr, (Reason, Millis), RandomState>>,
    /// Nodes that take no connections, and until when their endpoints are passed over.
    away: RefCell<Vec<(SocketAddr, Millis)>>,
    /// When it is looked next at the earliest.
    next_look: Cell<Millis>,
    /// What is shown may be over by the next look, or something is not shown yet.
    is_stale: Cell<bool>,
    /// What was said of them in the log.
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

/// What may be said of another node in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It takes no connection.
    Unreachable,
    /// It goes away in the middle of handshakes.
    Left,
}

impl Peers {
    /// Another node could not be spoken to, or a link to it was lost.
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

    /// Whether a trouble with a node is to be said now: each is once a minute at most.
    pub(crate) fn may_name(&self, node: SocketAddr, trouble: Trouble, now: Instant) -> bool {
        self.said.borrow_mut().may_name((node, trouble), now)
    }

    /// A node takes no connections any more: what is for one of its endpoints goes elsewhere while there are others,
    /// and waits for the node where there are none.
    pub(crate) fn went_away(&self, node: SocketAddr, now: Millis) {
        let mut away = self.away.borrow_mut();
        away.retain(|&(other, until)| other != node && now < until);
        away.push((node, now.saturating_add(AWAY_MS)));
    }

    /// It takes connections again.
    pub(crate) fn came_back(&self, node: SocketAddr) {
        self.away.borrow_mut().retain(|&(other, _)| other != node);
    }

    /// For how long its endpoints are passed over, in milliseconds; 0 for a node that takes connections.
    pub(crate) fn away_for(&self, node: SocketAddr, now: Millis) -> Millis {
        let away = self.away.borrow();
        let until = away.iter().find(|(other, _)| *other == node);
        until.map_or(0, |(_, until)| until.saturating_sub(now))
    }

    /// Whether it has to be looked again even if nothing else happens.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.get()
    }

    /// Whether it is time to look again. Counts as a look if so.
    pub(crate) fn is_time(&self, now: Millis) -> bool {
        let is_time = now >= self.next_look.get();
        if is_time {
            self.next_look.set(now + LOOK_MS);
        }
        is_time
    }

    /// All is shown; it may be over by the next look if there is a connection.
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
