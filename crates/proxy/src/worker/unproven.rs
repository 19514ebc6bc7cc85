//! Connections from other nodes that have not proven who they are: how many there are, and which makes room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::env::{Alarm, Rope};

/// Those of a Worker, the oldest first: whether they had to make room, and how they are told.
#[derive(Debug, Default)]
pub(crate) struct Unproven {
    all: RefCell<VecDeque<(Rc<Cell<bool>>, Rope)>>,
    limit: Cell<usize>,
}

/// The place of one of them.
pub(crate) struct UnprovenPlace {
    all: Rc<Unproven>,
    evicted: Rc<Cell<bool>>,
}

impl Unproven {
    /// So many at most.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.set(limit.max(1));
    }

    /// A place for one more. Where there is none left the oldest makes room: an honest node needs milliseconds.
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
    /// Whether it has to make room for another.
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
