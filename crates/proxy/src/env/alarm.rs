//! Coarse deadlines: one sweep over a small table instead of a runtime timer for each request.
//!
//! Setting an alarm is a store. A sweep runs at least every [`SWEEP_MS`] while alarms exist, and
//! earlier when the earliest deadline is nearer; deadlines fall on a grid of [`GRID_MS`], so a
//! timeout is at most that much late. A runtime timer for each request would cost about a tenth of
//! what the whole request does.

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
    /// Why whatever the task does is no longer allowed.
    revoked: Cell<Option<Reason>>,
    /// What the task passes on, and where to.
    flow: Cell<Option<Live>>,
    /// What its connections to other nodes rest on.
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

    /// When the next sweep is due; `None` while there is nothing to wait for.
    pub(crate) fn next_sweep(&self) -> Option<Millis> {
        Some(self.next_sweep.get()).filter(|&due| due != NEVER)
    }

    /// Rings every alarm that is due and plans the next sweep.
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

    /// Ends the flows that are not allowed any more: the registry of what is under way is here, since
    /// an alarm is how a task is reached from outside.
    pub(crate) fn revoke(&self, mut is_allowed: impl FnMut(&Door, Live) -> bool) {
        for (_, bell) in self.bells.borrow().iter() {
            let (Some(flow), Some(door)) = (bell.flow.get(), &bell.door) else {
                continue;
            };
            if !is_allowed(door, flow) {
                bell.revoked.set(Some(Reason::PolicyRevoked));
                bell.ring();
            }
        }
    }

    /// Ends what rests on something that is not believed any more.
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

    /// Whether there is any task that waits, and may rest on something.
    pub(crate) fn has_any(&self) -> bool {
        !self.bells.borrow().is_empty()
    }

    /// An alarm for a task of our own.
    pub(crate) fn alarm(self: &Rc<Self>) -> Alarm {
        self.new_alarm(None)
    }

    /// An alarm for the task of a client's connection that came in by a door.
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
            flow: Cell::new(None),
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
    /// Names the task to wake; once for each task, since a task keeps its waker.
    pub(crate) fn wakes(&self, waker: &Waker) {
        *self.bell.waker.borrow_mut() = Some(waker.clone());
    }

    /// A way to ring it from outside of its task.
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

    /// Waits until then, and does nothing else meanwhile.
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

    /// No deadline, and nothing under way.
    pub(crate) fn clear(&self) {
        self.bell.rang.set(false);
        self.bell.flow.set(None);
        self.bell.due.set(NEVER);
        // A client that is not believed any more is not believed in the next request either.
        if self.bell.revoked.get() == Some(Reason::PolicyRevoked) {
            self.bell.revoked.set(None);
        }
        if self.bell.upstream.borrow().is_some() {
            *self.bell.upstream.borrow_mut() = None;
        }
    }

    /// What the task does is not allowed any more.
    pub(crate) fn revoke(&self, reason: Reason) {
        self.bell.revoked.set(Some(reason));
    }

    /// Says what the connection to the endpoint rests on.
    pub(crate) fn rests_on(&self, upstream: &SideOf<impl Carrier>) {
        if let Some(proof) = upstream.proof() {
            *self.bell.upstream.borrow_mut() = Some(Arc::clone(proof));
        }
    }

    /// Says what the task passes on from now on.
    pub(crate) fn carries(&self, flow: Live) {
        self.bell.flow.set(Some(flow));
    }

    /// Whether the deadline has passed since it was set, or what the task does is not allowed any more.
    pub(crate) fn rang(&self) -> bool {
        self.bell.rang.get() || self.bell.revoked.get().is_some()
    }

    /// Why what the task did is not allowed any more, if so. Asked once: the task that is told gets time to tell
    /// others.
    pub(crate) fn take_revoked(&self) -> Option<Reason> {
        self.bell.flow.set(None);
        self.bell.revoked.take()
    }
}

/// Rings an alarm as long as there is one.
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
