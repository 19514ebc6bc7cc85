//! Idle connections: kept last in, first out, so that the ones used least grow old and go. They stay
//! registered with the runtime: whether one is still alive is known from its readiness, without a
//! system call.
//!
//! An endpoint that answers once too often does so on a connection that carries the next request already. So that the
//! wrong answer is no other caller's, each caller has connections of its own, as it would with a proxy of its own.

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
use crate::place::Via;
use crate::side::Side;

/// Idle connections of a process: one for so many client connections that there may be. They take descriptors,
/// and a caller of many endpoints must not take all of them.
const CLIENTS_PER_IDLE: usize = 4;

/// A request that must not be sent twice goes by no connection that has been idle for longer, in milliseconds. Servers
/// close idle ones without a word: what is on its way then is lost, and its sender cannot know whether it was read.
/// Hardly any do so earlier.
const WARM_MS: Millis = 1_000;

#[derive(Debug)]
pub(super) struct Idle {
    side: Side,
    permit: UpstreamPermit,
    since: Millis,
    caller: WorkKey,
}

/// For which caller and request an idle connection is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The caller, as accounts of this Worker are named.
    pub(crate) key: WorkKey,
    /// In whose name connections to other nodes are made.
    pub(crate) account: Option<&'a ServiceAccountName>,
    /// The request is sent again if the connection turns out to be dead.
    pub(crate) may_repeat: bool,
}

impl Idle {
    /// Whether it may carry the request. Another node is told who calls, and how long it keeps connections is known;
    /// of an endpoint that is dialled itself neither is.
    fn suits(&self, asking: &Asking<'_>, via: Option<&Arc<Via>>, now: Millis) -> bool {
        match via {
            None => {
                self.caller == asking.key
                    && (asking.may_repeat || now.saturating_sub(self.since) <= WARM_MS)
            }
            Some(_) => self.side.caller() == asking.account,
        }
    }

    /// Whether the endpoint has said nothing since the last answer. If it has, that is remembered.
    fn is_silent(&mut self, endpoint: &Endpoint, now: Millis) -> bool {
        let silent = self.side.is_silent();
        if !silent && self.side.has_spoken() {
            endpoint.spoke_out_of_turn(now);
        }
        silent
    }
}

impl Upstreams {
    /// Takes an idle connection of an endpoint out of this Worker, one of this caller's.
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

    /// Takes the caller's idle connection used last that is still alive.
    pub(crate) fn take_idle(
        &self,
        endpoint: &Endpoint,
        asking: &Asking<'_>,
        clock: &Clock,
    ) -> Option<Upstream> {
        let via = endpoint.place.via();
        let now = clock.now_ms();
        loop {
            let mut idle = {
                let mut all = endpoint.idle.borrow_mut();
                let last = all.iter().rposition(|idle| idle.suits(asking, via, now))?;
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

    /// Takes every idle connection out of this Worker, whose accounts have these names.
    pub(crate) fn let_all_go(
        &self,
        name: impl Fn(WorkKey) -> Option<Arc<str>>,
    ) -> Vec<PackedUpstream> {
        let by_place = self.by_place.borrow();
        let of = |endpoint: &Rc<Endpoint>| {
            let all = endpoint.idle.take();
            let packed = all.into_iter().filter_map(|idle| {
                self.stats.upstream_connections_idle.dec();
                // Of a caller that was forgotten meanwhile: no other is to have it.
                pack(endpoint, idle.side, name(idle.caller)?)
            });
            packed.collect::<Vec<_>>()
        };
        by_place.values().flat_map(of).collect()
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

    /// Keeps a connection for the caller's next request, unless it speaks with one client's address. It must be between
    /// two messages.
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
        let mut idle = endpoint.idle.borrow_mut();
        if idle.len() >= self.idle_now() {
            let Some(gives_way) = gives_way(&idle, &upstream) else {
                return;
            };
            idle.remove(gives_way);
            self.stats.upstream_connections_idle.dec();
        }
        self.stats.upstream_connections_idle.inc();
        idle.push(upstream);
    }

    /// Closes the endpoint's idle connection that has been so for longest, so that another may be made. False when
    /// there is none.
    pub(super) fn close_oldest(&self, endpoint: &Endpoint) -> bool {
        let mut idle = endpoint.idle.borrow_mut();
        let any = !idle.is_empty();
        if any {
            idle.remove(0);
            self.stats.upstream_connections_idle.dec();
        }
        any
    }

    /// Closes idle connections that are too old or whose endpoint has closed them.
    pub(crate) fn sweep(&self, now: Millis, instant: Instant) {
        let oldest = match self.idle_timeout_ms {
            0 => 0,
            timeout => now.saturating_sub(timeout),
        };
        for endpoint in self.by_place.borrow().values() {
            self.drop_idle(endpoint, |idle| {
                idle.since < oldest
                    || idle.side.is_ending(instant)
                    || !idle.is_silent(endpoint, now)
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

/// Which idle connection makes room for one more, where there is no room: the oldest of the others, until half of all
/// are this caller's; then the oldest of its own. `None` where there are none.
fn gives_way(idle: &[Idle], newest: &Idle) -> Option<usize> {
    let is_own = |idle: &&Idle| idle.caller == newest.caller;
    let own = idle.iter().filter(is_own).count();
    let take_own = 2 * own >= idle.len();
    idle.iter().position(|idle| is_own(&idle) == take_own)
}

/// Takes a connection that waits for a request off this Worker's runtime.
fn pack(endpoint: &Endpoint, side: Side, caller: Arc<str>) -> Option<PackedUpstream> {
    Some(PackedUpstream {
        endpoint: endpoint.place.clone(),
        side: side.pack().ok()?,
        caller,
    })
}
