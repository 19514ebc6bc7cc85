//! The pool: a bound, a count, and a stack of blocks that wait for their next use.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

/// A worker's supply of blocks. Cloning it clones a handle, not the blocks.
#[derive(Clone)]
pub struct Pool {
    shared: Rc<Shared>,
}

struct Shared {
    block_size: usize,
    max_blocks: Cell<usize>,
    max_free: Cell<usize>,
    in_use: Cell<usize>,
    /// Last in, first out: the block given back last is the one still in the cache.
    free: RefCell<Vec<Rc<[u8]>>>,
}

impl Pool {
    /// A pool of blocks of `block_size` bytes, at most `max_blocks` of them in use at a time.
    ///
    /// Nothing is allocated yet. Up to `max_blocks` idle blocks are kept; see
    /// [`set_max_free`](Self::set_max_free). Both numbers are raised to at least one, and a block
    /// holds at most `u32::MAX` bytes.
    #[must_use]
    pub fn new(block_size: usize, max_blocks: usize) -> Self {
        let max_blocks = max_blocks.max(1);
        Self {
            shared: Rc::new(Shared {
                block_size: block_size.clamp(1, u32::MAX as usize),
                max_blocks: Cell::new(max_blocks),
                max_free: Cell::new(max_blocks),
                in_use: Cell::new(0),
                free: RefCell::new(Vec::new()),
            }),
        }
    }

    /// Bytes in one block.
    #[must_use]
    #[inline]
    pub fn block_size(&self) -> usize {
        self.shared.block_size
    }

    /// Blocks that some chain holds. A block shared by several chains counts once.
    #[must_use]
    pub fn blocks_in_use(&self) -> usize {
        self.shared.in_use.get()
    }

    /// Idle blocks, kept for the next use.
    #[must_use]
    pub fn blocks_free(&self) -> usize {
        self.shared.free.borrow().len()
    }

    /// Blocks that may still be taken before the bound is reached.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.shared
            .max_blocks
            .get()
            .saturating_sub(self.shared.in_use.get())
    }

    /// Changes the bound, at least one. Blocks beyond it that are in use stay so until they are given
    /// back.
    pub fn set_max_blocks(&self, max_blocks: usize) {
        self.shared.max_blocks.set(max_blocks.max(1));
    }

    /// Keeps at most `max_free` idle blocks from now on, and frees those beyond it.
    pub fn set_max_free(&self, max_free: usize) {
        self.shared.max_free.set(max_free);
        self.trim(max_free);
    }

    /// Frees idle blocks until at most `keep` are left, for instance after a burst.
    pub fn trim(&self, keep: usize) {
        let mut free = self.shared.free.borrow_mut();
        free.truncate(keep);
        if free.capacity() > 2 * keep.max(16) {
            free.shrink_to(keep);
        }
    }

    /// Takes a block, or `None` when the bound is reached. Its bytes are whatever its last user
    /// left: zeroed once when it was made, never again.
    pub(super) fn take(&self) -> Option<BlockRef> {
        let shared = &self.shared;
        let in_use = shared.in_use.get();
        if in_use >= shared.max_blocks.get() {
            return None;
        }
        let idle = shared.free.borrow_mut().pop();
        let bytes =
            idle.unwrap_or_else(|| std::iter::repeat_n(0, shared.block_size).collect::<Rc<[u8]>>());
        shared.in_use.set(in_use + 1);
        Some(BlockRef {
            bytes: Some(bytes),
            home: self.clone(),
        })
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("block_size", &self.block_size())
            .field("in_use", &self.blocks_in_use())
            .field("free", &self.blocks_free())
            .field("max_blocks", &self.shared.max_blocks.get())
            .finish()
    }
}

/// One of the references to a block. The last one to be dropped returns the block to its pool.
pub struct BlockRef {
    /// Always there; an `Option` only so that `drop` can move it out.
    bytes: Option<Rc<[u8]>>,
    /// Keeps the pool alive while any of its blocks is out.
    home: Pool,
}

impl BlockRef {
    /// The block's bytes for writing, unless another reference could see the write.
    #[inline]
    pub(super) fn exclusive(&mut self) -> Option<&mut [u8]> {
        self.bytes.as_mut().and_then(Rc::get_mut)
    }

    /// Whether no other reference exists.
    #[inline]
    pub(super) fn is_exclusive(&self) -> bool {
        self.bytes
            .as_ref()
            .is_some_and(|bytes| Rc::strong_count(bytes) == 1)
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            home: self.home.clone(),
        }
    }
}

impl Deref for BlockRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else {
            return;
        };
        if Rc::strong_count(&bytes) > 1 {
            return;
        }
        let shared = &self.home.shared;
        shared.in_use.set(shared.in_use.get() - 1);
        let mut free = shared.free.borrow_mut();
        if free.len() < shared.max_free.get() {
            free.push(bytes);
        }
    }
}
