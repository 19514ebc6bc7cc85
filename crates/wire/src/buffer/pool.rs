//! The pool: a limit, a count, and a stack of free blocks.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

/// A Worker's supply of blocks. A clone is another handle to the same pool.
#[derive(Clone)]
pub struct Pool {
    shared: Rc<Shared>,
}

struct Shared {
    block_size: usize,
    max_blocks: Cell<usize>,
    max_free: Cell<usize>,
    in_use: Cell<usize>,
    /// A stack: the block returned last is the one most likely in the cache.
    free: RefCell<Vec<Rc<[u8]>>>,
}

impl Pool {
    /// A pool of blocks of `block_size` bytes, at most `max_blocks` of them in use at a time.
    ///
    /// Nothing is allocated yet. At first up to `max_blocks` free blocks are kept for reuse; see
    /// [`set_max_free`](Self::set_max_free). Both arguments are raised to at least 1, and the block size is capped at
    /// `u32::MAX` bytes.
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

    /// Blocks held by chains. A block shared by several chains counts once.
    #[must_use]
    pub fn blocks_in_use(&self) -> usize {
        self.shared.in_use.get()
    }

    /// Free blocks that are kept for reuse.
    #[must_use]
    pub fn blocks_free(&self) -> usize {
        self.shared.free.borrow().len()
    }

    /// Number of blocks that can be taken before the limit is reached.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.shared
            .max_blocks
            .get()
            .saturating_sub(self.shared.in_use.get())
    }

    /// Changes the limit (at least 1). Blocks in use beyond it stay in use until they are returned.
    pub fn set_max_blocks(&self, max_blocks: usize) {
        self.shared.max_blocks.set(max_blocks.max(1));
    }

    /// Keeps at most `max_free` free blocks from now on, and frees the excess.
    pub fn set_max_free(&self, max_free: usize) {
        self.shared.max_free.set(max_free);
        self.trim(max_free);
    }

    /// Frees free blocks until at most `keep` are left, for instance after a burst.
    pub fn trim(&self, keep: usize) {
        let mut free = self.shared.free.borrow_mut();
        free.truncate(keep);
        if free.capacity() > 2 * keep.max(16) {
            free.shrink_to(keep);
        }
    }

    /// Takes a block, or `None` when the limit is reached. Its bytes are those that its last user left: it is zeroed
    /// only once, when it is allocated.
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

/// A reference to a block. Dropping the last one returns the block to its pool.
pub struct BlockRef {
    /// Always `Some`, except while `drop` moves the value out.
    bytes: Option<Rc<[u8]>>,
    /// Keeps the pool alive while one of its blocks is in use.
    home: Pool,
}

impl BlockRef {
    /// The block's bytes for writing; `None` while another reference could see the write.
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
