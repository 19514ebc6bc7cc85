use heddle_wire::link::Another;

use super::*;

const READY: Kind = Kind::Link(Standing::Ready { keeps_two: true });
const OF_OLD: Kind = Kind::Link(Standing::Ready { keeps_two: false });
const RESTING: Kind = Kind::Link(Standing::Resting);

fn item(who: usize, ns: u64, kind: Kind) -> Item<usize> {
    Item {
        who,
        all_ns: ns,
        goes_ns: ns,
        kind,
    }
}

fn items(all: &[(u64, Kind)]) -> Vec<Item<usize>> {
    let all = all.iter().enumerate();
    all.map(|(who, &(ns, kind))| item(who, ns, kind)).collect()
}

fn instead(who: usize) -> (usize, Fate) {
    (who, Fate::Asked(Another::Instead))
}

fn beside(who: usize) -> (usize, Fate) {
    (who, Fate::Asked(Another::Beside))
}

#[test]
fn links_that_fit_go_and_connections_along_with_them() {
    let all = items(&[
        (40, READY),
        (30, Kind::Connection),
        (20, OF_OLD),
        (10, READY),
    ]);
    assert_eq!(choose(&all, 0.5), [instead(0), instead(3)]);
    assert_eq!(choose(&all, 0.3), [(1, Fate::Moves)]);
    assert_eq!(choose(&all, 0.2), [instead(2)]);
    assert_eq!(choose(&all, 0.0), []);
    assert_eq!(choose::<usize>(&[], 0.5), []);
}

#[test]
fn one_link_that_does_all_is_divided_if_its_caller_keeps_two_and_never_moved() {
    assert_eq!(choose(&items(&[(100, READY)]), 0.5), [beside(0)]);
    assert_eq!(choose(&items(&[(100, OF_OLD)]), 0.5), []);
    // Half of the link would be far too much.
    assert_eq!(choose(&items(&[(100, READY)]), 0.1), []);
    // Small links go first; the large one is divided if they are not enough.
    let all = items(&[(80, READY), (10, READY), (10, READY)]);
    assert_eq!(choose(&all, 0.5), [instead(1), instead(2), beside(0)]);
}

#[test]
fn what_was_asked_for_a_moment_ago_counts_as_gone() {
    let asked = |what| Kind::Link(Standing::Asked(what));
    let all = items(&[(50, asked(Another::Instead)), (30, READY), (20, READY)]);
    assert_eq!(choose(&all, 0.5), []);
    assert_eq!(choose(&all, 0.72), [instead(2)]);
    let all = items(&[(100, asked(Another::Beside))]);
    assert_eq!(choose(&all, 0.5), []);
    let all = items(&[(50, RESTING), (50, READY)]);
    assert_eq!(choose(&all, 0.5), [instead(1)]);
}

#[test]
fn flows_that_last_are_no_reason_to_ask() {
    let flows = Item {
        goes_ns: 0,
        ..item(0, 90, READY)
    };
    let mixed = Item {
        goes_ns: 10,
        ..item(1, 60, READY)
    };
    assert_eq!(choose(&[flows], 0.5), []);
    assert_eq!(choose(&[flows, mixed], 0.5), [instead(1)]);
}

#[test]
fn handshakes_are_not_spent_on_what_does_hardly_anything_nor_all_at_once() {
    let mut all = vec![(10_000, OF_OLD); 2];
    all.extend([(1, READY); 1_000]);
    assert_eq!(choose(&items(&all), 0.2), []);
    let many = items(&[(10, READY); 1_000]);
    assert_eq!(choose(&many, 0.4).len(), MAX_ASKED);
    let many = items(&[(10, Kind::Connection); 1_000]);
    assert_eq!(choose(&many, 0.4).len(), MAX_MOVED);
}
