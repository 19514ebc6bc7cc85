//! How much an endpoint takes at once, and which requests wait for it: shared by all Workers of the node.
//!
//! ```text
//!   request ──▶ others waiting? ─── no ──▶ choose, take a permit ──▶ served ──▶ permit is given back
//!                  │ yes                      │ none is free                          │ others waiting?
//!                  ▼                          ▼                                       │
//!                line (behind a lock): ticket ◀── the first that it suits ◀───────────┘ yes
//!                  └── queue is full, waited too long, client gone ──▶ refused, no trace
//! ```
//!
//! A permit is one atomic number: nothing is locked or allocated as long as there is room. The line has a lock,
//! which is touched only while a request waits. It is one for all Workers, so that the request that has waited
//! longest is next, whichever Worker it waits on and whichever is done: the permits need not be shared out beforehand.
//!
//! That no request is forgotten rests on two orders. One that waits says so first and looks for a permit then; one that
//! leaves frees the permit first and looks then whether others wait. One of the two sees the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use heddle_model::{Ejection, Failing};

use crate::balance::{self, FULL_SHARE, Outlier};
use crate::clock::{Millis, millis};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, fence, lock};

mod keeper;
mod line;

pub(crate) use keeper::Keeper;
pub(crate) use line::{Joined, Line, LinePlace, Wants, join};

/// The limit of an endpoint that takes any number.
pub(super) const UNLIMITED: u32 = u32::MAX;
/// How long no other request looks after one that waits has looked whether an endpoint is back, in milliseconds: less
/// than a request lets pass between two looks, so that one that waits alone never comes too early.
const LOOK_MS: Millis = 50;

/// The endpoints of a Service's port, as all Workers see them. Made for each configuration, from the same rooms.
#[derive(Debug)]
pub(crate) struct Rooms {
    /// Sorted by address, as the cluster's endpoints are.
    pub(super) each: Box<[Arc<Room>]>,
    pub(super) line: Arc<Line>,
    pub(super) ejection: Option<Ejection>,
    pub(super) slow_start_ms: Millis,
    /// When time began for all rooms.
    pub(super) epoch: Instant,
}

/// One endpoint of a Service's port.
#[derive(Debug)]
pub(crate) struct Room {
    address: SocketAddr,
    limit: AtomicU32,
    used: AtomicU32,
    /// Until when it is not used because it could not be connected to.
    shut_until: AtomicU64,
    /// Until when it is not used because of its answers; 0 for never yet.
    ejected_until: AtomicU64,
    /// Since when it has been there; 0 for since the port was first heard of.
    since: AtomicU64,
    /// It has failed since it last answered well.
    in_doubt: AtomicBool,
    outlier: Mutex<Outlier>,
    line: Arc<Line>,
}

/// The right of one request to be with an endpoint, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<Room>);

/// How an endpoint stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndpointState {
    /// Requests with it, of all Workers.
    pub(crate) used: u32,
    pub(crate) is_full: bool,
    /// It may be chosen, as far as all Workers know.
    pub(crate) is_open: bool,
    /// What part of its turns it takes, in parts of [`FULL_SHARE`].
    pub(crate) share: u32,
}

impl Rooms {
    /// An instant in the milliseconds of rooms, which are never 0.
    pub(crate) fn ms(&self, instant: Instant) -> Millis {
        millis(instant.saturating_duration_since(self.epoch)).saturating_add(1)
    }

    /// Whether requests wait: one that comes now waits behind them.
    pub(crate) fn has_line(&self) -> bool {
        self.line.waiting.load(Ordering::Relaxed) > 0
    }

    /// The room of the endpoint at this index of the cluster's.
    pub(crate) fn at(&self, index: usize) -> Option<&Arc<Room>> {
        self.each.get(index)
    }

    /// How an endpoint stands at `now`.
    pub(crate) fn standing(&self, index: usize, now: Millis) -> Option<EndpointState> {
        let room = self.each.get(index)?;
        let used = room.used.load(Ordering::Relaxed);
        Some(EndpointState {
            used,
            is_full: used >= room.limit.load(Ordering::Relaxed),
            is_open: room.is_open(now),
            share: match self.slow_start_ms {
                0 => FULL_SHARE,
                window => room.share(now, window),
            },
        })
    }

    /// How long a request may wait, in milliseconds.
    pub(crate) fn patience_ms(&self) -> Millis {
        self.line.patience_ms.load(Ordering::Relaxed)
    }

    /// Whether an endpoint is left out now that may come back without a request leaving it.
    pub(crate) fn is_any_shut(&self, now: Millis) -> bool {
        self.each.iter().any(|room| !room.is_open(now))
    }

    /// Looks for the requests that wait whether an endpoint is open again, though no request has left it. Nothing is
    /// done if one has just looked.
    pub(crate) fn look(&self, now: Millis) {
        if self.line.may_look(now) {
            self.serve_open(now);
        }
    }

    /// Gives every permit that is free to the requests that wait, since endpoints may take more than before.
    pub(super) fn serve(&self, now: Millis) {
        self.line.is_now(now);
        self.serve_all(|_| true);
    }

    /// The same where endpoints may be chosen. One that is shut has permits as long as it is, and is not
    /// chosen while another is open: all that wait would be asked in vain, behind the lock.
    fn serve_open(&self, now: Millis) {
        let now = self.line.is_now(now);
        let is_none_open = self.each.iter().all(|room| !room.is_open(now));
        self.serve_all(|room| is_none_open || room.is_open(now));
    }

