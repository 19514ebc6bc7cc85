//! An allocator that counts, for tests of what allocates and of how much is kept.
//!
//! A test names it once, `#[global_allocator] static HEAP: Counting = Counting;`, and asks what was counted before and after.
#![allow(unsafe_code, reason = "a global allocator can only be written with it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Sub;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator, and counters.
#[derive(Debug)]
pub struct Counting;

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heap {
    /// Blocks that were allocated, or allocated anew in another size.
    pub allocations: u64,
    /// Bytes of blocks that are still there.
    pub bytes: i64,
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static OF_THREAD: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
}

impl Heap {
    /// By all threads, so far.
    #[must_use]
    pub fn of_process() -> Self {
        Heap {
            allocations: ALLOCATIONS.load(Relaxed),
            bytes: BYTES.load(Relaxed),
        }
    }

    /// By this thread, so far: what others do at the same time does not count.
    #[must_use]
    pub fn of_thread() -> Self {
        OF_THREAD.get()
    }
}

impl Sub for Heap {
    type Output = Heap;

    fn sub(self, before: Heap) -> Heap {
        Heap {
            allocations: self.allocations - before.allocations,
            bytes: self.bytes - before.bytes,
        }
    }
}

fn count(allocations: u64, bytes: i64) {
    ALLOCATIONS.fetch_add(allocations, Relaxed);
    BYTES.fetch_add(bytes, Relaxed);
    // A thread that ends has no counters any more.
    let _ended = OF_THREAD.try_with(|heap| {
        let Heap {
            allocations: before,
            bytes: held,
        } = heap.get();
        heap.set(Heap {
            allocations: before + allocations,
            bytes: held + bytes,
        });
    });
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

// SAFETY: every call is passed to the system's allocator as it came, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` got it there.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(1, signed(new_size) - signed(layout.size()));
        // SAFETY: as for `dealloc`, and the caller promises that `new_size` is sound.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Counting = Counting;

    #[test]
    fn what_a_thread_allocates_is_counted_and_what_it_frees() {
        let before = Heap::of_thread();
        let mut block = Vec::<u8>::with_capacity(1000);
        let one = Heap {
            allocations: 1,
            bytes: 1000,
        };
        assert_eq!(Heap::of_thread() - before, one);
        block.reserve_exact(3000);
        let grown = Heap {
            allocations: 2,
            bytes: 3000,
        };
        assert_eq!(Heap::of_thread() - before, grown);
        drop(block);
        assert_eq!((Heap::of_thread() - before).bytes, 0);
        assert!(Heap::of_process().allocations >= 2);
    }
}
