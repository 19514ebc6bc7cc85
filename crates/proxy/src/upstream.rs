//! Endpoints and their connections.
//!
//! There is one entry for each address (for another node's endpoints, for each Service that they belong to), which
//! survives configuration changes: a new snapshot does not affect connections to endpoints that are still in it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_telemetry::WorkerStats;

use crate::clock::Millis;
use crate::heap::is_loose;
use crate::peers::{Peer, PeerStatus};
use crate::place::Place;
use crate::settings::{Bounds, LimitShare};
use crate::side::Side;

mod endpoint;
mod idle;
mod lease;
mod turn;

pub(crate) use endpoint::Endpoint;
pub(crate) use idle::Asking;
pub(crate) use lease::Lease;
use turn::Open;
#[cfg(test)]
use turn::Turn;

/// Limit of attempts for one request or connection, including the first.
pub(crate) const MAX_ATTEMPTS: u32 = 3;
/// How long an endpoint is avoided after its first failed connection, in milliseconds. The time doubles for each
/// further failure.
const AVOID_MS: Millis = 500;
/// Limit of the time for which an endpoint is avoided, in milliseconds.
const AVOID_MAX_MS: Millis = 30_000;
/// Minimum time between two log messages about the failures of one endpoint, in milliseconds.
const SAY_AGAIN_MS: Millis = 10_000;

/// All endpoints that a Worker knows.
pub(crate) struct Upstreams {
    by_place: RefCell<HashMap<Place, Rc<Endpoint>, RandomState>>,
    /// Number of endpoint entries ever made: each gets its own number.
    made: Cell<u32>,
    bounds: Bounds,
    /// Number of Workers that the limits are divided among.
    workers: Cell<usize>,
    /// This Worker's share of the process's limits.
    limits: Cell<LimitShare>,
    /// Its share of the connections that an endpoint may have: rounded up and at least one, since without any it could
    /// serve no client.
    connections_per_endpoint: Cell<usize>,
    idle_timeout_ms: Millis,
    stats: Arc<WorkerStats>,
}

/// The load of an endpoint, as one Worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Requests in progress.
    pub(crate) active: u32,
    /// Whether to choose another endpoint if there is one: connecting to it failed, its connection limit is reached, or
    /// callers wait for one of its connections.
    pub(crate) avoid: bool,
}

impl Upstreams {
    pub(crate) fn new(bounds: Bounds, idle_timeout_ms: Millis, stats: Arc<WorkerStats>) -> Self {
        Upstreams {
            by_place: RefCell::default(),
            made: Cell::new(0),
            bounds,
            workers: Cell::new(1),
            limits: Cell::new(LimitShare::ALL),
            connections_per_endpoint: Cell::new(bounds.connections_per_endpoint.max(1)),
            idle_timeout_ms,
            stats,
        }
    }

    /// The entry of an endpoint, created on first use.
    pub(crate) fn endpoint(&self, place: &Place) -> Rc<Endpoint> {
        let mut by_place = self.by_place.borrow_mut();
        if let Some(known) = by_place.get(place) {
            return Rc::clone(known);
        }
        let id = self.made.get().wrapping_add(1);
        self.made.set(id);
        let endpoint = Rc::new(Endpoint::new(place.clone(), id));
        by_place.insert(place.clone(), Rc::clone(&endpoint));
        endpoint
    }

    /// Forgets every endpoint that nothing else refers to, and closes its idle connections. Called when a port has
    /// changed or is gone, and at each sweep. Returns whether that was most of what there was.
    pub(crate) fn forget_unused(&self) -> bool {
        let mut by_place = self.by_place.borrow_mut();
        by_place.retain(|_, endpoint| {
            let used = Rc::strong_count(endpoint) > 1;
            if !used {
                self.drop_idle(endpoint, |_| true);
            }
            used
        });
        let is_loose = is_loose(by_place.capacity(), by_place.len());
        if is_loose {
            by_place.shrink_to_fit();
        }
        is_loose
    }

    /// Adds the number of HTTP/1.1 connections to other nodes to `shown`.
    pub(crate) fn show(&self, shown: &mut BTreeMap<Peer, PeerStatus>) {
        let by_place = self.by_place.borrow();
        let open = by_place
            .values()
            .filter(|endpoint| endpoint.open.count() > 0);
        for endpoint in open {
            if let Some(via) = endpoint.place.via() {
                let status = shown.entry(Peer::At(via.node)).or_default();
                status.http1_connections += endpoint.open.count();
            }
        }
    }

