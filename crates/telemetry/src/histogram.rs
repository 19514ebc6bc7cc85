//! Latencies in fixed buckets.
//!
//! The buckets are Prometheus' defaults with a finer low end, because a call between two pods of a
//! node takes tens of microseconds. Finding the bucket needs no float and no search: the bit length of
//! the value gives the first possible bucket, and since neighbouring bounds are at least a factor of
//! two apart, at most two comparisons remain.

#[cfg(test)]
mod tests;

use crate::Counter;

/// Upper bounds of the buckets in microseconds, inclusive (Prometheus' `le`).
pub(crate) const BOUNDS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Upper bounds of all buckets but the last, in microseconds, inclusive.
pub fn latency_bounds_us() -> &'static [u64] {
    &BOUNDS_US
}

/// One bucket for each bound, and one for values above all bounds.
pub(crate) const BUCKETS: usize = BOUNDS_US.len() + 1;

/// For each bit length of a value (0 … 64): the lowest bucket that can hold a value of that length.
const FIRST: [u8; 65] = {
    let mut first = [0u8; 65];
    let mut bits = 1;
    while bits <= 64 {
        let lowest = 1u64 << (bits - 1);
        let mut bucket = 0;
        while bucket < BOUNDS_US.len() && lowest > BOUNDS_US[bucket] {
            bucket += 1;
        }
        first[bits] = bucket as u8;
        bits += 1;
    }
    first
};

/// A histogram of durations. Single writer.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

impl Histogram {
    /// Records one duration in microseconds. Only the owning thread may call this.
    #[inline]
    pub fn record_us(&self, us: u64) {
        self.buckets[bucket_of(us)].inc();
        self.sum_us.add(us);
    }

    /// The number of durations in each bucket (not cumulative). The last bucket is above all bounds.
    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|i| self.buckets[i].get())
    }

    /// The number of recorded durations. Summed from the buckets, so that it agrees with them even while
    /// the owner records.
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// The sum of all durations in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }
}

/// The upper bound of a bucket in seconds; infinity for the last one.
pub(crate) fn bound_s(bucket: usize) -> f64 {
    let bound = BOUNDS_US.get(bucket);
    bound.map_or(f64::INFINITY, |us| *us as f64 / 1e6)
}

#[inline]
fn bucket_of(us: u64) -> usize {
    let mut bucket = usize::from(FIRST[(64 - us.leading_zeros()) as usize]);
    while bucket < BOUNDS_US.len() && us > BOUNDS_US[bucket] {
        bucket += 1;
    }
    bucket
}
