use std::net::Ipv4Addr;

use super::*;

fn addresses(last: impl IntoIterator<Item = u8>) -> Vec<IpAddr> {
    let all = last.into_iter().map(|last| Ipv4Addr::new(10, 0, 0, last));
    all.map(IpAddr::from).collect()
}

#[test]
fn what_is_another_pods_is_not_ours_and_what_we_had_we_keep() {
    let most = u8::try_from(MAX_ADDRESSES).unwrap();
    // Input: found, own before, another pod's. Result: own, others.
    let cases = [
        (
            addresses([1, 2]),
            addresses([1]),
            vec![],
            addresses([1, 2]),
            vec![],
        ),
        (
            addresses([2]),
            addresses([1]),
            vec![],
            addresses([2]),
            vec![],
        ),
        (vec![], addresses([1]), vec![], vec![], vec![]),
        (
            addresses([1, 2]),
            addresses([1]),
            addresses([2]),
            addresses([1]),
            addresses([2]),
        ),
        (
            addresses(0..=most),
            addresses([most]),
            vec![],
            addresses((0..most - 1).chain([most])),
            addresses([most - 1]),
        ),
    ];
    for (found, had, taken, own, others) in cases {
        let said = format!("{found:?} after {had:?}");
        let divided = divide(found.into(), &had, |address| !taken.contains(address));
        let more = 0;
        assert_eq!(divided, Divided { own, others, more }, "{said}");
    }
}

#[test]
fn of_too_many_addresses_some_are_kept_and_the_others_counted() {
    let many = 70_000;
    let all: Vec<IpAddr> = (0..many)
        .map(|last| Ipv4Addr::from_bits(0x0a00_0000 + last).into())
        .collect();
    let found = Found::from(all);
    let read = found.addresses.len();
    assert_eq!((read, found.more), (1_024, many as usize - read));
    let divided = divide(found, &[], |_| true);
    let most = u8::try_from(MAX_ADDRESSES).unwrap();
    assert_eq!(divided.own, addresses(0..most));
    assert_eq!(divided.others, addresses(most..2 * most));
    assert_eq!(divided.more, many as usize - 2 * MAX_ADDRESSES);
}

#[test]
fn a_pod_waits_longer_the_longer_its_addresses_take() {
    let now = Instant::now();
    assert!(not_before(now) >= now + READ_EVERY);
    let Some(long_ago) = now.checked_sub(Duration::from_secs(1)) else {
        return;
    };
    assert!(not_before(long_ago) >= now + Duration::from_secs(10));
}
