//! Counters and gauges that one thread writes and any thread reads.
//!
//! With a single writer a read-modify-write needs no locked instruction: a relaxed load and a relaxed
//! store give the same result for two plain moves. Two writers would lose counts (nothing worse), so
//! each Worker has its own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A count that only grows. Single writer.
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

    /// The current count. Any thread may call this.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A level that goes up and down. Single writer.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the level. Only the owning thread may call this.
    #[inline]
    pub fn set(&self, level: i64) {
        self.0.store(level, Relaxed);
    }

    /// Adds `n`, which may be negative. Only the owning thread may call this.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one. Only the owning thread may call this.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one. Only the owning thread may call this.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// The current level. Any thread may call this.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
