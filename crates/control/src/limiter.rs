//! Rate limit for join attempts of peers without an identity.
//!
//! Each source address has a token bucket (RFC 3290, section 5.1). An attempt takes a token; one that
//! succeeds gives it back. So only failures count, and a whole rack behind one address can join at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Tokens in a full bucket: the number of failures in a row that one address may have.
const BURST: u32 = 20;
/// Time to refill one token.
const REFILL: Duration = Duration::from_secs(3);
/// Limit of addresses with a bucket of their own. Further addresses share one bucket.
const MAX_SOURCES: usize = 4_096;

/// The token bucket of an address.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// When the last whole token was added.
    filled: Instant,
}

/// The buckets of all addresses. The caller passes the time.
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

    /// Takes one token from the bucket of a source. False when it was empty: the attempt is to be refused.
    pub(super) fn attempt(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
        let bucket = self.bucket(source, now);
        bucket.fill(now);
        let allowed = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        allowed
    }

    /// Gives back the token of an attempt that succeeded.
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
            // A full bucket holds no information: remove all of them to make room.
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

/// The key of a bucket: an IPv4 address, or the /64 network of an IPv6 address, since one host can use all addresses
/// of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}
