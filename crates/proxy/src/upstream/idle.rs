//! Idle connections. The most recently used one is reused first, so that those used least grow old and are closed. They
//! stay registered with the runtime: their readiness shows whether they are still alive, without a system call.
//!
//! If an endpoint sends one response too many, it arrives on a connection that already carries the next request. Each
//! caller has its own connections, as it would with a proxy of its own, so that the wrong response cannot reach another
//! caller.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use heddle_intercept::PodId;
use heddle_model::ServiceAccountName;

use super::{Endpoint, Upstream, UpstreamPermit, Upstreams};
use crate::clock::{Clock, Millis};
use crate::env::WorkKey;
use crate::io::Proof;
use crate::parcel::PackedUpstream;
use crate::place::{Place, Way};
use crate::side::Side;

/// The process keeps at most one idle connection per this many client connections of its limit. Idle connections use
/// descriptors, and a caller of many endpoints must not use them all.
const CLIENTS_PER_IDLE: usize = 4;

/// Time for which an idle connection counts as in use, in milliseconds.
///
/// A request that must not be sent twice uses no connection that has been idle for longer. Servers close idle
/// connections without notice: a request in transit is lost then, and its sender cannot know whether it was read. Hardly
/// any server closes earlier than this.
const WARM_MS: Millis = 1_000;

#[derive(Debug)]
pub(super) struct Idle {
    side: Side,
    permit: UpstreamPermit,
    since: Millis,
    caller: WorkKey,
}

/// The caller and the request for which an idle connection is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The caller's account on this Worker.
    pub(crate) key: WorkKey,
    /// The identity used for connections to other nodes.
    pub(crate) account: Option<&'a ServiceAccountName>,
    /// Whether the request is sent again if the connection turns out to be dead.
    pub(crate) may_repeat: bool,
}

impl Idle {
    /// Whether it may carry the request. For another node and for an Envoy, the identity has to match as well. It is known
    /// how long nodes keep idle connections, but not how long endpoints do.
    fn suits(&self, asking: &Asking<'_>, place: &Place, now: Millis) -> bool {
        let is_warm = || asking.may_repeat || self.is_warm(now);
        let has_identity = || self.side.caller() == asking.account;
        // The other node was told the caller's name on this connection, so workloads of one account do not share it.
        self.caller == asking.key
            && match place.way {
                Way::Through(_) => has_identity(),
                Way::Envoy(_) => has_identity() && is_warm(),
                Way::Here | Way::Inside(_) | Way::Outside(_) => is_warm(),
            }
    }

    fn is_warm(&self, now: Millis) -> bool {
        now.saturating_sub(self.since) <= WARM_MS
    }

    /// Whether the endpoint has sent nothing since the last response. If it has, that is recorded.
    fn is_silent(&mut self, endpoint: &Endpoint, now: Millis) -> bool {
        let silent = self.side.is_silent();
        if !silent && self.side.has_spoken() {
            endpoint.spoke_out_of_turn(now);
        }
        silent
    }
}

impl Upstreams {
    /// Takes one of this caller's idle connections of an endpoint off this Worker.
    pub(crate) fn let_go(
        &self,
        endpoint: &Endpoint,
        asking: &Asking<'_>,
        clock: &Clock,
        source: &Arc<str>,
    ) -> Option<PackedUpstream> {
        let Upstream { side, .. } = self.take_idle(endpoint, asking, clock)?;
        pack(endpoint, side, Arc::clone(source))
    }

    /// Takes the caller's most recently used idle connection that is still alive.
    pub(crate) fn take_idle(
        &self,
        endpoint: &Endpoint,
        asking: &Asking<'_>,
        clock: &Clock,
    ) -> Option<Upstream> {
        let now = clock.now_ms();
        loop {
            let mut idle = {
                let mut all = endpoint.idle.borrow_mut();
                let last = all
                    .iter()
                    .rposition(|idle| idle.suits(asking, &endpoint.place, now))?;
                all.remove(last)
            };
            self.stats.upstream_connections_idle.dec();
            if !idle.is_silent(endpoint, now) {
                continue;
            }
            if endpoint.may_keep(now) && !idle.side.is_ending(clock.now()) {
                return Some(Upstream {
                    side: idle.side,
                    permit: idle.permit,
                });
            }
        }
    }

    /// Takes every idle connection off this Worker. `name` gives the names of its accounts.
    pub(crate) fn let_all_go(
        &self,
        name: impl Fn(WorkKey) -> Option<Arc<str>>,
    ) -> Vec<PackedUpstream> {
        let by_place = self.by_place.borrow();
        let of = |endpoint: &Rc<Endpoint>| {
            let all = endpoint.idle.take();
            let packed = all.into_iter().filter_map(|idle| {
                self.stats.upstream_connections_idle.dec();
                // The caller's account is forgotten: no other caller may use its connection.
                pack(endpoint, idle.side, name(idle.caller)?)
            });
            packed.collect::<Vec<_>>()
        };
        by_place.values().flat_map(of).collect()
    }

    /// This Worker's share, rounded up; 0 only if the limit is 0.
    fn idle_per_endpoint(&self) -> usize {
        self.limits
            .get()
            .at_least_one(self.bounds.idle_per_endpoint)
    }

