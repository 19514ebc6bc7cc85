//! A global allocator that counts allocations and live bytes, for tests of code that must not allocate or must not
//! grow.
//!
//! A test installs it with `#[global_allocator] static HEAP: Counting = Counting;` and subtracts two readings of
//! [`Heap`].
#![allow(unsafe_code, reason = "a global allocator can only be written with it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Sub;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system allocator with counters for the process and for each thread.
#[derive(Debug)]
pub struct Counting;

/// A reading of the counters. Subtract an earlier reading to get what a piece of code did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heap {
    /// Calls of `alloc` and `realloc`.
    pub allocations: u64,
    /// Bytes allocated and not freed. Negative for a thread that frees blocks of others.
    pub bytes: i64,
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static OF_THREAD: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
}

impl Heap {
    /// The counters of all threads together.
    #[must_use]
    pub fn of_process() -> Self {
        Heap {
            allocations: ALLOCATIONS.load(Relaxed),
            bytes: BYTES.load(Relaxed),
        }
    }

    /// The counters of this thread alone, so that tests running in parallel do not disturb each other.
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
    // Fails while the thread ends and its thread-local counters are already destroyed.
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

// SAFETY: every call is forwarded unchanged to `System`, which keeps the contract of `GlobalAlloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller upholds for `layout` exactly what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: `alloc` got `ptr` from `System`, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(1, signed(new_size) - signed(layout.size()));
        // SAFETY: as for `dealloc`; the caller guarantees that `new_size` is valid.
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
