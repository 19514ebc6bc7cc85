//! The C library's heap, which gives memory back late and keeps several pools of it; and tables, which keep their room.

use std::ops::RangeInclusive;
use std::thread::{self, JoinHandle};

/// What the C library keeps for a thread: blocks of these sizes in bytes, in these steps (glibc manual,
/// `glibc.malloc.tcache_max`), and at most so many of a size (`glibc.malloc.tcache_count`: 7, since release 2.42 16).
const KEPT_SIZES: RangeInclusive<usize> = 24..=1_032;
const KEPT_STEP: usize = 16;
const KEPT_OF_A_SIZE: usize = 16;

/// Returns memory that the heap has freed to the machine.
pub fn give_back_heap() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "the C library's heap has no other way")]
        // SAFETY: `malloc_trim` takes no pointer, keeps nothing of ours, and locks the arenas that it works on
        // (malloc_trim(3): MT-safe).
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Has all threads allocate from one pool (arena), for a process whose threads take turns with the same data: what one
/// thread frees another one uses. Otherwise each keeps what it needed most at one time. Best called before there are
/// threads: pools that exist remain.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "the C library's heap has no other way")]
        // SAFETY: `mallopt` takes two numbers, and locks what it changes (mallopt(3): MT-safe). It fails for wrong
        // numbers only, and then changes nothing.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Has blocks of 128 KiB and more come from the kernel, and go back to it once they are freed. By default the C library
/// raises this limit to the size of such a block when the first one is freed: from then on they come from its pools, and
/// up to twice that size may stay free at the end of each pool, which [`give_back_heap`] does not find.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "the C library's heap has no other way")]
        // SAFETY: as above.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        }
    }
}

/// Frees the blocks that the C library keeps for this thread, to be used by it again: it frees none while the thread lives,
/// and each may be the only one of its page. A thread that ends frees all, so they are given to one, which is returned. For
/// threads that live long and once needed much, or freed much that others had needed. Takes some hundred microseconds.
pub fn free_kept_blocks() -> Option<JoinHandle<()>> {
    if cfg!(not(target_env = "gnu")) {
        return None;
    }
    let sizes = KEPT_SIZES.step_by(KEPT_STEP);
    let blocks: Vec<Vec<u8>> = sizes
        .flat_map(|size| (0..KEPT_OF_A_SIZE).map(move |_| Vec::with_capacity(size)))
        .collect();
    // Without a thread they are freed here, and kept again.
    thread::Builder::new().spawn(move || drop(blocks)).ok()
}

/// Whether a table has much more room than it needs. Tables that grow keep their room, and are copied with it.
pub(crate) fn is_loose(capacity: usize, len: usize) -> bool {
    capacity > 4 * len.max(16)
}
