//! The request limits of endpoints, and the requests that wait for them: shared by all Workers of the node.
//!
//! ```text
//!   request ──▶ others waiting? ─── no ──▶ choose, take a permit ──▶ served ──▶ permit is given back
//!                  │ yes                      │ none is free                          │ others waiting?
//!                  ▼                          ▼                                       │
//!                line (behind a lock): ticket ◀── the first that it suits ◀───────────┘ yes
//!                  └── queue is full, waited too long, client gone ──▶ refused, no trace
//! ```
//!
//! Permits are one atomic number: nothing is locked or allocated while there is room. The line has a lock, which is
//! used only while a request waits. All Workers share one line, so that the request that has waited longest is next,
//! whichever Worker it waits on and whichever Worker releases the permit: permits need not be divided among the
//! Workers.
//!
//! No request is forgotten, because of two orders. A request that waits first registers and then looks for a permit; a
//! request that leaves first frees its permit and then looks for waiting requests. At least one of the two sees the
//! other.

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

/// The limit of an endpoint without a limit.
pub(super) const UNLIMITED: u32 = u32::MAX;
/// Minimum time between two checks, by requests that wait, whether an endpoint is back, in milliseconds. It is shorter
/// than the interval at which one request checks, so that a request that waits alone never comes too early.
const LOOK_MS: Millis = 50;

/// The endpoints of a Service's port, as all Workers share them. Made anew for each configuration, from the same rooms.
#[derive(Debug)]
pub(crate) struct Rooms {
    /// Sorted by address, like the cluster's endpoints.
    pub(super) each: Box<[Arc<Room>]>,
    pub(super) line: Arc<Line>,
    pub(super) ejection: Option<Ejection>,
    pub(super) slow_start_ms: Millis,
    /// Start of the millisecond clock of all rooms.
    pub(super) epoch: Instant,
}

/// One endpoint of a Service's port.
#[derive(Debug)]
pub(crate) struct Room {
    address: SocketAddr,
    limit: AtomicU32,
    used: AtomicU32,
    /// Until when it is avoided because connecting to it failed.
    shut_until: AtomicU64,
    /// Until when it is avoided because of its answers; 0 if it never was.
    ejected_until: AtomicU64,
    /// Since when it has existed; 0 if it existed when the port was first seen.
    since: AtomicU64,
    /// It has failed since its last good answer.
    in_doubt: AtomicBool,
    outlier: Mutex<Outlier>,
    line: Arc<Line>,
}

/// The permission of one request to use an endpoint, returned on drop.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<Room>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndpointState {
    /// Requests in progress, of all Workers.
    pub(crate) used: u32,
    pub(crate) is_full: bool,
    /// Whether it may be chosen, as far as all Workers know.
    pub(crate) is_open: bool,
    /// The part of its turns that it gets (slow start), out of [`FULL_SHARE`].
    pub(crate) share: u32,
}

impl Rooms {
    /// Converts an instant to the milliseconds of rooms, which are never 0.
    pub(crate) fn ms(&self, instant: Instant) -> Millis {
        millis(instant.saturating_duration_since(self.epoch)).saturating_add(1)
    }

    /// Whether requests wait: a new request then waits behind them.
    pub(crate) fn has_line(&self) -> bool {
        self.line.waiting.load(Ordering::Relaxed) > 0
    }

    /// The room of the endpoint at this index of the cluster.
    pub(crate) fn at(&self, index: usize) -> Option<&Arc<Room>> {
        self.each.get(index)
    }

    /// The state of an endpoint at `now`.
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

    /// Whether an endpoint is avoided now that may be available again without a request leaving it.
    pub(crate) fn is_any_shut(&self, now: Millis) -> bool {
        self.each.iter().any(|room| !room.is_open(now))
    }

    /// On behalf of the requests that wait, checks whether an endpoint is open again although no request has left it.
    /// Does nothing if another request has just checked.
    pub(crate) fn look(&self, now: Millis) {
        if self.line.may_look(now) {
            self.serve_open(now);
        }
    }

    /// Gives all free permits to the requests that wait: limits may have risen.
    pub(super) fn serve(&self, now: Millis) {
        self.line.is_now(now);
        self.serve_all(|_| true);
    }

    /// Like `serve`, for endpoints that may be chosen. An endpoint that is shut has free permits all the time, but is
    /// not chosen while another is open: every waiting request would be checked in vain, while the lock is held.
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

    /// Whether a status counts as a failure of the endpoint, if failures are counted.
    pub(crate) fn is_failure(&self, status: u16) -> bool {
        self.ejection.is_some_and(|rules| match rules.on {
            Failing::ServerError => status >= 500,
            Failing::GatewayFailure => matches!(status, 502..=504),
        })
    }

    /// Records a failure of an endpoint. Returns for how long it is ejected, in milliseconds, if this failure ejects
    /// it.
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

    /// Takes a permit of the open endpoint with the lowest use relative to its limit; of any endpoint if none is open.
    fn find(&self, now: Millis) -> Option<RequestPermit> {
        let is_none_open = self.each.iter().all(|room| !room.is_open(now));
        // Other threads take permits in the meantime. A request that finds none in the end is already registered as
        // waiting, and is woken later.
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

    /// Whether `other` has the same rooms and settings.
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

    /// Records that it exists again after it was removed.
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

    /// Records that a Worker could not connect to it: all Workers avoid it until then.
    pub(crate) fn shut(&self, until: Millis) {
        self.shut_until.store(until, Ordering::Relaxed);
    }

    /// Records an answer that was not a failure.
    pub(crate) fn succeeded(&self) {
        // Usually there is nothing to reset: the checks avoid writes to memory that all Workers read.
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
