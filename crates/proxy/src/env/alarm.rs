//! Coarse deadlines: one sweep over a small table instead of a runtime timer for each request.
//!
//! Setting an alarm is one store. A sweep runs at least every [`SWEEP_MS`] while alarms exist, and earlier if the
//! earliest deadline is nearer. Deadlines fall on a grid of [`GRID_MS`], so a timeout is late by at most that much. A
//! runtime timer for each request would cost about a tenth of the whole request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use slab::Slab;

use super::gate::is_roomy;
use crate::authorize::Live;
use crate::clock::Millis;
use crate::door::Door;
use crate::failure::Reason;
use crate::io::{Carrier, Proof, SideOf};

/// Longest time between two sweeps, in milliseconds.
pub(crate) const SWEEP_MS: Millis = 250;
/// Deadlines are rounded up to a multiple of this, in milliseconds.
pub(crate) const GRID_MS: Millis = 10;

const NEVER: Millis = Millis::MAX;

#[derive(Debug)]
struct Bell {
    door: Option<Arc<Door>>,
    due: Cell<Millis>,
    rang: Cell<bool>,
    /// Why the task's work is no longer allowed.
    revoked: Cell<Option<Reason>>,
    /// The flow that the task carries.
    flow: RefCell<Option<Live>>,
    /// The proofs of the task's connections to other nodes.
    client: RefCell<Option<Arc<Proof>>>,
    upstream: RefCell<Option<Arc<Proof>>>,
    waker: RefCell<Option<Waker>>,
}

impl Bell {
    fn ring(&self) {
        self.due.set(NEVER);
        self.rang.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// All alarms of a Worker.
#[derive(Debug)]
pub(crate) struct Alarms {
    bells: RefCell<Slab<Rc<Bell>>>,
    next_sweep: Cell<Millis>,
}

impl Alarms {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Alarms {
            bells: RefCell::default(),
            next_sweep: Cell::new(NEVER),
        })
    }

    /// Time of the next sweep; `None` while no deadline is set.
    pub(crate) fn next_sweep(&self) -> Option<Millis> {
        Some(self.next_sweep.get()).filter(|&due| due != NEVER)
    }

    /// Rings every due alarm, and plans the next sweep.
    pub(crate) fn sweep(&self, now: Millis) {
        let mut bells = self.bells.borrow_mut();
        if is_roomy(bells.len(), bells.capacity()) {
            bells.shrink_to_fit();
        }
        drop(bells);
        let bells = self.bells.borrow();
        let mut earliest = NEVER;
        for (_, bell) in bells.iter() {
            let due = bell.due.get();
            if due <= now {
                bell.ring();
            } else {
                earliest = earliest.min(due);
            }
        }
        self.next_sweep.set(if bells.is_empty() {
            NEVER
        } else {
            round_up(earliest.min(now.saturating_add(SWEEP_MS)))
        });
    }

    /// Rings every alarm, due or not.
    pub(crate) fn ring_all(&self) {
        self.bells.borrow().iter().for_each(|(_, bell)| bell.ring());
    }

    /// Ends the flows that are not allowed any more. The alarms are the registry of flows, since an alarm is how a task
    /// is reached from outside.
    pub(crate) fn revoke(&self, mut is_allowed: impl FnMut(&Door, &Live) -> bool) {
        for (_, bell) in self.bells.borrow().iter() {
            let flow = bell.flow.borrow();
            let (Some(flow), Some(door)) = (&*flow, &bell.door) else {
                continue;
            };
            if !is_allowed(door, flow) {
                bell.revoked.set(Some(Reason::PolicyRevoked));
                bell.ring();
            }
        }
    }

    /// Ends the connections whose proof is no longer trusted.
    pub(crate) fn distrust(&self, is_believed: impl Fn(&Proof) -> bool) {
        for (_, bell) in self.bells.borrow().iter() {
            let doubted = |proof: &RefCell<Option<Arc<Proof>>>| {
                let proof = proof.borrow();
                proof.as_deref().is_some_and(|proof| !is_believed(proof))
            };
            if doubted(&bell.client) || doubted(&bell.upstream) {
                bell.revoked.set(Some(Reason::IdentityRevoked));
                bell.ring();
            }
        }
    }

    /// Whether any alarm exists, so that a proof may be in use.
    pub(crate) fn has_any(&self) -> bool {
        !self.bells.borrow().is_empty()
    }