    /// How many more connections may be idle now, of all endpoints.
    fn room_for_idle(&self) -> usize {
        let all = self.bounds.connections.div_ceil(CLIENTS_PER_IDLE);
        let kept = usize::try_from(self.stats.upstream_connections_idle.get()).unwrap_or(0);
        self.limits.get().at_least_one(all).saturating_sub(kept)
    }

    /// Keeps a connection for the caller's next request, unless it uses one client's source address. It must be between
    /// two messages.
    ///
    /// More than the limit are kept if all of them were used a moment ago: otherwise callers that are busy would close
    /// connections and make new ones all the time. An endpoint has at most as many as there is room left for, so that
    /// no endpoint uses all of it.
    pub(crate) fn give_back(
        &self,
        endpoint: &Endpoint,
        upstream: Upstream,
        caller: WorkKey,
        now: Millis,
    ) {
        debug_assert!(upstream.side.inbox.is_empty() && upstream.side.outbox.is_empty());
        let mut upstream = upstream;
        if upstream.side.part_with_stream() {
            return;
        }
        if !endpoint.may_keep(now) || upstream.side.is_one_clients() {
            return;
        }
        let upstream = Idle {
            side: upstream.side,
            permit: upstream.permit,
            since: now,
            caller,
        };
        let limit = self.idle_per_endpoint();
        let mut idle = endpoint.idle.borrow_mut();
        let is_full = idle.len() >= self.room_for_idle() || limit == 0;
        if is_full || idle.len() >= limit {
            match gives_way(&idle, &upstream) {
                Some(at) if is_full || !idle[at].is_warm(now) => {
                    idle.remove(at);
                    self.stats.upstream_connections_idle.dec();
                }
                None if is_full => return,
                Some(_) | None => {}
            }
        }
        self.stats.upstream_connections_idle.inc();
        idle.push(upstream);
        endpoint.open.call();
    }

    /// Closes the endpoint's connection that has been idle longest, so that another one may be made. False if none is
    /// idle.
    pub(super) fn close_oldest(&self, endpoint: &Endpoint) -> bool {
        let mut idle = endpoint.idle.borrow_mut();
        let any = !idle.is_empty();
        if any {
            idle.remove(0);
            self.stats.upstream_connections_idle.dec();
        }
        any
    }

    /// Closes idle connections that are too old or too many, or whose endpoint has closed them.
    pub(crate) fn sweep(&self, now: Millis, instant: Instant) {
        let oldest = match self.idle_timeout_ms {
            0 => 0,
            timeout => now.saturating_sub(timeout),
        };
        for endpoint in self.by_place.borrow().values() {
            let mut too_many = {
                let idle = endpoint.idle.borrow().len();
                idle.saturating_sub(self.idle_per_endpoint())
            };
            self.drop_idle(endpoint, |idle| {
                let surplus = too_many > 0 && !idle.is_warm(now);
                let drop = surplus
                    || idle.since < oldest
                    || idle.side.is_ending(instant)
                    || !idle.is_silent(endpoint, now);
                too_many = too_many.saturating_sub(usize::from(drop));
                drop
            });
        }
    }

    /// Closes every idle connection, because descriptors run out. False if there was none.
    pub(crate) fn close_idle(&self) -> bool {
        let any = self.has_idle();
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |_| true);
        }
        any
    }

    /// Whether any idle connection is kept, so that there is something to sweep.
    pub(crate) fn has_idle(&self) -> bool {
        self.stats.upstream_connections_idle.get() > 0
    }

    /// Closes every idle connection whose peer is no longer trusted.
    pub(crate) fn distrust(&self, is_believed: impl Fn(&Proof) -> bool) {
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |idle| {
                idle.side.proof().is_some_and(|proof| !is_believed(proof))
            });
        }
    }

    /// Closes every idle connection into pods that no longer exist, and keeps no new ones.
    pub(crate) fn leave_pods(&self, is_there: impl Fn(PodId) -> bool) {
        for endpoint in self.by_place.borrow().values() {
            if endpoint.place.pod().is_some_and(|pod| !is_there(pod)) {
                endpoint.gone.set(true);
                self.drop_idle(endpoint, |_| true);
            }
        }
    }

    pub(super) fn drop_idle(&self, endpoint: &Endpoint, mut drop: impl FnMut(&mut Idle) -> bool) {
        endpoint.idle.borrow_mut().retain_mut(|idle| {
            let drop = drop(idle);
            if drop {
                self.stats.upstream_connections_idle.dec();
            }
            !drop
        });
    }
}

/// Which idle connection is evicted for one more when there is no room: the oldest of other callers, until half of all
/// are this caller's; then the oldest of its own. `None` if there is none.
fn gives_way(idle: &[Idle], newest: &Idle) -> Option<usize> {
    let is_own = |idle: &&Idle| idle.caller == newest.caller;
    let own = idle.iter().filter(is_own).count();
    let take_own = 2 * own >= idle.len();
    idle.iter().position(|idle| is_own(&idle) == take_own)
}

/// Takes an idle connection off this Worker's runtime.
fn pack(endpoint: &Endpoint, side: Side, caller: Arc<str>) -> Option<PackedUpstream> {
    Some(PackedUpstream {
        endpoint: endpoint.place.clone(),
        side: side.pack().ok()?,
        caller,
    })
}
