//! Orders to leave: which connections are to go on at another Worker.
//!
//! An order is filed here and its task woken; the task looks when it comes to a point at which it can
//! move (an HTTP connection between two messages, an opaque one at any time) and takes the order with
//! it. A connection that cannot move yet keeps its order.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Gate, TaskId};
use crate::intake::Intake;

/// What a connection is to do instead of waiting.
pub(crate) enum Turn {
    /// Close: the process is ending.
    End,
    /// Go on there.
    Leave(Intake),
}

/// The orders of one Worker.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    orders: RefCell<HashMap<TaskId, Intake, RandomState>>,
    /// Looked at in every request: whether there are any.
    wanted: Cell<bool>,
    /// Where all connections go while the Worker retires; empty while it does not.
    heirs: RefCell<Vec<Intake>>,
}

impl Moves {
    /// Whether there is any order.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Takes the order of a task.
    pub(crate) fn take(&self, task: TaskId) -> Option<Intake> {
        let mut orders = self.orders.borrow_mut();
        let order = orders.remove(&task);
        self.wanted.set(!orders.is_empty());
        order
    }

    /// Orders these connections to leave, in place of whatever was ordered before and not obeyed yet.
    pub(crate) fn order(&self, gate: &Gate, to: &Intake, chosen: &[TaskId]) {
        let mut orders = self.orders.borrow_mut();
        orders.clear();
        orders.extend(chosen.iter().map(|&task| (task, to.clone())));
        self.wanted.set(!orders.is_empty());
        drop(orders);
        chosen.iter().for_each(|&task| gate.wake(task));
    }

    /// Orders every connection to leave, in turn to each of `to`.
    pub(crate) fn retire(&self, gate: &Gate, to: Vec<Intake>) {
        *self.heirs.borrow_mut() = to;
        self.remind(gate);
    }

    /// Orders those that have no order: they have come since, or found no room.
    pub(crate) fn remind(&self, gate: &Gate) {
        let heirs = self.heirs.borrow();
        if heirs.is_empty() {
            return;
        }
        let mut orders = self.orders.borrow_mut();
        let mut woken = Vec::new();
        for (task, heir) in gate.callers().into_iter().zip(heirs.iter().cycle()) {
            orders.entry(task).or_insert_with(|| {
                woken.push(task);
                heir.clone()
            });
        }
        self.wanted.set(!orders.is_empty());
        drop(orders);
        woken.into_iter().for_each(|task| gate.wake(task));
    }

    /// No connection has to leave any more.
    pub(crate) fn cancel(&self) {
        self.heirs.borrow_mut().clear();
        self.orders.borrow_mut().clear();
        self.wanted.set(false);
    }

    /// Forgets the orders of connections that are gone.
    pub(crate) fn tidy(&self, gate: &Gate) {
        let mut orders = self.orders.borrow_mut();
        orders.retain(|&task, _| gate.has(task));
        self.wanted.set(!orders.is_empty());
    }

    /// Whether the Worker is to end.
    pub(crate) fn is_retiring(&self) -> bool {
        !self.heirs.borrow().is_empty()
    }

    /// Where what is left goes when the Worker ends.
    pub(crate) fn heirs(&self) -> Vec<Intake> {
        self.heirs.borrow().clone()
    }
}
