//! Numbers that one thread writes and any thread reads.
//!
//! With one writer a read-modify-write needs no locked instruction: a relaxed load and a relaxed
//! store say the same at the price of two plain moves. Two writers would lose counts (never more
//! than that), so each Worker has its own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A count that only grows. One writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one. Only the owning thread may call this.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// What was counted so far; any thread.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A level that goes up and down. One writer.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the level. Only the owning thread may call this.
    #[inline]
    pub fn set(&self, level: i64) {
        self.0.store(level, Relaxed);
    }

    /// Moves the level by `n`, down when negative. Only the owning thread may call this.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// One up. Only the owning thread may call this.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// One down. Only the owning thread may call this.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// The level now; any thread.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
