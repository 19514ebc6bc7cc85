//! A server asks for another link.

use super::*;

fn asking(what: Another, keeps_two: bool) -> SessionPair {
    let mut pair = SessionPair::unconnected(LinkLimits::INITIAL, LinkLimits::INITIAL);
    if keeps_two {
        pair.client = pair.client.keeping_two();
    }
    pair.connect();
    pair.pass();
    pair.server.ask_for(what);
    pair
}

#[test]
fn streams_that_cross_the_question_are_served_and_so_are_later_ones() {
    let mut pair = asking(Another::Instead, true);
    let question = pair.server_bytes();
    // Given a stream that was in flight to the server when it asked …
    let crossing = pair.client.open(0, DESTINATION, REQUEST, true);
    let crossing = crossing.expect("a stream");
    pair.client_takes(&question).expect("a question");
    assert_eq!(pair.told_client(), [Told::Asked(Another::Instead)]);
    // … and one that the client opens after it was asked …
    let late = pair.client.open(0, DESTINATION, REQUEST, true);
    let late = late.expect("nothing was taken away");
    pair.pass();
    // … then both are answered.
    for serial in [crossing, late] {
        pair.client.end(serial);
        pair.pass();
        let answered = pair.server.answer(serial, 0, Code::OK, RESPONSE);
        assert_eq!(answered, Ok(()));
        pair.server.send(serial, b"hello");
        assert!(pair.server.end(serial));
        pair.pass();
    }
    let told = pair.told_client();
    assert_eq!(
        told.iter()
            .filter(|one| matches!(one, Told::Over(_)))
            .count(),
        2
    );
    assert!(!told.iter().any(|one| matches!(one, Told::Reset(..))));
    assert_eq!(pair.client.open_streams(), 0);
}

#[test]
fn what_was_asked_is_asked_again_on_another_connection_and_a_farewell_comes_after_it() {
    let mut pair = asking(Another::Instead, true);
    let _lost = pair.server_bytes();
    pair.disconnect();
    pair.connect();
    pair.pass();
    assert_eq!(pair.told_client(), [Told::Asked(Another::Instead)]);
    pair.server.go_away(Code::GOING_AWAY);
    pair.pass();
    assert_eq!(pair.told_client(), [Told::GoingAway(Code::GOING_AWAY.0, 0)]);
    let opened = pair.client.open_flow(DESTINATION);
    assert_eq!(opened, Err(NoStream::GoingAway));
}

#[test]
fn a_link_beside_is_asked_of_those_only_who_keep_two() {
    let mut pair = asking(Another::Beside, true);
    assert!(pair.server.may_ask_for_two() && !pair.client.may_ask_for_two());
    pair.pass();
    assert_eq!(pair.told_client(), [Told::Asked(Another::Beside)]);
    let mut pair = asking(Another::Beside, false);
    assert!(!pair.server.may_ask_for_two());
    pair.pass();
    assert_eq!(pair.told_client(), []);
    // A client cannot ask for another link.
    pair.client.ask_for(Another::Instead);
    assert!(!pair.client.wants_transmit());
}

#[test]
fn the_last_serial_of_all_is_no_question() {
    let mut pair = pair();
    pair.server.last = Serial::new(Serial::MAX);
    pair.server.go_away(Code::EXPIRED);
    pair.pass();
    let last = Serial::MAX - 1;
    let told = [Told::GoingAway(Code::EXPIRED.0, last)];
    assert_eq!(pair.told_client(), told);
}
