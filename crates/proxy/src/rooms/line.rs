//! The requests that wait for a permit, and their order.

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
    /// How many wait.
    pub(super) waiting: AtomicUsize,
    /// How many may.
    most: AtomicUsize,
    /// How long each may, in milliseconds.
    pub(super) patience_ms: AtomicU64,
    /// The latest time that was said.
    now: AtomicU64,
    /// From when on a request may look again. All that wait would see the same, and each would look at all of them.
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
    /// This one: another node or the client has chosen it.
    One(Arc<Room>),
}

/// Where a permit is put for a request that waits.
#[derive(Debug)]
struct PermitSlot {
    permit: Mutex<Option<RequestPermit>>,
    waker: Waker,
}

/// A request's place in a line; dropped, it has never been there.
#[derive(Debug)]
pub(crate) struct LinePlace {
    line: Arc<Line>,
    ticket: Ticket,
    slot: Arc<PermitSlot>,
}

/// What comes of joining a line.
#[derive(Debug)]
pub(crate) enum Joined {
    /// There is room by now.
    Permitted(RequestPermit),
    Waiting(LinePlace),
    /// As many wait as may.
    Full,
}

impl Wants {
    fn find(&self, now: Millis) -> Option<RequestPermit> {
        match self {
            Wants::Any(rooms) => rooms.find(now),
            Wants::One(room) => room.take(),
        }
    }

    /// Whether this room is one of them.
    fn has(&self, room: &Arc<Room>) -> bool {
        match self {
            Wants::One(one) => Arc::ptr_eq(one, room),
            Wants::Any(rooms) => rooms.has(room),
        }
    }

    /// Whether a permit of this room is one.
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

    /// Says what time it is. Returns the latest that was said.
    pub(super) fn is_now(&self, now: Millis) -> Millis {
        self.now.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Whether it is time to look: true for the first request that asks.
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

    /// Gives the free permits of a room to the requests that wait for them, first come first served, and wakes them.
    pub(super) fn serve(&self, room: &Arc<Room>) {
        let now = self.now.load(Ordering::Relaxed);
        let mut permitted = Vec::new();
        let mut queue = lock(&self.queue);
        while room.has_permit()
            && let Some(ticket) = queue.first(|waiter| waiter.wants.includes(room, now))
            && let Some(permit) = room.take()
        {
            // It was found there just now, under the same lock.
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

/// Joins the line for a room at `now`, to be woken by `waker` when there is a permit.
pub(crate) fn join(wants: Wants, waker: &Waker, now: Millis) -> Joined {
    let line = Arc::clone(wants.line());
    line.is_now(now);
    let mut queue = lock(&line.queue);
    line.waiting.store(queue.len() + 1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    // Permits that are free while a request waits for the same are on their way to it.
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
    /// The permit, once there is one.
    pub(crate) fn take(&self) -> Option<RequestPermit> {
        lock(&self.slot.permit).take()
    }

    /// Waits in the same place for other endpoints, since the configuration is another one. A permit of an endpoint
    /// that is none of them, handed over at the last moment, goes to another request. `false`: that line is not
    /// this one.
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
        // The request that gets it is looked for under the lock.
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
        // A permit that was not taken is given back where it is dropped, without the lock.
        drop(self.take());
    }
}
