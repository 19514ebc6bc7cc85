//! What the C library keeps of memory that is freed. A program of its own: no other test allocates meanwhile.
#![cfg(target_env = "gnu")]

use heddle_proxy::free_kept_blocks;

#[test]
fn blocks_that_the_library_keeps_for_a_thread_are_freed() {
    let before = in_use();
    let blocks: Vec<Vec<u8>> = (24..=1_032)
        .step_by(16)
        .flat_map(|size| (0..7).map(move |_| Vec::with_capacity(size)))
        .collect();
    let needed = in_use() - before;
    drop(blocks);
    let kept = in_use() - before;
    assert!(
        kept > needed * 9 / 10,
        "the library keeps {kept} of {needed} bytes: is this still needed?"
    );
    let ends = free_kept_blocks().expect("a thread");
    ends.join().expect("no panic");
    let kept = in_use().saturating_sub(before);
    assert!(
        kept < needed / 10,
        "{kept} of {needed} bytes are kept after all"
    );
}

/// What the heap has given out, in bytes, with what it keeps for threads.
#[allow(unsafe_code, reason = "the C library's heap has no other way")]
fn in_use() -> usize {
    // SAFETY: `mallinfo2` takes nothing and returns numbers (mallinfo(3): MT-Unsafe only beside `mallopt`, which nothing
    // here calls).
    unsafe { libc::mallinfo2().uordblks }
}
