//! Endpoints and their connections.
//!
//! One entry for each address (towards another node, for each Service that it answers for), however often
//! the configuration changes: a new snapshot touches no connection to an endpoint that is still in it.
//!
//! Idle connections are kept last in, first out, so that the ones used least grow old and go. They
//! stay registered with the runtime: whether one is still alive is known from its readiness,
//! without a system call.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_intercept::PodId;
use heddle_model::{ServiceAccountName, ServiceName};
use heddle_telemetry::WorkerStats;

use crate::balance::Ewma;
use crate::http2::Reached;
use crate::io::{Proof, Side};
use crate::parcel;
use crate::settings::Bounds;
use crate::worker::Millis;

mod connect;
mod keeper;
mod lease;
mod linked;
mod remote;
mod room;

pub(crate) use connect::{Call, connect, is_refused};
pub(crate) use keeper::Keeper;
pub(crate) use lease::Lease;
pub(crate) use remote::{Shaking, dial_node, refused, say_refused};
pub(crate) use room::{Joined, Room, Rooms, Seat, Waiting, Wants, join};

/// Idle connections of a process: one for so many client connections that there may be. They take descriptors,
/// and whoever calls many endpoints must not take all of them.
const CLIENTS_PER_IDLE: usize = 4;
/// Tries for one request or connection, the first included.
pub(crate) const MAX_ATTEMPTS: u32 = 3;
/// How long an endpoint is passed over after its first failed connection, in milliseconds; twice
/// as long after each further one.
const AVOID_MS: Millis = 500;
/// Longest time for which an endpoint is passed over, in milliseconds.
const AVOID_MAX_MS: Millis = 30_000;

/// How long a handshake that was refused is not tried again for the same caller, in milliseconds.
const REFUSED_MS: Millis = 500;
/// Callers of which that is remembered, for each endpoint.
const MAX_REFUSALS: usize = 64;

/// How long nothing more is said of an endpoint that fails again, in milliseconds.
const SAY_AGAIN_MS: Millis = 10_000;

/// All endpoints that a Worker knows.
pub(crate) struct Upstreams {
    by_place: RefCell<HashMap<Place, Rc<Endpoint>, RandomState>>,
    bounds: Bounds,
    /// Workers that share the bounds.
    workers: Cell<usize>,
    idle_timeout_ms: Millis,
    stats: Arc<WorkerStats>,
}

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) way: Way,
}

/// How an endpoint is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// It is dialled from where the proxy is.
    Here,
    /// It is in a pod of this node, and dialled from within: nothing that leaves the pod is steered back.
    Inside(PodId),
    /// The mesh does not know it. It is dialled from within the pod that calls it, which is the only one that
    /// is known to be allowed to.
    Outside(PodId),
    /// Through the proxy of another node.
    Through(Arc<Via>),
}

/// Another node, and what is said to it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Via {
    /// Where its proxy takes connections.
    pub(crate) node: SocketAddr,
    /// Whom the endpoint must prove to be.
    pub(crate) account: ServiceAccountName,
    /// For which Service's port it is called.
    pub(crate) service: ServiceName,
    pub(crate) port: u16,
}

/// How busy an endpoint is, as one Worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Requests under way.
    pub(crate) active: u32,
    /// Not to be chosen while another can be: it could not be connected to, or has as many connections as it
    /// may have.
    pub(crate) avoid: bool,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) place: Place,
    /// Its own address, whoever is dialled.
    pub(crate) address: SocketAddr,
    /// The address as the access log shows it.
    pub(crate) label: Box<str>,
    /// Requests under way.
    active: Cell<u32>,
    /// How long it takes to answer, where that is measured.
    pub(crate) latency: Cell<Ewma>,
    /// Connections, idle ones and those in the making included.
    open: Rc<Cell<u32>>,
    idle: RefCell<Vec<Idle>>,
    failures: Cell<u32>,
    avoid_until: Cell<Millis>,
    /// Callers whose handshakes were refused, and until when it is not tried again in their names.
    refusals: RefCell<Vec<(Option<ServiceAccountName>, Millis)>>,
    /// When it was last said in the log that it fails; 0 if never.
    said: Cell<Millis>,
    /// Whether that was said of the failures that last.
    told: Cell<bool>,
    /// The configuration names it. Of others, which callers name, the log does not speak.
    configured: Cell<bool>,
    /// The pod that it was reached in is none any more: no connection there is kept.
    gone: Cell<bool>,
    /// How it is named on links.
    linked: linked::Linked,
    /// The same over HTTP/2.
    pub(crate) reached: Reached,
}

