//! Connections from other nodes that have not proven an identity yet: their limit, and which of them is evicted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::env::{Alarm, Rope};

/// Those of a Worker, the oldest first: whether each is evicted, and the rope that wakes it.
#[derive(Debug, Default)]
pub(crate) struct Unproven {
    all: RefCell<VecDeque<(Rc<Cell<bool>>, Rope)>>,
    limit: Cell<usize>,
}

/// The place of one such connection; dropping it frees the place.
pub(crate) struct UnprovenPlace {
    all: Rc<Unproven>,
    evicted: Rc<Cell<bool>>,
}

impl Unproven {
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.set(limit.max(1));
    }

    /// Takes a place. At the limit, the oldest connection is evicted: an honest node needs only milliseconds.
    pub(crate) fn place(self: &Rc<Self>, alarm: &Alarm) -> UnprovenPlace {
        let evicted = Rc::new(Cell::new(false));
        let mut all = self.all.borrow_mut();
        if all.len() >= self.limit.get()
            && let Some((oldest, rope)) = all.pop_front()
        {
            oldest.set(true);
            rope.pull();
        }
        all.push_back((Rc::clone(&evicted), alarm.rope()));
        UnprovenPlace {
            all: Rc::clone(self),
            evicted,
        }
    }
}

impl UnprovenPlace {
    /// Whether this connection was evicted to make room for another.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }
}

impl Drop for UnprovenPlace {
    fn drop(&mut self) {
        let mut all = self.all.all.borrow_mut();
        all.retain(|(one, _)| !Rc::ptr_eq(one, &self.evicted));
    }
}
