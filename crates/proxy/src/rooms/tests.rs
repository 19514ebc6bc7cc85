use std::sync::atomic::AtomicU64;
use std::task::{Wake, Waker};
use std::thread;

use super::testing::rooms;
use super::*;

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn any(rooms: &Arc<Rooms>, waker: &Waker) -> Joined {
    join(Wants::Any(Arc::clone(rooms)), waker, 1)
}

fn waits(joined: Joined) -> LinePlace {
    match joined {
        Joined::Waiting(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_permit_goes_to_the_first_that_waits() {
    let rooms = rooms(&[1], 2);
    let permit = rooms.each[0].take().unwrap();
    assert!(rooms.each[0].take().is_none());
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let first = waits(any(&rooms, &waker));
    let second = waits(any(&rooms, &waker));
    assert!(matches!(any(&rooms, &waker), Joined::Full));
    assert!(first.take().is_none() && rooms.has_line());
    drop(permit);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(second.take().is_none());
    let permit = first.take().expect("it is the first's turn");
    drop(first);
    drop(permit);
    assert!(second.take().is_some());
}

#[test]
fn a_permit_that_is_not_fetched_goes_on() {
    let rooms = rooms(&[1], 2);
    let permit = rooms.each[0].take().unwrap();
    let waker = Waker::noop();
    let first = waits(any(&rooms, waker));
    let second = waits(any(&rooms, waker));
    drop(permit);
    drop(first);
    assert!(second.take().is_some());
    drop(second);
    assert!(!rooms.has_line());
    assert!(!rooms.each[0].is_used());
}

#[test]
fn one_that_wants_another_endpoint_is_passed_over() {
    let rooms = rooms(&[1, 1], 4);
    let [one, other] = [0, 1].map(|i| rooms.each[i].take().unwrap());
    let waker = Waker::noop();
    let picky = waits(join(Wants::One(Arc::clone(&rooms.each[1])), waker, 1));
    let easy = waits(any(&rooms, waker));
    drop(one);
    assert!(picky.take().is_none());
    let permit = easy.take().unwrap();
    assert!(Arc::ptr_eq(permit.room(), &rooms.each[0]));
    // A request that waits for a busy endpoint does not keep others from a free one.
    drop(permit);
    assert!(matches!(any(&rooms, waker), Joined::Permitted(_)));
    drop(other);
    assert!(picky.take().is_some());
}

#[test]
fn what_is_shut_is_not_handed_over_until_it_is_open_or_all_are_shut() {
    let rooms = rooms(&[1, 1], 4);
    let [shut, open] = [0, 1].map(|i| rooms.each[i].take().unwrap());
    rooms.each[0].shut(100);
    let waiting = waits(any(&rooms, Waker::noop()));
    drop(shut);
    assert!(waiting.take().is_none());
    rooms.serve(99);
    assert!(waiting.take().is_none());
    rooms.serve(100);
    let shut = waiting.take().expect("it is open again");
    drop(waiting);
    rooms.each.iter().for_each(|room| room.shut(200));
    let waiting = waits(any(&rooms, Waker::noop()));
    drop(open);
    assert!(waiting.take().is_some(), "one is as good as the other");
    drop(shut);
}

#[test]
fn one_request_that_waits_looks_for_all() {
    let rooms = rooms(&[1, 1], 4);
    let [shut, _open] = [0, 1].map(|i| rooms.each[i].take().unwrap());
    rooms.each[0].shut(100);
    let waiting = waits(any(&rooms, Waker::noop()));
    drop(shut);
    rooms.look(99);
    // The same check by a thousand other requests is skipped at that moment.
    rooms.look(100);
    assert!(waiting.take().is_none());
    rooms.look(99 + LOOK_MS);
    assert!(waiting.take().is_some(), "it is open again");
}

/// An endpoint that is shut has free permits all the time, but no request that can choose wants one: serving it would
/// check all waiting requests in vain.
#[test]
fn a_look_passes_over_what_is_shut_unless_all_are() {
    let rooms = rooms(&[1, 1], 4);
    let _taken = [0, 1].map(|i| rooms.each[i].take().unwrap());
    rooms.each[0].shut(1_000);
    let one = Wants::One(Arc::clone(&rooms.each[0]));
    let waiting = waits(join(one, Waker::noop(), 1));
    rooms.each[0].limit(2);
    rooms.look(50);
    assert!(waiting.take().is_none());
    // A request that cannot choose gets a permit as well when limits rise.
    rooms.serve(50);
    let permit = waiting.take().unwrap();
    drop(waiting);
    let waiting = waits(any(&rooms, Waker::noop()));
    drop(permit);
    rooms.each[1].shut(1_000);
    rooms.look(200);
    assert!(waiting.take().is_some(), "one is as good as the other");
}

/// A permit was handed over just before the waiting request learns that the endpoint is gone.
#[test]
fn a_permit_at_an_endpoint_that_is_gone_is_given_back_and_the_wait_goes_on() {
    let before = rooms(&[1, 1], 4);
    let [stays, goes] = [0, 1].map(|i| before.each[i].take().unwrap());
    let first = waits(any(&before, Waker::noop()));
    let second = waits(any(&before, Waker::noop()));
    drop(goes);
    let after = Arc::new(Rooms {
        each: [Arc::clone(&before.each[0])].into(),
        line: Arc::clone(&before.line),
        ejection: None,
        slow_start_ms: 0,
        epoch: before.epoch,
    });
    let wants = Wants::Any(Arc::clone(&after));
    assert!(second.change(&wants, 1));
    assert!(first.change(&wants, 1));
    assert!(first.take().is_none() && !before.each[1].is_used());
    // It has also kept its place in the line.
    drop(stays);
    assert!(second.take().is_none());
    let permit = first.take().unwrap();
    assert!(Arc::ptr_eq(permit.room(), &after.each[0]));
    drop((permit, first));
    assert!(second.take().is_some());
    drop(second);
    assert!(!after.has_line());
}

#[test]
fn a_request_that_waits_may_be_told_of_other_endpoints_and_keeps_its_place() {
    let before = rooms(&[1], 4);
    let _taken = before.each[0].take().unwrap();
    let first = waits(any(&before, Waker::noop()));
    let line = &before.line;
    let one_more = Room::new(([127, 0, 0, 1], 9).into(), line, 0);
    one_more.limit(1);
    let after = Arc::new(Rooms {
        each: [Arc::clone(&before.each[0]), Arc::new(one_more)].into(),
        line: Arc::clone(line),
        ejection: None,
        slow_start_ms: 0,
        epoch: before.epoch,
    });
    assert!(first.change(&Wants::Any(Arc::clone(&after)), 1));
    assert!(first.take().is_some());
    let stranger = rooms(&[1], 4);
    assert!(!first.change(&Wants::Any(stranger), 1));
}

/// Threads that take, wait and leave as fast as they can: no request is forgotten, and no endpoint gets more requests
/// than its limit.
#[test]
fn no_request_is_forgotten_between_threads() {
    const ROUNDS: u64 = 20_000;
    let rooms = rooms(&[1, 2], 64);
    let together: Arc<[AtomicU64; 2]> = Arc::default();
    let threads = (0..4u64).map(|number| {
        let (rooms, together) = (Arc::clone(&rooms), Arc::clone(&together));
        thread::spawn(move || {
            let current = thread::current();
            let waker = Waker::from(Arc::new(Unpark(current)));
            for round in 0..ROUNDS {
                let quick = (!rooms.has_line())
                    .then(|| rooms.each[((round + number) % 2) as usize].take())
                    .flatten();
                let permit = quick.unwrap_or_else(|| match any(&rooms, &waker) {
                    Joined::Permitted(permit) => permit,
                    Joined::Full => panic!("there are four"),
                    // A request that gives up may have received a permit at that moment.
                    Joined::Waiting(waiting) if round % 7 == number => {
                        drop(waiting);
                        waits_for_any(&rooms, &waker)
                    }
                    Joined::Waiting(waiting) => wait(&waiting),
                });
                let at = usize::from(Arc::ptr_eq(permit.room(), &rooms.each[1]));
                let here = together[at].fetch_add(1, Ordering::SeqCst);
                assert!(here <= at as u64, "{here} are at {at} already");
                together[at].fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(!rooms.has_line());
    assert!(rooms.each.iter().all(|room| !room.is_used()));
}

fn waits_for_any(rooms: &Arc<Rooms>, waker: &Waker) -> RequestPermit {
    match any(rooms, waker) {
        Joined::Permitted(permit) => permit,
        Joined::Waiting(waiting) => wait(&waiting),
        Joined::Full => panic!("there are four"),
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits like a task. A request that is forgotten shows as a timeout.
fn wait(waiting: &LinePlace) -> RequestPermit {
    let patience = Instant::now() + std::time::Duration::from_secs(20);
    loop {
        if let Some(permit) = waiting.take() {
            return permit;
        }
        assert!(Instant::now() < patience, "it was forgotten");
        thread::park_timeout(std::time::Duration::from_secs(1));
    }
}
