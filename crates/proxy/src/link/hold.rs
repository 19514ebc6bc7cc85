//! Limits the receive buffers of the streams of links, per caller.
//!
//! A socket that is not read fills the kernel's buffer, and the kernel stops the sender. A link has one socket for many
//! streams: its bytes are read at once, and stay in blocks of the Worker's pool until their stream is read, up to the
//! stream's window. The windows of all streams together exceed the pool, so readers that stop at the same time could
//! take the blocks from all others. Two rules prevent that:
//!
//! - A caller may hold at most as many blocks as are still free, like a pod's share of connections
//!   ([`crate::permits`]). Beyond that, its own streams break, and no other caller's.
//! - Windows grow while there is room: all windows that may have grown could fill half of the pool, and no more windows
//!   grow once half of the pool is in use. From then on, streams are read one block at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use foldhash::fast::RandomState;
use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_wire::buffer::Pool;
use heddle_wire::link::LinkLimits;

use super::LinkEnd;

/// Size of a fully grown stream window, in bytes.
const GROWN: usize = LinkLimits::INITIAL.grown_window as usize;

/// The caller to which streams belong.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Caller {
    /// A caller on this node, or all of its unknown callers.
    Own(Option<ServiceAccountName>),
    /// A caller on another node.
    Other(SpiffeId),
}

/// The receive buffers of all links of a Worker.
#[derive(Debug)]
pub(super) struct Holds {
    by_caller: RefCell<HashMap<Caller, Weak<Hold>, RandomState>>,
    /// Number of streams whose windows may grow.
    growing: Rc<Cell<usize>>,
}

/// The blocks that one caller's links hold.
#[derive(Debug)]
pub(super) struct Hold {
    pool: Pool,
    blocks: Cell<usize>,
    /// Number of this caller's streams whose windows may grow; `all_growing` is that of all callers.
    growing: Cell<usize>,
    all_growing: Rc<Cell<usize>>,
}

/// The blocks that one stream holds.
#[derive(Debug)]
pub(super) struct Held {
    of: Rc<Hold>,
    blocks: usize,
    grows: bool,
}

impl Holds {
    pub(super) fn new() -> Self {
        Holds {
            by_caller: RefCell::default(),
            growing: Rc::default(),
        }
    }

    /// The account of a link's caller, shared by all links of that caller.
    pub(super) fn of(&self, end: &LinkEnd, pool: &Pool) -> Rc<Hold> {
        let caller = match end {
            LinkEnd::Caller(key) => Caller::Own(key.caller.clone()),
            LinkEnd::Called { caller, .. } => Caller::Other(caller.clone()),
        };
        let mut all = self.by_caller.borrow_mut();
        if let Some(hold) = all.get(&caller).and_then(Weak::upgrade) {
            return hold;
        }
        all.retain(|_, hold| hold.strong_count() > 0);
        let hold = Rc::new(Hold::new(pool, &self.growing));
        all.insert(caller, Rc::downgrade(&hold));
        hold
    }
}

impl Hold {
    fn new(pool: &Pool, all_growing: &Rc<Cell<usize>>) -> Self {
        Hold {
            pool: pool.clone(),
            blocks: Cell::new(0),
            growing: Cell::new(0),
            all_growing: Rc::clone(all_growing),
        }
    }

    /// The account of a new stream.
    pub(super) fn share(self: &Rc<Self>) -> Held {
        Held {
            of: Rc::clone(self),
            blocks: 0,
            grows: false,
        }
    }

    /// Whether one more block leaves at least as many blocks free as the caller holds.
    fn may_take(&self) -> bool {
        self.blocks.get() < self.pool.headroom()
    }

    /// Whether more than half of the pool is in use.
    fn is_short(&self) -> bool {
        self.pool.blocks_in_use() > self.pool.headroom()
    }

    /// Whether one more window may grow.
    fn may_grow(&self) -> bool {
        let blocks = self.pool.blocks_in_use() + self.pool.headroom();
        let most = blocks * self.pool.block_size() / 2 / GROWN;
        let free = most.saturating_sub(self.all_growing.get());
        !self.is_short() && self.growing.get() < free
    }
}

impl Held {
    /// Whether the stream may take another block.
    pub(super) fn may_take(&self) -> bool {
        self.of.may_take()
    }

    /// Updates the number of blocks that the stream holds.
    pub(super) fn set(&mut self, blocks: usize) {
        let all = self.of.blocks.get() - self.blocks + blocks;
        self.of.blocks.set(all);
        self.blocks = blocks;
    }

