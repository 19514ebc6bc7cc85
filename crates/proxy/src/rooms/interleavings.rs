//! Every interleaving of requests that leave an endpoint, wait for it and give up: no request is forgotten, and no
//! permit is given twice or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::thread::spawn;

use super::testing::rooms;
use super::*;

/// Limit of preemptions, at any point, in each interleaving.
const PREEMPTIONS: usize = 3;

fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(test);
}

#[derive(Default)]
struct CountedWakes(AtomicUsize);

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A request that waits.
struct Waiter {
    bell: Arc<CountedWakes>,
    joined: Joined,
}

impl Waiter {
    fn of(rooms: &Arc<Rooms>) -> Waiter {
        let bell = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&bell));
        let joined = join(Wants::Any(Arc::clone(rooms)), &waker, 1);
        Waiter { bell, joined }
    }

    /// The permit that it must have by now, and must have been woken for.
    fn permit(self) -> RequestPermit {
        match self.joined {
            Joined::Permitted(permit) => permit,
            Joined::Waiting(waiting) => {
                assert!(self.bell.0.load(Ordering::SeqCst) > 0, "it was not woken");
                waiting.take().expect("it was forgotten")
            }
            Joined::Full => panic!("the line is not that long"),
        }
    }
}

/// No request waits, and every permit is free.
fn is_empty(rooms: &Rooms) {
    assert!(!rooms.has_line(), "a request waits");
    assert!(rooms.each.iter().all(|room| !room.is_used()), "one is lost");
}

#[test]
fn a_request_that_comes_while_a_permit_is_given_back_gets_it() {
    model(|| {
        let rooms = rooms(&[1], 2);
        let permit = rooms.each[0].take().unwrap();
        let leaves = spawn(move || drop(permit));
        let waiter = Waiter::of(&rooms);
        leaves.join().unwrap();
        drop(waiter.permit());
        is_empty(&rooms);
    });
}

#[test]
fn a_permit_that_is_given_back_while_the_first_gives_up_goes_to_the_next() {
    model(|| {
        let rooms = rooms(&[1], 2);
        let permit = rooms.each[0].take().unwrap();
        let [first, second] = [0, 1].map(|_| Waiter::of(&rooms));
        let leaves = spawn(move || drop(permit));
        let gives_up = spawn(move || drop(first));
        leaves.join().unwrap();
        gives_up.join().unwrap();
        drop(second.permit());
        is_empty(&rooms);
    });
}

#[test]
fn two_permits_that_are_given_back_go_to_two_that_wait() {
    model(|| {
        let rooms = rooms(&[2], 2);
        let [one, other] = [0, 1].map(|_| rooms.each[0].take().unwrap());
        let first = Waiter::of(&rooms);
        let leave = [one, other].map(|permit| spawn(move || drop(permit)));
        let second = Waiter::of(&rooms);
        for leaves in leave {
            leaves.join().unwrap();
        }
        let permits = [first.permit(), second.permit()];
        assert!(rooms.each[0].take().is_none(), "one is given twice");
        drop(permits);
        is_empty(&rooms);
    });
}

#[test]
fn no_permit_is_taken_from_under_a_request_that_waits() {
    model(|| {
        let rooms = rooms(&[1], 2);
        let permit = rooms.each[0].take().unwrap();
        let theirs = Arc::clone(&rooms);
        // A new request checks whether others wait, and tries to take a permit if not.
        let passes = spawn(move || {
            let free = !theirs.has_line();
            drop(free.then(|| theirs.each[0].take()));
        });
        let leaves = spawn(move || drop(permit));
        let waiter = Waiter::of(&rooms);
        leaves.join().unwrap();
        passes.join().unwrap();
        drop(waiter.permit());
        is_empty(&rooms);
    });
}

#[test]
fn a_limit_that_rises_while_one_gives_up_is_told_to_the_next() {
    model(|| {
        let rooms = rooms(&[0], 2);
        let [first, second] = [0, 1].map(|_| Waiter::of(&rooms));
        let gives_up = spawn(move || drop(first));
        rooms.each[0].limit(1);
        rooms.serve(1);
        gives_up.join().unwrap();
        drop(second.permit());
        is_empty(&rooms);
    });
}
