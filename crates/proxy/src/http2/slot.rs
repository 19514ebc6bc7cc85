//! Lets a Collaborator of the called end wait for the next request to the same destination, so that the request needs
//! no new task.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::HeaderValue;

use super::Shared;

/// Limit of waiting Collaborators, for each connection.
const MAX_WAITING: usize = 64;

/// A received request, and the handle to answer it.
pub(super) type PendingRequest = (http::Request<RecvStream>, SendResponse<Bytes>);

/// The slot in which one Collaborator gets its next request.
#[derive(Debug)]
pub(super) struct ExchangeSlot {
    destination: HeaderValue,
    next: RefCell<Option<PendingRequest>>,
    waker: RefCell<Option<Waker>>,
    waits: Cell<bool>,
    dismissed: Cell<bool>,
}

/// The slots of a connection's waiting Collaborators.
#[derive(Debug, Default)]
pub(super) struct ExchangeSlots {
    waiting: RefCell<HashMap<HeaderValue, Vec<Rc<ExchangeSlot>>, RandomState>>,
    count: Cell<usize>,
}

impl ExchangeSlots {
    /// Gives a request to a Collaborator that waits for this destination. Returns the request if none waits.
    pub(super) fn give(
        &self,
        destination: &HeaderValue,
        arrived: PendingRequest,
    ) -> Option<PendingRequest> {
        let mut waiting = self.waiting.borrow_mut();
        let Some(slot) = waiting.get_mut(destination).and_then(Vec::pop) else {
            return Some(arrived);
        };
        self.count.set(self.count.get() - 1);
        slot.waits.set(false);
        *slot.next.borrow_mut() = Some(arrived);
        slot.wake();
        None
    }

    /// Dismisses all waiting Collaborators.
    pub(super) fn dismiss(&self) {
        let waiting = self.waiting.take();
        self.count.set(0);
        for slot in waiting.into_values().flatten() {
            slot.waits.set(false);
            slot.dismissed.set(true);
            slot.wake();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Adds a waiting Collaborator. False if the limit is reached.
    fn add(&self, slot: &Rc<ExchangeSlot>) -> bool {
        if self.count.get() >= MAX_WAITING {
            return false;
        }
        self.count.set(self.count.get() + 1);
        let mut waiting = self.waiting.borrow_mut();
        let like = waiting.entry(slot.destination.clone()).or_default();
        like.push(Rc::clone(slot));
        true
    }

    fn remove(&self, slot: &Rc<ExchangeSlot>) {
        let mut waiting = self.waiting.borrow_mut();
        let Some(like) = waiting.get_mut(&slot.destination) else {
            return;
        };
        let before = like.len();
        like.retain(|other| !Rc::ptr_eq(other, slot));
        self.count.set(self.count.get() + like.len() - before);
        // Remove the entry of a destination without waiting Collaborators.
        if like.is_empty() {
            waiting.remove(&slot.destination);
        }
    }
}

impl ExchangeSlot {
    /// A slot that already holds its first request.
    pub(super) fn of(destination: HeaderValue, arrived: PendingRequest) -> Rc<Self> {
        Rc::new(ExchangeSlot {
            destination,
            next: RefCell::new(Some(arrived)),
            waker: RefCell::default(),
            waits: Cell::new(false),
            dismissed: Cell::new(false),
        })
    }

    /// Waits for a request; `None`: no request will come.
    pub(super) fn poll_next(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        slots: &ExchangeSlots,
        shared: &Shared,
    ) -> Poll<Option<PendingRequest>> {
        if let Some(arrived) = self.next.take() {
            return Poll::Ready(Some(arrived));
        }
        if shared.closing.get() || self.dismissed.get() {
            return Poll::Ready(None);
        }
        if !self.waits.get() {
            if !slots.add(self) {
                return Poll::Ready(None);
            }
            self.waits.set(true);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Removes a slot whose Collaborator ends. A request that it was just given is reset as not processed, so that the
    /// caller may send it again.
    pub(super) fn leave(self: &Rc<Self>, slots: &ExchangeSlots, shared: &Shared) {
        slots.remove(self);
        if let Some((_, mut respond)) = self.next.take() {
            respond.send_reset(Reason::REFUSED_STREAM);
            shared.ended();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