#[derive(Debug)]
struct Idle {
    side: Side,
    open: Open,
    since: Millis,
}

impl Upstreams {
    pub(crate) fn new(bounds: Bounds, idle_timeout_ms: Millis, stats: Arc<WorkerStats>) -> Self {
        Upstreams {
            by_place: RefCell::default(),
            bounds,
            workers: Cell::new(1),
            idle_timeout_ms,
            stats,
        }
    }

    /// The entry of an endpoint, made at first sight.
    pub(crate) fn endpoint(&self, place: &Place) -> Rc<Endpoint> {
        let mut by_place = self.by_place.borrow_mut();
        if let Some(known) = by_place.get(place) {
            return Rc::clone(known);
        }
        let endpoint = Rc::new(Endpoint::new(place.clone()));
        by_place.insert(place.clone(), Rc::clone(&endpoint));
        endpoint
    }

    /// Forgets every endpoint that nobody else refers to, and closes its idle connections. Called
    /// when a configuration has been replaced.
    pub(crate) fn forget_unused(&self) {
        self.by_place.borrow_mut().retain(|_, endpoint| {
            let used = Rc::strong_count(endpoint) > 1;
            if !used {
                self.drop_idle(endpoint, |_| true);
            }
            used
        });
    }

    /// How busy an endpoint is at `now`.
    pub(crate) fn load(&self, endpoint: &Endpoint, now: Millis) -> Busy {
        let full = endpoint.idle.borrow().is_empty()
            && endpoint.open.get() as usize >= self.connections_per_endpoint();
        Busy {
            active: endpoint.active.get(),
            avoid: full || now < endpoint.avoid_until.get(),
        }
    }

    /// A place for one more connection to the endpoint, taken before it is made; `None` when it
    /// has as many as it may have.
    pub(crate) fn reserve(&self, endpoint: &Endpoint) -> Option<Open> {
        let open = endpoint.open.get();
        if open as usize >= self.connections_per_endpoint() {
            return None;
        }
        endpoint.open.set(open + 1);
        self.stats.upstream_connections_active.inc();
        Some(Open {
            count: Rc::clone(&endpoint.open),
            stats: Arc::clone(&self.stats),
        })
    }

    /// Takes the idle connection used last that is still alive; towards another node, of those that were
    /// made in the name of this caller.
    pub(crate) fn take_idle(
        &self,
        endpoint: &Endpoint,
        caller: Option<&ServiceAccountName>,
        now: Instant,
    ) -> Option<Upstream> {
        loop {
            let mut idle = match endpoint.place.via() {
                None => endpoint.idle.borrow_mut().pop()?,
                Some(_) => {
                    let mut all = endpoint.idle.borrow_mut();
                    let last = all.iter().rposition(|idle| idle.side.caller() == caller)?;
                    all.remove(last)
                }
            };
            self.stats.upstream_connections_idle.dec();
            if idle.side.is_silent() && !idle.side.is_ending(now) {
                return Some(Upstream {
                    side: idle.side,
                    open: idle.open,
                });
            }
        }
    }

    /// A connection just made becomes an upstream.
    pub(crate) fn opened(&self, endpoint: &Endpoint, open: Open, side: Side) -> Upstream {
        endpoint.failures.set(0);
        endpoint.avoid_until.set(0);
        if endpoint.told.take() {
            tracing::info!(endpoint = %endpoint.label, "an endpoint can be connected to again");
        }
        self.stats.upstream_connections_total.inc();
        Upstream { side, open }
    }

    /// A connection that was made elsewhere becomes an upstream here, beyond the bound if need be: it
    /// counted against it where it came from.
    pub(crate) fn adopt(&self, endpoint: &Endpoint, side: Side) -> Upstream {
        endpoint.open.set(endpoint.open.get() + 1);
        self.stats.upstream_connections_active.inc();
        let open = Open {
            count: Rc::clone(&endpoint.open),
            stats: Arc::clone(&self.stats),
        };
        Upstream { side, open }
    }