    fn serve_all(&self, is_meant: impl Fn(&Room) -> bool) {
        let rooms = self.each.iter();
        for room in rooms.filter(|room| room.has_permit() && is_meant(room)) {
            self.line.serve(room);
        }
    }

    /// Whether a status is a failure of the endpoint, where those are counted.
    pub(crate) fn is_failure(&self, status: u16) -> bool {
        self.ejection.is_some_and(|rules| match rules.on {
            Failing::ServerError => status >= 500,
            Failing::GatewayFailure => matches!(status, 502..=504),
        })
    }

    /// An endpoint has failed. Returns for how long it is left out, in milliseconds, if it is from now on.
    pub(crate) fn failed(&self, room: &Room, now: Millis) -> Option<Millis> {
        let rules = self.ejection.as_ref()?;
        let is_out = |room: &&Arc<Room>| room.ejected_until.load(Ordering::Relaxed) > now;
        let out = self.each.iter().filter(is_out).count();
        let mut outlier = lock(&room.outlier);
        let until = outlier.failed(rules, now, (out, self.each.len()));
        room.in_doubt
            .store(outlier.is_in_doubt(), Ordering::Relaxed);
        drop(outlier);
        let until = until?;
        room.ejected_until.store(until, Ordering::Relaxed);
        Some(until - now)
    }

    /// Takes a permit of the emptiest that is open; of any if none is.
    fn find(&self, now: Millis) -> Option<RequestPermit> {
        let is_none_open = self.each.iter().all(|room| !room.is_open(now));
        // Others take permits meanwhile: a request that finds none at last counts as waiting, and is told.
        loop {
            let open = self
                .each
                .iter()
                .filter(|room| is_none_open || room.is_open(now));
            let emptiest = open.filter(|room| room.has_permit()).min_by_key(|room| {
                let limit = u64::from(room.limit.load(Ordering::Relaxed).max(1));
                (u64::from(room.used.load(Ordering::Relaxed)) << 32) / limit
            });
            if let Some(permit) = emptiest?.take() {
                return Some(permit);
            }
        }
    }

    /// Whether others would be the same.
    pub(super) fn is_like(&self, other: &Rooms) -> bool {
        let same = |(one, other): (&Arc<Room>, &Arc<Room>)| Arc::ptr_eq(one, other);
        self.each.len() == other.each.len()
            && self.each.iter().zip(&other.each).all(same)
            && self.ejection == other.ejection
            && self.slow_start_ms == other.slow_start_ms
    }

    pub(super) fn has(&self, room: &Arc<Room>) -> bool {
        let found = self
            .each
            .binary_search_by_key(&room.address, |one| one.address);
        found.is_ok_and(|at| Arc::ptr_eq(&self.each[at], room))
    }
}

impl Room {
    pub(super) fn new(address: SocketAddr, line: &Arc<Line>, since: Millis) -> Self {
        Room {
            address,
            limit: AtomicU32::new(UNLIMITED),
            used: AtomicU32::new(0),
            shut_until: AtomicU64::new(0),
            ejected_until: AtomicU64::new(0),
            since: AtomicU64::new(since),
            in_doubt: AtomicBool::new(false),
            outlier: Mutex::default(),
            line: Arc::clone(line),
        }
    }

    /// It is there again after it was not.
    pub(super) fn returns(&self, now: Millis) {
        self.since.store(now, Ordering::Relaxed);
        self.shut_until.store(0, Ordering::Relaxed);
    }

    pub(super) fn limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) > 0
    }

    /// Takes a permit, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<RequestPermit> {
        let limit = self.limit.load(Ordering::Relaxed);
        let one_more = |used: u32| (used < limit).then(|| used + 1);
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more)
            .ok()?;
        Some(RequestPermit(Arc::clone(self)))
    }

    /// A Worker could not connect to it: all Workers leave it alone until then.
    pub(crate) fn shut(&self, until: Millis) {
        self.shut_until.store(until, Ordering::Relaxed);
    }

    /// It has answered, and not with a failure.
    pub(crate) fn succeeded(&self) {
        // Mostly there is nothing to be forgotten, and no Worker writes what all read.
        if self.shut_until.load(Ordering::Relaxed) > 0 {
            self.shut_until.store(0, Ordering::Relaxed);
        }
        if self.in_doubt.load(Ordering::Relaxed) {
            let mut outlier = lock(&self.outlier);
            outlier.succeeded();
            self.in_doubt.store(false, Ordering::Relaxed);
        }
    }

    fn has_permit(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
    }

    fn is_open(&self, now: Millis) -> bool {
        let shut = self.shut_until.load(Ordering::Relaxed);
        now >= shut.max(self.ejected_until.load(Ordering::Relaxed))
    }

    fn share(&self, now: Millis, window: Millis) -> u32 {
        let since = self.since.load(Ordering::Relaxed);
        let since = since.max(self.ejected_until.load(Ordering::Relaxed));
        match since {
            0 => FULL_SHARE,
            since => balance::share(now.saturating_sub(since), window),
        }
    }
}

impl RequestPermit {
    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.0
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let room = &self.0;
        room.used.fetch_sub(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if room.line.waiting.load(Ordering::Relaxed) > 0 {
            room.line.serve(room);
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod interleavings;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
