//! Coarse deadlines: one sweep over a small table instead of a runtime timer for each request.
//!
//! Setting an alarm is a store. A sweep runs at least every [`SWEEP_MS`] while alarms exist, and
//! earlier when the earliest deadline is nearer; deadlines fall on a grid of [`GRID_MS`], so a
//! timeout is at most that much late. A runtime timer for each request would cost about a tenth of
//! what the whole request does.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use slab::Slab;

use super::clock::Millis;

/// Longest time between two sweeps, in milliseconds.
pub(crate) const SWEEP_MS: Millis = 250;
/// Deadlines are rounded up to a multiple of this, in milliseconds.
pub(crate) const GRID_MS: Millis = 10;

const NEVER: Millis = Millis::MAX;

#[derive(Debug)]
struct Bell {
    due: Cell<Millis>,
    rang: Cell<bool>,
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

    /// An alarm for one task.
    pub(crate) fn alarm(self: &Rc<Self>) -> Alarm {
        let bell = Rc::new(Bell {
            due: Cell::new(NEVER),
            rang: Cell::new(false),
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

    /// No deadline.
    pub(crate) fn clear(&self) {
        self.bell.rang.set(false);
        self.bell.due.set(NEVER);
    }

    /// Whether the deadline has passed since it was set.
    pub(crate) fn rang(&self) -> bool {
        self.bell.rang.get()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.bells.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests;
