use super::*;

fn pod(permits: &Permits, name: &str) -> Arc<Share> {
    let workload = WorkloadName::new("shop", name).unwrap();
    permits.share(ShareOwner::Caller(workload))
}

/// Takes as many permits as possible.
fn flood(share: &Arc<Share>) -> Vec<Permit> {
    std::iter::from_fn(|| share.take().ok()).collect()
}

#[test]
fn there_are_as_many_as_the_bound_and_each_comes_back() {
    let any = Permits::new(2, None, None).share(ShareOwner::Any);
    let first = any.take();
    let second = any.take();
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(any.take().unwrap_err(), PermitRefusal::All);
    drop(first);
    let third = any.take();
    assert!(third.is_ok() && any.take().is_err());
}

#[test]
fn a_source_that_takes_all_it_can_leaves_as_much_and_each_other_finds_a_few() {
    for bound in [64, 1_000, 8_192, 100_000] {
        let permits = Permits::new(bound, None, None);
        let first = pod(&permits, "first");
        let held = flood(&first);
        let left = bound - held.len();
        assert!(held.len() >= bound / 3, "{bound}: {}", held.len());
        assert!(left > held.len(), "{bound}: {left}");
        assert_eq!(first.take().unwrap_err(), PermitRefusal::Share);
        let mut all = vec![held];
        all.extend((1..10).map(|n| flood(&pod(&permits, &format!("p{n}")))));
        // Ten sources take what they can; a new one still gets the few that are reserved.
        let few = (bound / FEW).clamp(1, MOST_FEW);
        let late = flood(&pod(&permits, "late"));
        assert!(
            late.len() >= few.min(bound / KEPT),
            "{bound}: {}",
            late.len()
        );
        all.clear();
        drop(late);
        assert_eq!(permits.all.left.load(Ordering::Relaxed), bound);
    }
}

#[test]
fn what_comes_back_is_there_for_a_source_that_was_refused() {
    let permits = Permits::new(1_000, None, None);
    let (first, second) = (pod(&permits, "first"), pod(&permits, "second"));
    let held = flood(&first);
    let others = flood(&second);
    assert!(first.take().is_err());
    drop(others);
    assert!(first.take().is_err(), "it holds as many as are free");
    drop(held);
    assert!(!flood(&second).is_empty());
}

#[test]
fn a_fixed_share_is_one() {
    let permits = Permits::new(800, Some(10), None);
    assert_eq!(flood(&pod(&permits, "first")).len(), 10);
    let permits = Permits::new(800, Some(usize::MAX), None);
    let most = flood(&pod(&permits, "first"));
    assert_eq!(most.len(), 700, "but for what is kept for those with few");
    assert_eq!(flood(&pod(&permits, "second")).len(), 12);
}

#[test]
fn a_claim_counts_to_a_source_and_takes_no_permit() {
    let permits = Permits::new(80, None, None);
    let door = permits.share(ShareOwner::Any);
    let called = pod(&permits, "called");
    let mut held = Vec::new();
    while let Ok(permit) = door.take() {
        let Some(share_permit) = called.share_permit() else {
            break;
        };
        held.push((permit, share_permit));
    }
    assert!((30..=40).contains(&held.len()), "{}", held.len());
    drop(held);
    assert_eq!(called.held.load(Ordering::Relaxed), 0);
    assert_eq!(permits.all.left.load(Ordering::Relaxed), 80);
}

#[test]
fn no_source_takes_what_is_not_there() {
    for bound in [1, 2, 7, 8, 9, 64] {
        for fixed in [None, Some(1), Some(usize::MAX)] {
            assert!(!may_take(bound, 0, 0, fixed));
            assert!(may_take(bound, bound, 0, fixed), "{bound} {fixed:?}");
        }
    }
}

#[test]
fn a_caller_has_one_share_by_whichever_listener() {
    let permits = Permits::new(800, Some(3), None);
    let workload = WorkloadName::new("shop", "web").unwrap();
    let (first, second) = (permits.caller(&workload), permits.caller(&workload));
    let held = flood(&first);
    assert_eq!(held.len(), 3);
    assert_eq!(second.take().unwrap_err(), PermitRefusal::Share);
    // Without a listener, the share exists as long as its connections do.
    drop((first, second));
    assert!(permits.caller(&workload).take().is_err());
    drop(held);
    assert_eq!(flood(&permits.caller(&workload)).len(), 3);
}

#[test]
fn a_lazy_caller_leaves_most_of_its_gateways_share_to_the_others() {
    let account = |name: &str| ServiceAccountName::new("shop", name).unwrap();
    let gateway = |permits: &Permits| {
        permits.share(ShareOwner::Nodes(
            WorkloadName::new("shop", "gateway").unwrap(),
        ))
    };
    for (bound, fixed) in [
        (8_192, None),
        (800, None),
        (8_192, Some(400)),
        (8_192, Some(8)),
    ] {
        let permits = Permits::new(bound, fixed, None);
        let (any, gateway) = (permits.share(ShareOwner::Any), gateway(&permits));
        let connect = |name: &str| {
            let of_caller = gateway.of_lazy(&account(name)).share_permit()?;
            Some((any.take().ok()?, of_caller, gateway.share_permit()?))
        };
        let held: Vec<_> = std::iter::from_fn(|| connect("greedy")).collect();
        let room = gateway.room().1;
        assert!(!held.is_empty(), "{bound} {fixed:?}");
        assert!(
            held.len() <= room,
            "{bound} {fixed:?}: {} of {room}",
            held.len()
        );
        assert!(connect("other").is_some());
        drop(held);
        assert_eq!(gateway.held.load(Ordering::Relaxed), 0);
    }
}