    /// The load of an endpoint at `now`.
    pub(crate) fn load(&self, endpoint: &Endpoint, now: Millis) -> Busy {
        Busy {
            active: endpoint.active.get(),
            avoid: !self.has_room(endpoint) || now < endpoint.avoid_until.get(),
        }
    }

    /// Takes a permit for one more connection to the endpoint, before it is made. Closes idle connections at the limit;
    /// `None` if the limit is reached and none is idle.
    pub(crate) fn reserve(&self, endpoint: &Endpoint) -> Option<UpstreamPermit> {
        while endpoint.open.count() >= self.connections_per_endpoint.get() {
            if !self.close_oldest(endpoint) {
                return None;
            }
        }
        endpoint.open.one_more();
        self.stats.upstream_connections_active.inc();
        Some(UpstreamPermit {
            open: Rc::clone(&endpoint.open),
            stats: Arc::clone(&self.stats),
        })
    }

    /// Makes an upstream of a connection that has just been made.
    pub(crate) fn opened(
        &self,
        endpoint: &Endpoint,
        permit: UpstreamPermit,
        side: Side,
    ) -> Upstream {
        if endpoint.place.via().is_none() {
            self.reached(endpoint);
        }
        self.stats.upstream_connections_total.inc();
        Upstream { side, permit }
    }

    /// Records that an endpoint was connected to, or has answered through another node: it is no longer avoided.
    pub(crate) fn reached(&self, endpoint: &Endpoint) {
        if endpoint.failures.replace(0) == 0 {
            return;
        }
        endpoint.avoid_until.set(0);
        if endpoint.told.take() {
            tracing::info!(endpoint = %endpoint.label, "an endpoint can be connected to again");
        }
    }

    /// Makes an upstream of a connection that was made on another Worker, beyond the limit if necessary: it counted
    /// against the limit there.
    pub(crate) fn adopt(&self, endpoint: &Endpoint, side: Side) -> Upstream {
        endpoint.open.one_more();
        self.stats.upstream_connections_active.inc();
        let permit = UpstreamPermit {
            open: Rc::clone(&endpoint.open),
            stats: Arc::clone(&self.stats),
        };
        Upstream { side, permit }
    }

    /// Number of Workers that the process's limits are divided among.
    pub(crate) fn workers(&self) -> usize {
        self.workers.get()
    }

    /// Sets this Worker's share of the process's limits, as one of `workers` Workers.
    pub(crate) fn share(&self, workers: usize, limits: LimitShare) {
        self.workers.set(workers.max(1));
        self.limits.set(limits);
        let connections = limits.at_least_one(self.bounds.connections_per_endpoint);
        self.connections_per_endpoint.set(connections.max(1));
        for endpoint in self.by_place.borrow().values() {
            endpoint.open.call();
        }
    }

    /// Records that connecting failed: the endpoint is avoided for a while. Logged at the first failure of a series,
    /// unless it was logged a moment ago.
    pub(crate) fn failed(&self, endpoint: &Endpoint, now: Millis, error: &dyn fmt::Display) {
        let failures = endpoint.failures.get();
        endpoint.failures.set(failures.saturating_add(1));
        let wait = AVOID_MS
            .saturating_mul(1 << failures.min(16))
            .min(AVOID_MAX_MS);
        endpoint.avoid_until.set(now.saturating_add(wait));
        self.stats.upstream_connect_failures.inc();
        let said = endpoint.said.get();
        let configured = endpoint.configured.get();
        if configured && failures == 0 && (said == 0 || now.saturating_sub(said) >= SAY_AGAIN_MS) {
            endpoint.said.set(now.max(1));
            endpoint.told.set(true);
            tracing::warn!(
                endpoint = %endpoint.label,
                node = endpoint.place.via().map(|via| tracing::field::display(via.node)),
                %error,
                "an endpoint cannot be connected to: other endpoints are used instead, if there are any"
            );
        }
    }
}

/// A connection to an endpoint, in use by one request. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) side: Side,
    permit: UpstreamPermit,
}

impl Upstream {
    /// An upstream that is a stream of a link, for one request.
    pub(crate) fn of_link(side: Side, permit: UpstreamPermit) -> Self {
        Upstream { side, permit }
    }
}

/// The permission of a connection to an endpoint to be open. Taken before the connection is made, and counted as long
/// as it exists.
#[derive(Debug)]
pub(crate) struct UpstreamPermit {
    open: Rc<Open>,
    stats: Arc<WorkerStats>,
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.open.one_less();
        self.stats.upstream_connections_active.dec();
    }
}

#[cfg(test)]
mod tests;