    /// How many bytes are read from the stream at once.
    pub(super) fn at_once(&self, want: usize) -> usize {
        match self.of.is_short() {
            true => want.min(self.of.pool.block_size()),
            false => want,
        }
    }

    /// Whether the stream's window may grow. Once true, it stays true until the stream ends.
    pub(super) fn may_grow(&mut self) -> bool {
        if !self.grows && self.of.may_grow() {
            self.grows = true;
            self.of.growing.set(self.of.growing.get() + 1);
            self.of.all_growing.set(self.of.all_growing.get() + 1);
        }
        self.grows
    }

    /// Releases the permission to grow, when the stream has ended.
    pub(super) fn grows_no_more(&mut self) {
        if std::mem::take(&mut self.grows) {
            self.of.growing.set(self.of.growing.get() - 1);
            self.of.all_growing.set(self.of.all_growing.get() - 1);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.grows_no_more();
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use heddle_wire::link::Serial;

    use super::super::Slots;
    use super::*;

    fn end(caller: &str) -> LinkEnd {
        let name = |name| ServiceAccountName::new("test", name).unwrap();
        LinkEnd::Caller(super::super::Key {
            caller: Some(name(caller)),
            called: name("echo"),
            node: ([127, 0, 0, 1], 1).into(),
        })
    }

    /// Takes blocks from the pool as long as it may.
    fn flood(held: &mut Held, chain: &mut heddle_wire::buffer::Chain, pool: &Pool) {
        while held.may_take() {
            chain
                .extend_from_slice(pool, &vec![0; pool.block_size()])
                .unwrap();
            held.set(chain.blocks());
        }
    }

    #[test]
    fn a_caller_that_takes_all_it_can_leaves_as_much_whatever_links_it_has() {
        let pool = Pool::new(16, 100);
        let holds = Holds::new();
        let links = [0, 1].map(|_| holds.of(&end("a"), &pool));
        let mut chains = [0; 3].map(|_| heddle_wire::buffer::Chain::new());
        let [first, second, third] = &mut chains;
        let mut held = links.each_ref().map(Hold::share);
        flood(&mut held[0], first, &pool);
        flood(&mut held[1], second, &pool);
        assert_eq!(pool.headroom(), 50);
        let mut other = holds.of(&end("b"), &pool).share();
        flood(&mut other, third, &pool);
        assert_eq!(pool.headroom(), 25);
        assert!(!held[0].may_take() && !held[1].may_take());
        first.clear();
        held[0].set(0);
        assert!(
            held[1].may_take(),
            "what one link gives back is there for another"
        );
    }

    #[test]
    fn heads_that_nothing_takes_are_of_the_share_but_for_the_first() {
        let pool = Pool::new(16, 100);
        let hold = Holds::new().of(&end("a"), &pool);
        let mut slots = Slots::new(hold);
        let head = [0; 16];
        let mut open = |number| {
            let serial = Serial::new(number).unwrap();
            let slot = slots.vacant();
            slots.opened(slot, serial);
            let mut heads = 0;
            while heads < 100 && slots.head(serial, &pool, &head).is_ok() {
                heads += 1;
            }
            heads
        };
        assert_eq!(open(1), 50, "half of it, as with bodies");
        assert_eq!(open(2), 1, "nothing can be served without a head");
    }

    #[test]
    fn windows_grow_while_there_is_room() {
        let pool = Pool::new(GROWN, 16);
        let holds = Holds::new();
        let (one, other) = (holds.of(&end("a"), &pool), holds.of(&end("b"), &pool));
        let grown = |hold: &Rc<Hold>| -> Vec<Held> {
            let streams = std::iter::repeat_with(|| hold.share()).take(20);
            streams
                .filter_map(|mut held| held.may_grow().then_some(held))
                .collect()
        };
        let ones = grown(&one);
        let others = grown(&other);
        assert_eq!((ones.len(), others.len()), (4, 2));
        drop((ones, others));
        let mut chain = heddle_wire::buffer::Chain::new();
        chain.extend_from_slice(&pool, &vec![0; 9 * GROWN]).unwrap();
        assert!(grown(&one).is_empty(), "half of the pool is in use");
        assert_eq!(one.share().at_once(usize::MAX), GROWN);
        chain.clear();
        assert_eq!(grown(&one).len(), 4);
    }
}
