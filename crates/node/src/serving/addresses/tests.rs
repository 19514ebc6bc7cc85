use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use heddle_model::{ServiceName, WorkloadName};
use proptest::prelude::*;

use super::{Addresses, BASE, HOST_BITS, Slot};

static NONE: &BTreeSet<Ipv4Addr> = &BTreeSet::new();

fn service(number: u32) -> ServiceName {
    ServiceName::new("shop", &format!("s{number}")).expect("a name")
}

fn workload(number: u32) -> WorkloadName {
    WorkloadName::new("shop", &format!("w{number}")).expect("a name")
}

fn any_caller(number: u32) -> Slot {
    Slot::Service {
        service: service(number),
        caller: None,
    }
}

fn slot() -> impl Strategy<Value = Slot> {
    prop_oneof![
        (0..20u32).prop_map(any_caller),
        (0..20u32, 0..20u32).prop_map(|(s, w)| Slot::Service {
            service: service(s),
            caller: Some(workload(w))
        }),
        (0..20u32).prop_map(|w| Slot::ForwardProxy {
            caller: workload(w)
        }),
    ]
}

fn slots() -> impl Strategy<Value = BTreeSet<Slot>> {
    proptest::collection::btree_set(slot(), 0..60)
}

fn all(addresses: &Addresses, of: &BTreeSet<Slot>) -> BTreeMap<Slot, Ipv4Addr> {
    let address = |slot: &Slot| addresses.get(slot).expect("the range is large");
    of.iter()
        .map(|slot| (slot.clone(), address(slot)))
        .collect()
}

fn fresh(of: &BTreeSet<Slot>) -> BTreeMap<Slot, Ipv4Addr> {
    let mut addresses = Addresses::default();
    addresses.update(of, || NONE);
    all(&addresses, of)
}

proptest! {
    #[test]
    fn addresses_are_distinct_within_the_range_and_the_same_every_time(wanted in slots()) {
        let first = fresh(&wanted);
        prop_assert_eq!(&first, &fresh(&wanted));
        let distinct: BTreeSet<_> = first.values().collect();
        prop_assert_eq!(distinct.len(), wanted.len());
        for address in first.values() {
            prop_assert_eq!(u32::from(*address) >> HOST_BITS, BASE >> HOST_BITS);
            prop_assert!(!matches!(address.octets()[3], 0 | 255));
        }
    }

    #[test]
    fn who_stays_keeps_its_address(steps in proptest::collection::vec(slots(), 1..8)) {
        let mut addresses = Addresses::default();
        let mut before = BTreeMap::new();
        for wanted in steps {
            addresses.update(&wanted, || NONE);
            let now = all(&addresses, &wanted);
            for (slot, address) in &now {
                prop_assert!(before.get(slot).is_none_or(|was| was == address));
            }
            let distinct: BTreeSet<_> = now.values().collect();
            prop_assert_eq!(distinct.len(), now.len());
            before = now;
        }
    }

    #[test]
    fn an_address_in_use_elsewhere_is_left_alone(wanted in slots(), moved in slot(), moves in 1..5usize) {
        let wanted: BTreeSet<Slot> = wanted.into_iter().chain([moved.clone()]).collect();
        let mut addresses = Addresses::default();
        addresses.update(&wanted, || NONE);
        let mut left = BTreeSet::new();
        for _ in 0..moves {
            left.extend(addresses.get(&moved));
            addresses.move_away(&moved, &BTreeSet::new());
        }
        let now = all(&addresses, &wanted);
        prop_assert!(now.values().all(|address| !left.contains(address)));
        let distinct: BTreeSet<_> = now.values().collect();
        prop_assert_eq!(distinct.len(), now.len());
    }

    #[test]
    fn a_workloads_own_address_is_not_given_away(wanted in slots()) {
        let reserved: BTreeSet<Ipv4Addr> = fresh(&wanted).into_values().collect();
        let mut addresses = Addresses::default();
        addresses.update(&wanted, || &reserved);
        prop_assert!(all(&addresses, &wanted).values().all(|address| !reserved.contains(address)));
    }
}

#[test]
fn addresses_are_part_of_the_interface() {
    // Users write these addresses down: they must not change between releases.
    let slots = [
        any_caller(1),
        Slot::Service {
            service: service(1),
            caller: Some(workload(1)),
        },
        Slot::ForwardProxy {
            caller: workload(1),
        },
    ];
    let addresses = fresh(&slots.iter().cloned().collect());
    let shown: Vec<String> = slots
        .iter()
        .map(|slot| addresses[slot].to_string())
        .collect();
    assert_eq!(shown, ["127.105.1.94", "127.119.177.156", "127.73.149.12"]);
}

#[test]
fn a_thousand_services_hardly_collide() {
    let wanted: BTreeSet<Slot> = (0..1_000).map(any_caller).collect();
    let together = fresh(&wanted);
    let moved = wanted
        .iter()
        .filter(|slot| fresh(&BTreeSet::from([(*slot).clone()]))[*slot] != together[*slot]);
    assert!(moved.count() < 5, "the hash spreads badly");
}

/// Addresses are the same on every machine, so the page must show those that a reader gets.
#[test]
fn the_page_shows_the_addresses_that_its_example_gets() {
    const PAGE: &str = include_str!("../../../../../docs/operations.md");
    let service = ServiceName::new("demo", "self").expect("a name");
    let caller = WorkloadName::new("demo", "self").expect("a name");
    let slots = BTreeSet::from([
        Slot::Service {
            service: service.clone(),
            caller: None,
        },
        Slot::Service {
            service,
            caller: Some(caller.clone()),
        },
        Slot::ForwardProxy { caller },
    ]);
    for (slot, address) in fresh(&slots) {
        assert!(PAGE.contains(&format!(" {address}:")), "{slot}: {address}");
    }
}
