//! How often a peer without an identity may try to join.
//!
//! Each source address has a bucket of attempts that fills up over time (a token bucket, RFC 3290
//! section 5.1). An attempt that succeeds gives back what it took, so that a whole rack behind one
//! address joins at once, and only failures count.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Failures in a row that an address may have.
const BURST: u32 = 20;
/// How long it takes until one more is allowed.
const REFILL: Duration = Duration::from_secs(3);
/// Addresses that are told apart; those beyond share one bucket.
const MAX_SOURCES: usize = 4_096;

/// Attempts that an address has left.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// When the last whole attempt was added.
    filled: Instant,
}

/// Who tried how often. The time is passed in.
#[derive(Debug)]
pub(super) struct Limiter {
    sources: HashMap<IpAddr, Bucket>,
    others: Bucket,
}

impl Limiter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sources: HashMap::new(),
            others: Bucket::full(now),
        }
    }

    /// Takes one attempt from a source; says whether it had one.
    pub(super) fn attempt(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
        let bucket = self.bucket(source, now);
        bucket.fill(now);
        let allowed = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        allowed
    }

    /// Gives back the attempt of one that succeeded.
    pub(super) fn succeeded(&mut self, source: Option<IpAddr>, now: Instant) {
        let bucket = self.bucket(source, now);
        bucket.left = (bucket.left + 1).min(BURST);
    }

    fn bucket(&mut self, source: Option<IpAddr>, now: Instant) -> &mut Bucket {
        let Some(source) = source.map(network) else {
            return &mut self.others;
        };
        let is_new = !self.sources.contains_key(&source);
        if is_new && self.sources.len() >= MAX_SOURCES {
            // Who has a full bucket is as good as unknown.
            self.sources.retain(|_, bucket| {
                bucket.fill(now);
                bucket.left < BURST
            });
        }
        if is_new && self.sources.len() >= MAX_SOURCES {
            return &mut self.others;
        }
        self.sources.entry(source).or_insert(Bucket::full(now))
    }
}

impl Bucket {
    fn full(now: Instant) -> Self {
        Self {
            left: BURST,
            filled: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_nanos() / REFILL.as_nanos();
        let added = u32::try_from(passed).unwrap_or(u32::MAX);
        if added >= BURST - self.left {
            *self = Self::full(now);
        } else {
            self.left += added;
            self.filled += REFILL * added;
        }
    }
}

/// What one holder of addresses has: an IPv4 address, or an IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}
