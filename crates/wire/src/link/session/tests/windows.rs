//! Limits on the bytes in flight on a link, and their distribution among streams.

use super::*;

#[test]
fn a_stream_has_its_share_of_the_links_window() {
    let small = LinkLimits {
        link_window: 8192,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::new(small, LinkLimits::INITIAL);
    let one = pair.client.open_flow(DESTINATION).expect("one");
    let two = pair.client.open_flow(DESTINATION).expect("two");
    let sent = pair.client.send(one, &[7; 20_000]);
    assert!((6000..7168).contains(&sent), "{sent}");
    assert_eq!(pair.client.send(two, b"hello"), 0);
    assert_eq!(pair.client.room(two), 0);
    // The last eighth is reserved for new streams.
    let mut begun = 0;
    while pair.client.may_open() {
        pair.client.open_flow(&[b'x'; 100]).expect("a flow");
        begun += 1;
    }
    assert!((6..9).contains(&begun), "{begun}");
    assert!(pair.client.is_full());
    pair.pass();
    let told = pair.told_client();
    assert_eq!(told, [Told::Writable(1), Told::Writable(2)]);
    assert_eq!(pair.client.send(two, b"hello"), 5);
}

#[test]
fn however_much_is_sent_answers_begin() {
    let small = LinkLimits {
        link_window: 8192,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::new(small, LinkLimits::INITIAL);
    let one = pair
        .client
        .open(0, DESTINATION, REQUEST, true)
        .expect("one");
    let two = pair
        .client
        .open(0, DESTINATION, REQUEST, true)
        .expect("two");
    pair.pass();
    assert_eq!(pair.server.answer(one, 0, Code::OK, RESPONSE), Ok(()));
    assert!(pair.server.send(one, &[7; 20_000]) < 7168);
    assert_eq!(pair.server.answer(two, 0, Code::OK, RESPONSE), Ok(()));
}

#[test]
fn windows_grow_for_an_end_that_keeps_up() {
    let mut pair = pair();
    let flow = pair.client.open_flow(DESTINATION).expect("a flow");
    let mut sent = 0;
    for _ in 0..20 {
        sent = pair.client.send(flow, &[7; 400_000]);
        pair.pass();
        pair.server.consumed(flow, sent);
        pair.pass();
    }
    assert_eq!(sent, 256 * 1024);
    // A reader that does not keep up gets no larger window.
    pair.client.send(flow, &[7; 400_000]);
    pair.pass();
    pair.server.consumed(flow, 200_000);
    pair.pass();
    assert_eq!(pair.client.send(flow, &[7; 400_000]), 200_000);
}