    /// An alarm for a task that serves no client connection.
    pub(crate) fn alarm(self: &Rc<Self>) -> Alarm {
        self.new_alarm(None)
    }

    /// An alarm for the task of a client connection that came in through a door.
    pub(crate) fn alarm_of(
        self: &Rc<Self>,
        door: &Arc<Door>,
        client: &SideOf<impl Carrier>,
    ) -> Alarm {
        let alarm = self.new_alarm(Some(Arc::clone(door)));
        *alarm.bell.client.borrow_mut() = client.proof().cloned();
        alarm
    }

    fn new_alarm(self: &Rc<Self>, door: Option<Arc<Door>>) -> Alarm {
        let bell = Rc::new(Bell {
            door,
            due: Cell::new(NEVER),
            rang: Cell::new(false),
            revoked: Cell::new(None),
            flow: RefCell::default(),
            client: RefCell::default(),
            upstream: RefCell::default(),
            waker: RefCell::new(None),
        });
        let key = self.bells.borrow_mut().insert(Rc::clone(&bell));
        Alarm {
            alarms: Rc::clone(self),
            bell,
            key,
        }
    }
}

fn round_up(ms: Millis) -> Millis {
    ms.checked_next_multiple_of(GRID_MS).unwrap_or(NEVER)
}

/// One task's deadline.
#[derive(Debug)]
pub(crate) struct Alarm {
    alarms: Rc<Alarms>,
    bell: Rc<Bell>,
    key: usize,
}

impl Alarm {
    /// Sets the task to wake. Once for each task is enough, since a task keeps its waker.
    pub(crate) fn wakes(&self, waker: &Waker) {
        *self.bell.waker.borrow_mut() = Some(waker.clone());
    }

    /// A handle with which to ring the alarm from outside of its task.
    pub(crate) fn rope(&self) -> Rope {
        Rope(Rc::downgrade(&self.bell))
    }

    /// Replaces the deadline.
    pub(crate) fn set(&self, due: Millis) {
        self.bell.rang.set(false);
        self.bell.due.set(due);
        if due < self.alarms.next_sweep.get() {
            self.alarms.next_sweep.set(round_up(due));
        }
    }

    /// Waits until `due`.
    pub(crate) async fn wait_until(&self, due: Millis) {
        self.set(due);
        poll_fn(|cx| {
            self.wakes(cx.waker());
            if self.rang() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Removes the deadline and the flow.
    pub(crate) fn clear(&self) {
        self.bell.rang.set(false);
        self.bell.flow.take();
        self.bell.due.set(NEVER);
        // A revoked identity of the client stays revoked for its next requests.
        if self.bell.revoked.get() == Some(Reason::PolicyRevoked) {
            self.bell.revoked.set(None);
        }
        if self.bell.upstream.borrow().is_some() {
            *self.bell.upstream.borrow_mut() = None;
        }
    }

    /// Marks the task's work as no longer allowed.
    pub(crate) fn revoke(&self, reason: Reason) {
        self.bell.revoked.set(Some(reason));
    }

    /// Sets the proof on which the connection to the endpoint rests.
    pub(crate) fn rests_on(&self, upstream: &SideOf<impl Carrier>) {
        if let Some(proof) = upstream.proof() {
            *self.bell.upstream.borrow_mut() = Some(Arc::clone(proof));
        }
    }

    /// Sets the flow that the task carries from now on.
    pub(crate) fn carries(&self, flow: Live) {
        self.bell.flow.replace(Some(flow));
    }

    /// Whether the deadline has passed since it was set, or the task's work is not allowed any more.
    pub(crate) fn rang(&self) -> bool {
        self.bell.rang.get() || self.bell.revoked.get().is_some()
    }

    /// Why the task's work is not allowed any more, if so. Cleared when it is read, so that the task still gets time to
    /// inform others.
    pub(crate) fn take_revoked(&self) -> Option<Reason> {
        self.bell.flow.take();
        self.bell.revoked.take()
    }
}

/// Rings an alarm, if that still exists.
#[derive(Debug)]
pub(crate) struct Rope(Weak<Bell>);

impl Rope {
    pub(crate) fn pull(&self) {
        if let Some(bell) = self.0.upgrade() {
            bell.ring();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.bells.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests;