    /// Takes an idle connection of an endpoint out of this Worker, one of this caller's.
    pub(crate) fn let_go(
        &self,
        endpoint: &Endpoint,
        caller: Option<&ServiceAccountName>,
        now: Instant,
    ) -> Option<parcel::Idle> {
        pack(endpoint, self.take_idle(endpoint, caller, now)?)
    }

    /// Takes every idle connection out of this Worker.
    pub(crate) fn let_all_go(&self) -> Vec<parcel::Idle> {
        let by_place = self.by_place.borrow();
        let of = |endpoint: &Rc<Endpoint>| {
            let all = endpoint.idle.take();
            let packed = all.into_iter().filter_map(|idle| {
                self.stats.upstream_connections_idle.dec();
                let Idle { side, open, .. } = idle;
                pack(endpoint, Upstream { side, open })
            });
            packed.collect::<Vec<_>>()
        };
        by_place.values().flat_map(of).collect()
    }

    /// Workers that share what is bounded for the process.
    pub(crate) fn workers(&self) -> usize {
        self.workers.get()
    }

    /// What is bounded for the process is shared among this many Workers.
    pub(crate) fn share(&self, workers: usize) {
        self.workers.set(workers.max(1));
    }

    /// This Worker's share, at least one: a Worker without any could serve nobody.
    fn connections_per_endpoint(&self) -> usize {
        let all = self.bounds.connections_per_endpoint;
        all.div_ceil(self.workers.get())
    }

    /// This Worker's share, at least one unless there are to be none.
    fn idle_per_endpoint(&self) -> usize {
        self.bounds.idle_per_endpoint.div_ceil(self.workers.get())
    }

    /// How many of an endpoint may be idle now: as many as there is room for besides, so that no endpoint's take
    /// all of it.
    fn idle_now(&self) -> usize {
        let all = self.bounds.connections.div_ceil(CLIENTS_PER_IDLE);
        let kept = usize::try_from(self.stats.upstream_connections_idle.get()).unwrap_or(0);
        let room = all.div_ceil(self.workers.get()).saturating_sub(kept);
        self.idle_per_endpoint().min(room)
    }

    /// A connection could not be made: the endpoint is passed over for a while. Said when that begins,
    /// though not of one that fails now and then all the time.
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
                %error,
                "an endpoint cannot be connected to and is passed over while there are others"
            );
        }
    }

    /// Keeps a connection for the next request, unless it speaks with one client's address. It must be between
    /// two messages.
    pub(crate) fn give_back(&self, endpoint: &Endpoint, upstream: Upstream, now: Millis) {
        debug_assert!(upstream.side.inbox.is_empty() && upstream.side.outbox.is_empty());
        let mut upstream = upstream;
        if upstream.side.part_with_stream() {
            return;
        }
        if endpoint.gone.get() || upstream.side.is_one_clients() {
            return;
        }
        let mut idle = endpoint.idle.borrow_mut();
        let mut has_room = idle.len() < self.idle_now();
        if endpoint.place.via().is_some() && !has_room && !idle.is_empty() {
            // Those of callers that are silent make room for those of callers that are not.
            idle.remove(0);
            self.stats.upstream_connections_idle.dec();
            has_room = true;
        }
        if has_room {
            self.stats.upstream_connections_idle.inc();
            idle.push(Idle {
                side: upstream.side,
                open: upstream.open,
                since: now,
            });
        }
    }

    /// Closes idle connections that are too old or whose endpoint has closed them.
    pub(crate) fn sweep(&self, now: Millis, instant: Instant) {
        let oldest = match self.idle_timeout_ms {
            0 => 0,
            timeout => now.saturating_sub(timeout),
        };
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |idle| {
                idle.since < oldest || idle.side.is_ending(instant) || !idle.side.is_silent()
            });
        }
    }

    /// Closes every idle connection, for want of descriptors. False when there was none.
    pub(crate) fn close_idle(&self) -> bool {
        let any = self.has_idle();
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |_| true);
        }
        any
    }

    /// Whether no idle connection is kept, so that there is nothing to sweep.
    pub(crate) fn has_idle(&self) -> bool {
        self.stats.upstream_connections_idle.get() > 0
    }

    /// Closes every idle connection whose peer is not believed any more.
    pub(crate) fn distrust(&self, is_believed: impl Fn(&Proof) -> bool) {
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |idle| {
                idle.side.proof().is_some_and(|proof| !is_believed(proof))
            });
        }
    }

    /// Closes every idle connection into pods that are none any more, and keeps no other.
    pub(crate) fn leave_pods(&self, is_there: impl Fn(PodId) -> bool) {
        for endpoint in self.by_place.borrow().values() {
            if endpoint.place.pod().is_some_and(|pod| !is_there(pod)) {
                endpoint.gone.set(true);
                self.drop_idle(endpoint, |_| true);
            }
        }
    }

    fn drop_idle(&self, endpoint: &Endpoint, mut drop: impl FnMut(&mut Idle) -> bool) {
        endpoint.idle.borrow_mut().retain_mut(|idle| {
            let drop = drop(idle);
            if drop {
                self.stats.upstream_connections_idle.dec();
            }
            !drop
        });
    }
}

