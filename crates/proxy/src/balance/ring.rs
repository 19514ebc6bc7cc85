//! A ring on which endpoints have points and requests have places: a request goes to the endpoint of the next point
//! ("consistent hashing", Karger et al. 1997; with many points for each endpoint, as in Ketama).
//!
//! An endpoint's points depend only on its address and weight, and are the same on every node. If other endpoints come
//! or go, only their requests move, and all nodes send the same request to the same endpoint. Weights are divided by
//! their common divisor, so that they may be large: if an endpoint comes or goes that changes the divisor, more
//! requests move.

use std::net::{IpAddr, SocketAddr};

use super::schedule::divisor;

/// Points of an endpoint for each unit of its reduced weight.
const POINTS: u64 = 128;
/// Most points of a ring, beside one for each endpoint. If there were more, every endpoint has half as many, or a
/// quarter, and so on.
const MAX_POINTS: u64 = 1 << 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Sorted by hash.
    points: Box<[(u64, u16)]>,
}

impl Ring {
    /// Builds a ring of these endpoints with their weights. Endpoints beyond the first 65,536 get no point.
    pub(crate) fn new(endpoints: &[(SocketAddr, u32)]) -> Self {
        let endpoints = &endpoints[..endpoints.len().min(1 << 16)];
        let divisor = divisor(endpoints.iter().map(|&(_, weight)| weight));
        let points = |weight: u32| POINTS * (u64::from(weight) / divisor);
        let wanted: u64 = endpoints.iter().map(|&(_, weight)| points(weight)).sum();
        let halvings = (0..).find(|&n| wanted >> n <= MAX_POINTS).unwrap_or(0);
        let of_one = |(index, &(address, weight)): (u16, &(SocketAddr, u32))| {
            let count = match weight {
                0 => 0,
                weight => (points(weight) >> halvings).max(1),
            };
            let own = hash(&bytes(address));
            (0..count).map(move |n| (mix(own ^ mix(n + 1)), index))
        };
        let mut points: Vec<(u64, u16)> = (0..=u16::MAX).zip(endpoints).flat_map(of_one).collect();
        points.sort_unstable();
        Ring {
            points: points.into(),
        }
    }

    /// The endpoint of the first point at or after a hash.
    pub(crate) fn at(&self, hash: u64) -> Option<usize> {
        self.after(hash).next()
    }

    /// The endpoints of all points from a hash on, once around the ring. An endpoint appears once for each of its
    /// points.
    pub(crate) fn after(&self, hash: u64) -> impl Iterator<Item = usize> {
        let start = self.points.partition_point(|&(point, _)| point < hash);
        let (before, after) = self.points.split_at(start);
        after
            .iter()
            .chain(before)
            .map(|&(_, index)| usize::from(index))
    }
}

/// The bytes of an address that are hashed.
fn bytes(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// The place of bytes on the ring: FNV-1a, mixed. It must be the same on every node and in every version. A client that
/// sends the bytes can choose their place, which is what they are for.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    mix(fnv)
}

/// Spreads every bit over all bits (the finaliser of SplitMix64, Steele et al. 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint(n: u16) -> SocketAddr {
        let [high, low] = n.to_be_bytes();
        ([10, 1, high, low], 8080).into()
    }

    fn lead(ring: &Ring, endpoints: &[(SocketAddr, u32)], key: u32) -> SocketAddr {
        let at = ring.at(hash(&key.to_be_bytes())).unwrap();
        endpoints[at].0
    }

    const KEYS: u32 = 4_000;

    #[test]
    fn the_hash_is_the_same_tomorrow() {
        assert_eq!(hash(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(hash(b"alice"), 0xc5d1_556d_6677_4a5c);
        assert_ne!(hash(b"alice"), hash(b"alicf"));
    }

    #[test]
    fn each_endpoint_gets_about_its_weight() {
        let endpoints: Vec<_> = (1..=10)
            .map(|n| (endpoint(n), u32::from(n % 2) + 1))
            .collect();
        let ring = Ring::new(&endpoints);
        let mut counts = [0u32; 10];
        for key in 0..100_000u32 {
            counts[ring.at(hash(&key.to_be_bytes())).unwrap()] += 1;
        }
        for (count, (_, weight)) in counts.iter().zip(&endpoints) {
            let want = f64::from(*weight) * 100_000.0 / 15.0;
            let ratio = f64::from(*count) / want;
            assert!((0.7..1.35).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn heavy_weights_do_not_make_it_longer_than_its_bound() {
        let weights = |n: u16| 1_000_000 + u32::from(n);
        let endpoints: Vec<_> = (0..300).map(|n| (endpoint(n), weights(n))).collect();
        let ring = Ring::new(&endpoints);
        assert!(ring.points.len() as u64 <= MAX_POINTS + 300);
        assert!(ring.points.len() as u64 >= MAX_POINTS / 2);
    }

    #[test]
    fn weights_count_in_lowest_terms() {
        let ring = |weights: [u32; 3]| {
            Ring::new(&[1, 2, 3].map(|n| (endpoint(n), weights[usize::from(n) - 1])))
        };
        assert_eq!(ring([1_000, 0, 3_000]), ring([1, 0, 3]));
        // Equal weights reduce to 1 each, however large they are.
        assert_eq!(ring([400, 400, 400]).points.len() as u64, 3 * POINTS);
    }

    proptest! {
        /// An endpoint that stays gets no request of another one, except those of the endpoint that left.
        #[test]
        fn only_the_requests_of_the_endpoint_that_goes_move(
            numbers in prop::collection::btree_set(0u16..5_000, 2..40),
            gone: prop::sample::Index,
        ) {
            let before: Vec<_> = numbers.iter().map(|&n| (endpoint(n), 1)).collect();
            let gone = gone.index(before.len());
            let mut after = before.clone();
            let (left, _) = after.remove(gone);
            let (old, new) = (Ring::new(&before), Ring::new(&after));
            let mut moved = 0;
            for key in 0..KEYS {
                let (from, to) = (lead(&old, &before, key), lead(&new, &after, key));
                if from == left {
                    moved += 1;
                } else {
                    prop_assert_eq!(from, to);
                }
            }
            // The moved requests are about the share of the endpoint that left.
            let share = f64::from(moved) / f64::from(KEYS) * before.len() as f64;
            prop_assert!((0.4..1.9).contains(&share), "{}", share);
        }

        #[test]
        fn each_endpoint_is_met_on_the_way_around(count in 1u16..60, hash: u64) {
            let endpoints: Vec<_> = (0..count).map(|n| (endpoint(n), 1)).collect();
            let ring = Ring::new(&endpoints);
            let met: std::collections::BTreeSet<usize> = ring.after(hash).collect();
            prop_assert_eq!(met.len(), usize::from(count));
            prop_assert_eq!(ring.after(hash).next(), ring.at(hash));
        }
    }
}
