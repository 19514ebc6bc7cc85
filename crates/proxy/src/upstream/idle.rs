//! Idle connections: kept last in, first out, so that the ones used least grow old and go. They stay
//! registered with the runtime: whether one is still alive is known from its readiness, without a
//! system call.

use std::rc::Rc;
use std::time::Instant;

use heddle_intercept::PodId;
use heddle_model::ServiceAccountName;

use super::{Endpoint, Open, Upstream, Upstreams};
use crate::io::{Proof, Side};
use crate::parcel;
use crate::worker::Millis;

/// Idle connections of a process: one for so many client connections that there may be. They take descriptors,
/// and whoever calls many endpoints must not take all of them.
const CLIENTS_PER_IDLE: usize = 4;

#[derive(Debug)]
pub(super) struct Idle {
    side: Side,
    open: Open,
    since: Millis,
}

impl Idle {
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
    /// Takes the idle connection used last that is still alive; towards another node, of those that were
    /// made in the name of this caller.
    pub(crate) fn take_idle(
        &self,
        endpoint: &Endpoint,
        caller: Option<&ServiceAccountName>,
        now: (Millis, Instant),
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
            if !idle.is_silent(endpoint, now.0) {
                continue;
            }
            if endpoint.may_keep(now.0) && !idle.side.is_ending(now.1) {
                return Some(Upstream {
                    side: idle.side,
                    open: idle.open,
                });
            }
        }
    }

    /// Takes an idle connection of an endpoint out of this Worker, one of this caller's.
    pub(crate) fn let_go(
        &self,
        endpoint: &Endpoint,
        caller: Option<&ServiceAccountName>,
        now: (Millis, Instant),
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

    /// Keeps a connection for the next request, unless it speaks with one client's address. It must be between
    /// two messages.
    pub(crate) fn give_back(&self, endpoint: &Endpoint, upstream: Upstream, now: Millis) {
        debug_assert!(upstream.side.inbox.is_empty() && upstream.side.outbox.is_empty());
        let mut upstream = upstream;
        if upstream.side.part_with_stream() {
            return;
        }
        if !endpoint.may_keep(now) || upstream.side.is_one_clients() {
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

/// Takes a connection that waits for a request off this Worker's runtime.
fn pack(endpoint: &Endpoint, upstream: Upstream) -> Option<parcel::Idle> {
    Some(parcel::Idle {
        endpoint: endpoint.place.clone(),
        side: upstream.side.pack().ok()?,
    })
}