impl Place {
    /// An endpoint that is dialled itself.
    pub(crate) fn here(address: SocketAddr) -> Self {
        let way = Way::Here;
        Place { address, way }
    }

    /// The other node, if it is reached through one.
    pub(crate) fn via(&self) -> Option<&Arc<Via>> {
        match &self.way {
            Way::Through(via) => Some(via),
            Way::Here | Way::Inside(_) | Way::Outside(_) => None,
        }
    }

    /// The pod from within which it is dialled.
    pub(crate) fn pod(&self) -> Option<PodId> {
        match self.way {
            Way::Inside(pod) | Way::Outside(pod) => Some(pod),
            Way::Here | Way::Through(_) => None,
        }
    }

    /// Who is dialled to reach it.
    fn dialled(&self) -> SocketAddr {
        self.via().map_or(self.address, |via| via.node)
    }
}

/// Takes a connection that waits for a request off this Worker's runtime.
fn pack(endpoint: &Endpoint, upstream: Upstream) -> Option<parcel::Idle> {
    Some(parcel::Idle {
        endpoint: endpoint.place.clone(),
        side: upstream.side.pack().ok()?,
    })
}

impl Endpoint {
    fn new(place: Place) -> Self {
        let address = place.address;
        Endpoint {
            label: address.to_string().into(),
            address,
            place,
            active: Cell::new(0),
            latency: Cell::default(),
            open: Rc::default(),
            idle: RefCell::default(),
            failures: Cell::new(0),
            avoid_until: Cell::new(0),
            refusals: RefCell::default(),
            said: Cell::new(0),
            told: Cell::new(false),
            configured: Cell::new(false),
            gone: Cell::new(false),
            linked: linked::Linked::default(),
            reached: Reached::default(),
        }
    }

    /// For how long it is passed over from `now` on, in milliseconds, since it could not be connected to.
    pub(crate) fn avoided_for(&self, now: Millis) -> Millis {
        self.avoid_until.get().saturating_sub(now)
    }

    /// The configuration names it.
    pub(crate) fn is_configured(&self) {
        self.configured.set(true);
    }

    /// Whether a handshake in the name of a caller was refused a moment ago. Each costs both nodes more than
    /// many requests: a caller that is shut out must not make them as fast as it asks.
    fn refuses(&self, caller: Option<&ServiceAccountName>, now: Millis) -> bool {
        let refusals = self.refusals.borrow();
        let mut refusals = refusals.iter();
        refusals.any(|(refused, until)| refused.as_ref() == caller && now < *until)
    }

    /// A handshake in the name of a caller was refused.
    fn refused(&self, caller: Option<ServiceAccountName>, now: Millis) {
        let mut refusals = self.refusals.borrow_mut();
        refusals.retain(|(refused, until)| *refused != caller && now < *until);
        if refusals.len() < MAX_REFUSALS {
            refusals.push((caller, now.saturating_add(REFUSED_MS)));
        }
    }
}

/// A connection to an endpoint, in use by one request. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) side: Side,
    open: Open,
}

impl Upstream {
    /// A stream of a link, for one request.
    pub(crate) fn of_link(side: Side, open: Open) -> Self {
        Upstream { side, open }
    }
}

/// Counts a connection as open for as long as it lives, from before it is made.
#[derive(Debug)]
pub(crate) struct Open {
    count: Rc<Cell<u32>>,
    stats: Arc<WorkerStats>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.set(self.count.get().saturating_sub(1));
        self.stats.upstream_connections_active.dec();
    }
}

#[cfg(test)]
pub(crate) use room::testing;
#[cfg(test)]
mod tests;
