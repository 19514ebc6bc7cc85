use super::*;

fn entry(expires: u64) -> DenyEntry {
    DenyEntry {
        reason: "its disk was stolen".to_owned(),
        expires,
    }
}

#[test]
fn what_is_denied_stays_denied_until_it_expires() {
    let place = Place::new();
    let authority = place.open();
    let (cart, web) = (workload("shop", "cart"), workload("shop", "web"));
    let issued = authority.issue(&web, &request(), at(NOW)).unwrap();
    let by_id = Denied::Identity(cart.clone());
    let by_serial = Denied::Serial(issued.serial);
    authority
        .deny(by_id.clone(), entry(NOW + DAY), at(NOW))
        .unwrap();
    authority
        .deny(by_serial, entry(issued.not_after), at(NOW))
        .unwrap();
    drop(authority);

    let authority = place.open();
    let list = authority.trust().denied;
    assert_eq!(list.generation, 2);
    assert_eq!(list.entries().len(), 2);
    for (id, serial, time, denied) in [
        (&cart, None, NOW, true),
        (&cart, None, NOW + DAY, false),
        (&web, None, NOW, false),
        (&web, Some(issued.serial), NOW, true),
        (&web, Serial::parse(&"0f".repeat(16)), NOW, false),
    ] {
        let found = list.denies(id, serial, at(time)).is_some();
        assert_eq!(found, denied, "{id} {serial:?} {time}");
    }
    assert!(list.identities(at(NOW + DAY - 1)).eq([&cart]));
    assert_eq!(list.identities(at(NOW + DAY)).count(), 0);
    assert!(authority.allow(&by_id, at(NOW)).unwrap());
    assert!(!authority.allow(&by_id, at(NOW)).unwrap());
    let list = authority.trust().denied;
    assert_eq!(list.generation, 3);
    assert!(list.denies(&cart, None, at(NOW)).is_none());
}

#[test]
fn who_is_denied_neither_asks_nor_is_asked_for() {
    let place = Place::new();
    let authority = place.open();
    let (n1, cart) = (
        SpiffeId::node(domain(), node("n1")),
        workload("shop", "cart"),
    );
    let serial = Serial::parse(&"0f".repeat(16));
    let asker = Asker {
        id: n1.clone(),
        serial,
    };
    for (what, refusal) in [
        (Denied::Identity(n1), IssuanceRefusal::AskerDenied),
        (
            Denied::Serial(serial.unwrap()),
            IssuanceRefusal::AskerDenied,
        ),
        (Denied::Identity(cart.clone()), IssuanceRefusal::Denied),
    ] {
        authority
            .deny(what.clone(), entry(NOW + DAY), at(NOW))
            .unwrap();
        let denied = authority.trust().denied;
        let verdict = may_issue(Some(&asker), &cart, &domain(), &denied, at(NOW), |_, _| {
            true
        });
        assert_eq!(verdict, Err(refusal));
        authority.allow(&what, at(NOW)).unwrap();
    }
}

#[test]
fn entries_have_bounds() {
    let place = Place::new();
    let authority = place.open();
    let what = || Denied::Identity(workload("shop", "cart"));
    let long = DenyEntry {
        reason: "x".repeat(MAX_REASON_BYTES + 1),
        expires: NOW + DAY,
    };
    let control = Denied::Identity(SpiffeId::control(domain()));
    assert!(matches!(
        authority.deny(what(), long, at(NOW)),
        Err(DenyError::Reason)
    ));
    for expires in [NOW, NOW + MAX_DENY_LIFE.as_secs() + 1] {
        let denied = authority.deny(what(), entry(expires), at(NOW));
        assert!(matches!(denied, Err(DenyError::Life)));
    }
    assert!(matches!(
        authority.deny(control, entry(NOW + DAY), at(NOW)),
        Err(DenyError::Control)
    ));
    assert_eq!(authority.trust().denied.generation, 0);
}

#[test]
fn the_list_is_bounded_and_expired_entries_make_room() {
    let mut list = DenyList::default();
    let serial = |number: usize| {
        let bytes = u64::try_from(number + 1).unwrap().to_be_bytes();
        Denied::Serial(Serial::from_be_bytes(&bytes).unwrap())
    };
    // Filled without going through `with`, which copies.
    for number in 0..MAX_DENIED {
        let expires = if number == 0 { NOW + 1 } else { NOW + DAY };
        list.insert_for_test(serial(number), entry(expires));
    }
    let more = |now| list.with(serial(MAX_DENIED), entry(NOW + DAY), at(now));
    assert!(matches!(more(NOW), Err(DenyError::Full)));
    assert!(list.with(serial(5), entry(NOW + DAY), at(NOW)).is_ok());
    assert_eq!(more(NOW + 1).unwrap().entries().len(), MAX_DENIED);
}

#[test]
fn those_who_watch_hear_of_each_change() {
    let place = Place::new();
    let authority = place.open();
    let mut watch = authority.watch_trust();
    assert!(!watch.has_changed().unwrap());
    let what = Denied::Identity(workload("shop", "cart"));
    authority.deny(what, entry(NOW + DAY), at(NOW)).unwrap();
    assert!(watch.has_changed().unwrap());
    assert_eq!(watch.borrow_and_update().denied.generation, 1);
    authority.begin_rotation(&NextRoot::Make, at(NOW)).unwrap();
    assert_eq!(watch.borrow_and_update().bundle.generation, 2);
    // The bundle is the same, whichever root signs.
    authority.switch_rotation(&[], false, at(NOW)).unwrap();
    assert!(!watch.has_changed().unwrap());
}
