//! Orders to leave: connections that are to move to another Worker.
//!
//! An order is stored here and its task is woken. The task takes the order when it reaches a point at which it can
//! move: an HTTP connection between two messages, an opaque one at any time. A connection that cannot move yet keeps
//! its order.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Gate, TaskId};
use crate::intake::Intake;

/// What a connection is to do instead of waiting.
pub(crate) enum Turn {
    /// Close, because the process is ending.
    End,
    /// Move to that Worker.
    Leave(Intake),
}

/// The orders of one Worker.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    orders: RefCell<HashMap<TaskId, Intake, RandomState>>,
    /// Whether any order exists. Checked in every request.
    wanted: Cell<bool>,
    /// The Workers that take over all connections while this Worker retires; empty otherwise.
    heirs: RefCell<Vec<Intake>>,
}

impl Moves {
    /// Whether any order exists.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Takes the order of a task, if it has one.
    pub(crate) fn take(&self, task: TaskId) -> Option<Intake> {
        let mut orders = self.orders.borrow_mut();
        let order = orders.remove(&task);
        self.wanted.set(!orders.is_empty());
        order
    }

    /// Orders these connections to leave. Replaces all earlier orders that were not carried out yet.
    pub(crate) fn order(&self, gate: &Gate, to: &Intake, chosen: &[TaskId]) {
        let mut orders = self.orders.borrow_mut();
        orders.clear();
        orders.extend(chosen.iter().map(|&task| (task, to.clone())));
        self.wanted.set(!orders.is_empty());
        drop(orders);
        chosen.iter().for_each(|&task| gate.wake(task));
    }

    /// Orders every connection to leave, to each of `to` in turn.
    pub(crate) fn retire(&self, gate: &Gate, to: Vec<Intake>) {
        *self.heirs.borrow_mut() = to;
        self.remind(gate);
    }

    /// Orders connections without an order to leave: they are new, or found no room before.
    pub(crate) fn remind(&self, gate: &Gate) {
        let heirs = self.heirs.borrow();
        self.add(gate, &heirs, &gate.callers());
    }

    /// Orders these connections to leave, to each of `to` in turn, unless they have an order already.
    pub(crate) fn add(&self, gate: &Gate, to: &[Intake], chosen: &[TaskId]) {
        let mut orders = self.orders.borrow_mut();
        let mut woken = Vec::new();
        for (&task, heir) in chosen.iter().zip(to.iter().cycle()) {
            orders.entry(task).or_insert_with(|| {
                woken.push(task);
                heir.clone()
            });
        }
        self.wanted.set(!orders.is_empty());
        drop(orders);
        woken.into_iter().for_each(|task| gate.wake(task));
    }

    /// Cancels all orders.
    pub(crate) fn cancel(&self) {
        self.heirs.borrow_mut().clear();
        self.orders.borrow_mut().clear();
        self.wanted.set(false);
    }

    /// Removes the orders of connections that are gone.
    pub(crate) fn tidy(&self, gate: &Gate) {
        let mut orders = self.orders.borrow_mut();
        orders.retain(|&task, _| gate.has(task));
        self.wanted.set(!orders.is_empty());
    }

    /// Whether this Worker is ending.
    pub(crate) fn is_retiring(&self) -> bool {
        !self.heirs.borrow().is_empty()
    }

    /// The Workers that take over the remaining connections.
    pub(crate) fn heirs(&self) -> Vec<Intake> {
        self.heirs.borrow().clone()
    }
}
