//! The C library's heap, which gives memory back late and keeps several pools of it.

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
