use super::*;

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn failures_use_a_bucket_up_and_time_fills_it() {
    // As documented in docs/identity.md: 20, and one more every 3 seconds.
    let (burst, refill) = (20, Duration::from_secs(3));
    let start = Instant::now();
    let mut limiter = Limiter::new(start);
    let one = ip("192.0.2.1");
    for _ in 0..burst {
        assert!(limiter.attempt(one, start));
    }
    assert!(!limiter.attempt(one, start));
    assert!(
        limiter.attempt(ip("192.0.2.2"), start),
        "others have their own"
    );
    assert!(!limiter.attempt(one, start + refill - Duration::from_millis(1)));
    assert!(limiter.attempt(one, start + refill));
    assert!(!limiter.attempt(one, start + refill));
    let later = start + refill * (burst + 5);
    for _ in 0..burst {
        assert!(limiter.attempt(one, later));
    }
    assert!(!limiter.attempt(one, later));
}

#[test]
fn who_succeeds_loses_nothing() {
    let now = Instant::now();
    let mut limiter = Limiter::new(now);
    for _ in 0..10 * BURST {
        assert!(limiter.attempt(ip("192.0.2.1"), now));
        limiter.succeeded(ip("192.0.2.1"), now);
    }
}

#[test]
fn an_ipv6_network_is_one_source() {
    let now = Instant::now();
    let mut limiter = Limiter::new(now);
    for number in 0..BURST {
        assert!(limiter.attempt(ip(&format!("2001:db8::{number:x}")), now));
    }
    assert!(!limiter.attempt(ip("2001:db8::ffff"), now));
    assert!(limiter.attempt(ip("2001:db8:0:1::1"), now));
    // An IPv4-mapped IPv6 address shares the bucket of its IPv4 address.
    for _ in 0..BURST {
        assert!(limiter.attempt(ip("::ffff:192.0.2.1"), now));
    }
    assert!(!limiter.attempt(ip("192.0.2.1"), now));
}

#[test]
fn sources_are_bounded() {
    let now = Instant::now();
    let mut limiter = Limiter::new(now);
    let source = |number: usize| {
        let bits = u32::try_from(number).unwrap();
        Some(IpAddr::V4(bits.into()))
    };
    for number in 0..MAX_SOURCES + 2 * BURST as usize {
        limiter.attempt(source(number), now);
    }
    assert_eq!(limiter.sources.len(), MAX_SOURCES);
    // The others share one bucket, which is used up.
    assert!(!limiter.attempt(source(1_000_000), now));
    // Once buckets are full again there is room.
    assert!(limiter.attempt(source(1_000_000), now + REFILL));
    assert_eq!(limiter.sources.len(), 1);
}
