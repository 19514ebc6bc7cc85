use std::task::Waker;
use std::time::Duration;

use heddle_model::{AppProtocol, Balancer, Balancing, Endpoint};

use super::*;
use crate::balance::FULL_SHARE;
use crate::rooms::{Joined, Wants, join};

fn address(number: u8) -> SocketAddr {
    ([127, 0, 0, number], 80).into()
}

/// A Service with these endpoints, and the request limit of each.
fn service(endpoints: &[(u8, Option<u32>)], balancing: Balancing) -> Service {
    let endpoint = |&(number, max_requests): &(u8, Option<u32>)| Endpoint {
        address: address(number),
        weight: 1,
        max_requests,
        workload: None,
        remote_workload: None,
        account: None,
        node: None,
        has_envoy: false,
    };
    Service {
        name: ServiceName::parse("a/s").unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing,
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: endpoints.iter().map(endpoint).collect(),
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

fn kept(keeper: &mut Keeper, service: &Service, after_s: u64) -> Option<Arc<Rooms>> {
    let port = &service.ports[0];
    let endpoints = port.endpoints.iter();
    let addresses: Vec<SocketAddr> = endpoints.map(|endpoint| endpoint.address).collect();
    let now = keeper.epoch + Duration::from_secs(after_s);
    keeper.rooms(service, port, &addresses, now)
}

fn slow_start() -> Balancing {
    Balancing {
        slow_start_ms: 10_000,
        ..Balancing::default()
    }
}

#[test]
fn a_service_that_says_nothing_has_no_rooms() {
    let mut keeper = Keeper::new(Instant::now());
    let plain = service(&[(1, None)], Balancing::default());
    assert!(kept(&mut keeper, &plain, 0).is_none());
    assert!(keeper.ports.is_empty());
    assert!(
        kept(
            &mut keeper,
            &service(&[(1, Some(1))], Balancing::default()),
            0
        )
        .is_some()
    );
    assert!(kept(&mut keeper, &plain, 0).is_none());
    assert!(keeper.ports.is_empty());
}

#[test]
fn what_is_taken_stays_taken_and_what_changes_nothing_is_the_same() {
    let mut keeper = Keeper::new(Instant::now());
    let before = service(&[(1, Some(1)), (2, None)], Balancing::default());
    let rooms = kept(&mut keeper, &before, 0).unwrap();
    let permit = rooms.at(0).unwrap().take().unwrap();
    let again = kept(&mut keeper, &before, 1).unwrap();
    assert!(Arc::ptr_eq(&rooms, &again));
    // While the endpoint is removed, a request still uses it.
    let without = kept(
        &mut keeper,
        &service(&[(2, Some(5))], Balancing::default()),
        2,
    )
    .unwrap();
    assert_eq!(without.each.len(), 1);
    let back = kept(&mut keeper, &before, 3).unwrap();
    assert!(back.at(0).unwrap().take().is_none());
    drop(permit);
    assert!(back.at(0).unwrap().take().is_some());
    // A removed endpoint without requests is forgotten.
    kept(
        &mut keeper,
        &service(&[(2, Some(5))], Balancing::default()),
        4,
    )
    .unwrap();
    assert!(keeper.ports.values().all(|kept| kept.rooms.len() == 1));
    keeper.forget(|_, _| false);
    assert!(keeper.ports.is_empty());
}

#[test]
fn a_request_that_waits_gets_what_a_higher_limit_gives() {
    let mut keeper = Keeper::new(Instant::now());
    let rooms = kept(
        &mut keeper,
        &service(&[(1, Some(1))], Balancing::default()),
        0,
    )
    .unwrap();
    let _permit = rooms.at(0).unwrap().take().unwrap();
    let Joined::Waiting(waiting) = join(Wants::Any(rooms), Waker::noop(), 1) else {
        panic!("it is full");
    };
    kept(
        &mut keeper,
        &service(&[(1, Some(2))], Balancing::default()),
        1,
    )
    .unwrap();
    assert!(waiting.take().is_some());
}

#[test]
fn an_endpoint_that_is_new_begins_slowly_and_those_of_the_beginning_do_not() {
    let mut keeper = Keeper::new(Instant::now());
    let share = |rooms: &Rooms, index: usize, s: u64| {
        let now = rooms.ms(rooms.epoch + Duration::from_secs(s));
        rooms.standing(index, now).unwrap().share
    };
    let rooms = kept(&mut keeper, &service(&[(1, None)], slow_start()), 5).unwrap();
    assert_eq!(share(&rooms, 0, 5), FULL_SHARE);
    let rooms = kept(
        &mut keeper,
        &service(&[(1, None), (2, None)], slow_start()),
        20,
    )
    .unwrap();
    assert_eq!(share(&rooms, 0, 20), FULL_SHARE);
    assert_eq!(share(&rooms, 1, 25), FULL_SHARE / 2);
    assert_eq!(share(&rooms, 1, 30), FULL_SHARE);
    // An endpoint that was removed and comes back starts slowly, too.
    kept(&mut keeper, &service(&[(2, None)], slow_start()), 40).unwrap();
    let rooms = kept(
        &mut keeper,
        &service(&[(1, None), (2, None)], slow_start()),
        50,
    )
    .unwrap();
    assert_eq!(share(&rooms, 0, 55), FULL_SHARE / 2);
    assert_eq!(share(&rooms, 1, 50), FULL_SHARE);
}
