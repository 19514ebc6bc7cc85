//! The requests that wait for a permit, in their order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::{LOOK_MS, RequestPermit, Room, Rooms};
use crate::balance::{Queue, Ticket};
use crate::clock::Millis;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, fence, lock};

/// The requests that wait for the endpoints of a Service's port.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Number of requests that wait.
    pub(super) waiting: AtomicUsize,
    /// Limit of requests that wait.
    most: AtomicUsize,
    /// How long each request may wait, in milliseconds.
    pub(super) patience_ms: AtomicU64,
    /// The latest time that was passed in.
    now: AtomicU64,
    /// Earliest time of the next check for open endpoints. All waiting requests would see the same, and each would
    /// check all of them.
    next_look: AtomicU64,
    queue: Mutex<Queue<WaitingRequest>>,
}

#[derive(Debug)]
struct WaitingRequest {
    wants: Wants,
    slot: Arc<PermitSlot>,
}

/// What a request waits for.
#[derive(Debug, Clone)]
pub(crate) enum Wants {
    /// Any of these endpoints.
    Any(Arc<Rooms>),
    /// This one, which another node or the client has chosen.
    One(Arc<Room>),
}

/// The slot in which a waiting request receives its permit.
#[derive(Debug)]
struct PermitSlot {
    permit: Mutex<Option<RequestPermit>>,
    waker: Waker,
}

/// A request's place in a line. Dropping it leaves the line without a trace.
#[derive(Debug)]
pub(crate) struct LinePlace {
    line: Arc<Line>,
    ticket: Ticket,
    slot: Arc<PermitSlot>,
}

/// The result of joining a line.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A permit was free by now.
    Permitted(RequestPermit),
    Waiting(LinePlace),
    /// The limit of waiting requests is reached.
    Full,
}

impl Wants {
    fn find(&self, now: Millis) -> Option<RequestPermit> {
        match self {
            Wants::Any(rooms) => rooms.find(now),
            Wants::One(room) => room.take(),
        }
    }

    /// Whether it waits for this room, among others.
    fn has(&self, room: &Arc<Room>) -> bool {
        match self {
            Wants::One(one) => Arc::ptr_eq(one, room),
            Wants::Any(rooms) => rooms.has(room),
        }
    }

    /// Whether a permit of this room would be accepted now.
    fn includes(&self, room: &Arc<Room>, now: Millis) -> bool {
        let is_chosen = || match self {
            Wants::One(_) => true,
            Wants::Any(rooms) => {
                room.is_open(now) || rooms.each.iter().all(|room| !room.is_open(now))
            }
        };
        self.has(room) && is_chosen()
    }

    fn is_same(&self, other: &Wants) -> bool {
        match (self, other) {
            (Wants::Any(one), Wants::Any(other)) => Arc::ptr_eq(one, other),
            (Wants::One(one), Wants::One(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn line(&self) -> &Arc<Line> {
        match self {
            Wants::Any(rooms) => &rooms.line,
            Wants::One(room) => &room.line,
        }
    }
}

impl Line {
    pub(in crate::rooms) fn bound(&self, most: usize, patience_ms: Millis) {
        self.most.store(most, Ordering::Relaxed);
        self.patience_ms.store(patience_ms, Ordering::Relaxed);
    }

    /// Passes in the current time. Returns the latest time that any caller has passed in.
    pub(super) fn is_now(&self, now: Millis) -> Millis {
        self.now.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Whether it is time for a check; true only for the first request that asks.
    pub(super) fn may_look(&self, now: Millis) -> bool {
        let next = self.next_look.load(Ordering::Relaxed);
        let then = now.saturating_add(LOOK_MS);
        let relaxed = Ordering::Relaxed;
        let take = || {
            self.next_look
                .compare_exchange(next, then, relaxed, relaxed)
        };
        now >= next && take().is_ok()
    }

    /// Gives the free permits of a room to the requests that wait for it, first come first served, and wakes them.
    pub(super) fn serve(&self, room: &Arc<Room>) {
        let now = self.now.load(Ordering::Relaxed);
        let mut permitted = Vec::new();
        let mut queue = lock(&self.queue);
        while room.has_permit()
            && let Some(ticket) = queue.first(|waiter| waiter.wants.includes(room, now))
            && let Some(permit) = room.take()
        {
            // Always found: `first` returned it under the same lock.
            if let Some(waiter) = queue.remove(ticket) {
                *lock(&waiter.slot.permit) = Some(permit);
                permitted.push(waiter.slot);
            }
        }
        self.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        permitted.iter().for_each(|slot| slot.waker.wake_by_ref());
    }
}

/// Joins the line for a room at `now`. `waker` is woken when there is a permit.
pub(crate) fn join(wants: Wants, waker: &Waker, now: Millis) -> Joined {
    let line = Arc::clone(wants.line());
    line.is_now(now);
    let mut queue = lock(&line.queue);
    line.waiting.store(queue.len() + 1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    // If another request already waits for the same endpoints, free permits are about to be given to it.
    if !queue.has(|waiter| waiter.wants.is_same(&wants))
        && let Some(permit) = wants.find(now)
    {
        line.waiting.store(queue.len(), Ordering::Relaxed);
        return Joined::Permitted(permit);
    }
    let slot = Arc::new(PermitSlot {
        permit: Mutex::default(),
        waker: waker.clone(),
    });
    let waiter = WaitingRequest {
        wants,
        slot: Arc::clone(&slot),
    };
    let ticket = queue.push(waiter, line.most.load(Ordering::Relaxed));
    line.waiting.store(queue.len(), Ordering::Relaxed);
    drop(queue);
    match ticket {
        Some(ticket) => Joined::Waiting(LinePlace { line, ticket, slot }),
        None => Joined::Full,
    }
}

impl LinePlace {
    /// Takes the permit, if it has arrived.
    pub(crate) fn take(&self) -> Option<RequestPermit> {
        lock(&self.slot.permit).take()
    }

    /// Keeps the place but waits for other endpoints, because the configuration has changed. If a permit of an endpoint
    /// that is not among them was handed over at the last moment, it goes to another request. Returns `false` if the
    /// new endpoints have another line.
    pub(crate) fn change(&self, wants: &Wants, now: Millis) -> bool {
        if !Arc::ptr_eq(&self.line, wants.line()) {
            return false;
        }
        let mut unwanted = None;
        let mut queue = lock(&self.line.queue);
        match queue.get_mut(self.ticket) {
            Some(waiter) => waiter.wants = wants.clone(),
            None => {
                let is_none = |permit: &mut RequestPermit| !wants.has(permit.room());
                unwanted = lock(&self.slot.permit).take_if(is_none);
                if unwanted.is_some() {
                    let waiter = WaitingRequest {
                        wants: wants.clone(),
                        slot: Arc::clone(&self.slot),
                    };
                    queue.put_back(self.ticket, waiter);
                    self.line.waiting.store(queue.len(), Ordering::Relaxed);
                }
            }
        }
        drop(queue);
        // Dropping a permit takes the lock to find the next request, so it is dropped after the lock is released.
        drop(unwanted);
        match wants {
            Wants::Any(rooms) => rooms.serve_open(now),
            Wants::One(room) => self.line.serve(room),
        }
        true
    }
}

impl Drop for LinePlace {
    fn drop(&mut self) {
        let mut queue = lock(&self.line.queue);
        let gone = queue.remove(self.ticket);
        self.line.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        drop(gone);
        // An unused permit is returned here, after the lock is released.
        drop(self.take());
    }
}
