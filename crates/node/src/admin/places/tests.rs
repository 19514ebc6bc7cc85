use std::time::{Duration, Instant};

use super::{ASKS_WITHIN, MOST, Places, TAKES_WITHIN};

/// All places, taken by these peers in turn.
fn full(peers: &[u32], now: Instant) -> Places<u32> {
    let mut places = Places::new();
    for peer in peers.iter().cycle().take(MOST) {
        assert_eq!(places.enter(*peer, now).unwrap().instead, None);
    }
    places
}

fn instead(places: &mut Places<u32>, peer: u32, now: Instant) -> Option<u64> {
    places.enter(peer, now)?.instead
}

#[test]
fn of_the_peer_that_holds_most_half_requests_the_oldest_gives_way_to_others_at_once() {
    let now = Instant::now();
    // Two of three requests are of peer 1.
    let mut places = full(&[2, 1, 1], now);
    assert_eq!(instead(&mut places, 3, now), Some(1));
    assert_eq!(instead(&mut places, 4, now), Some(2));
    // New connections of peer 1 have to wait until the oldest has had its time.
    assert_eq!(places.enter(1, now), None);
    let later = now + ASKS_WITHIN;
    assert_eq!(instead(&mut places, 1, later), Some(4));
}

#[test]
fn a_server_has_sixteen_places() {
    let now = Instant::now();
    let mut places = Places::new();
    for peer in 0..16 {
        assert_eq!(places.enter(peer, now).unwrap().instead, None);
    }
    assert_eq!(places.enter(16, now), None);
}

#[test]
fn newcomers_do_not_take_each_others_turn() {
    let now = Instant::now();
    let all: Vec<u32> = (0..16).collect();
    let mut places = full(&all, now);
    assert_eq!(places.enter(99, now), None);
    let later = now + ASKS_WITHIN;
    assert_eq!(instead(&mut places, 99, later), Some(0));
    // A peer that has as many as the one with the most gets no place either.
    let mut places = full(&[1, 2], now);
    assert_eq!(places.enter(2, now), None);
}

#[test]
fn what_is_asked_is_answered_and_the_answer_may_be_taken() {
    let now = Instant::now();
    let mut places = full(&[1], now);
    for id in 0..MOST as u64 {
        places.asked(id);
    }
    // All wait for the server: no newcomer gets a place, however long that takes.
    let much_later = now + Duration::from_secs(60);
    assert_eq!(places.enter(2, much_later), None);
    places.answered(3, much_later);
    assert_eq!(places.enter(2, much_later), None);
    let late = much_later + TAKES_WITHIN;
    assert_eq!(instead(&mut places, 2, late), Some(3));
    places.leave(5);
    assert_eq!(instead(&mut places, 2, late), None);
}
