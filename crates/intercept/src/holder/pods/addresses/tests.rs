use std::net::Ipv4Addr;

use super::*;

fn addresses(last: impl IntoIterator<Item = u8>) -> Vec<IpAddr> {
    let all = last.into_iter().map(|last| Ipv4Addr::new(10, 0, 0, last));
    all.map(IpAddr::from).collect()
}

#[test]
fn what_is_another_pods_is_not_ours_and_what_we_had_we_keep() {
    let most = u8::try_from(MAX_ADDRESSES).unwrap();
    // Found, had, another's: own, others.
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
        let divided = divide(found, &had, |address| !taken.contains(address));
        assert_eq!(divided, (own, others), "{said}");
    }
}
