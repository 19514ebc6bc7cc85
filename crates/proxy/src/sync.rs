//! The locks and atomic numbers that several threads share, or a model checker's versions of them (`cargo test -p
//! heddle-proxy --features loom --lib -- intake interleavings`).

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// Locks, also after a panic. A thread that panicked while it held the lock left no incomplete change: every change
/// under these locks is one call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
