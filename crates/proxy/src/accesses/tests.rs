use super::*;

fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("test", name).expect("a name")
}

fn ip(last: u8) -> IpAddr {
    [10, 96, 0, last].into()
}

#[test]
fn an_access_is_told_at_once_and_again_after_a_while() {
    let (sink, mut told) = AccessSink::new();
    let accesses = Accesses::default();
    let (shop, cart) = (account("shop"), account("cart"));
    for (caller, address, now, is_told) in [
        (&shop, ip(1), 0, true),
        (&shop, ip(1), AGAIN_MS - 1, false),
        (&cart, ip(1), AGAIN_MS - 1, true),
        (&shop, ip(2), AGAIN_MS - 1, true),
        (&shop, ip(1), AGAIN_MS, true),
        (&shop, ip(1), AGAIN_MS + 1, false),
    ] {
        accesses.note(Some(&sink), (caller, address), now);
        let expected = is_told.then(|| Access {
            caller: caller.clone(),
            address,
        });
        assert_eq!(told.try_recv().ok(), expected, "{caller} {address} {now}");
    }
    accesses.note(None, (&shop, ip(3)), 0);
    assert!(told.try_recv().is_err());
}

#[test]
fn what_is_remembered_and_what_waits_is_bounded() {
    let (sink, mut told) = AccessSink::new();
    let accesses = Accesses::default();
    let shop = account("shop");
    for number in 0..3 * MAX_TOLD as u32 {
        let address = IpAddr::V4(number.into());
        accesses.note(Some(&sink), (&shop, address), 0);
        assert!(accesses.told.borrow().count <= MAX_TOLD);
    }
    let waiting = std::iter::from_fn(|| told.try_recv().ok()).count();
    assert_eq!(waiting, MAX_TOLD);
    accesses.note(Some(&sink), (&shop, ip(1)), AGAIN_MS);
    assert!(told.try_recv().is_ok());
    drop(told);
    accesses.note(Some(&sink), (&shop, ip(1)), 0);
}
