use super::super::super::frame::FrameKind;
use super::*;

fn push(replay: &mut Replay, number: u32, payload: &[u8]) -> u64 {
    let mut head = Head::new(FrameKind::Data, number);
    head.more = true;
    replay.push(head, &[payload])
}

fn handed_out(replay: &mut Replay, max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    replay.hand_out(&mut out, max);
    out
}

#[test]
fn what_is_not_acknowledged_is_sent_again() {
    let mut replay = Replay::default();
    assert_eq!(push(&mut replay, 1, b"one"), 0);
    assert_eq!(push(&mut replay, 2, b"two"), 11);
    assert!(!replay.was_handed(0));
    let both = handed_out(&mut replay, usize::MAX);
    assert_eq!(both.len(), 22);
    assert!(replay.was_handed(21) && !replay.was_handed(22) && !replay.has_more());
    assert_eq!(replay.acknowledge_low(11), Ok(true));
    assert_eq!(replay.acknowledge_low(11), Ok(false));
    assert_eq!(replay.unacknowledged(), 11);
    assert_eq!(replay.resume(11), Ok(()));
    assert_eq!(handed_out(&mut replay, usize::MAX), both[11..]);
    assert_eq!(replay.acknowledge_low(22), Ok(true));
    assert!(replay.is_empty());
    assert_eq!((replay.end(), replay.has_more()), (22, false));
}

#[test]
fn frames_are_handed_out_whole() {
    let mut replay = Replay::default();
    for number in 1..=4 {
        push(&mut replay, number, b"four");
    }
    assert_eq!(handed_out(&mut replay, 0).len(), 12);
    assert_eq!(handed_out(&mut replay, 35).len(), 24);
    assert_eq!(handed_out(&mut replay, 1).len(), 12);
    assert_eq!(handed_out(&mut replay, 1).len(), 0);
}

#[test]
fn only_offsets_between_frames_that_were_sent_are_taken() {
    let mut replay = Replay::default();
    push(&mut replay, 1, b"one");
    push(&mut replay, 2, b"two");
    push(&mut replay, 3, b"three");
    assert_eq!(handed_out(&mut replay, 22).len(), 22);
    assert!(replay.acknowledge_low(35).is_err(), "not sent");
    assert!(replay.acknowledge_low(12).is_err(), "within a frame");
    assert_eq!(replay.acknowledge_low(11), Ok(true));
    assert!(replay.acknowledge_low(0).is_err(), "back");
    assert!(replay.resume(0).is_err(), "back");
    assert!(replay.resume(35).is_err(), "not sent");
    // On the next connection only bytes sent on that one count.
    assert_eq!(replay.resume(11), Ok(()));
    assert!(replay.acknowledge_low(22).is_err(), "not sent again");
}

#[test]
fn a_frame_grows_until_it_may_be_out_there() {
    let mut replay = Replay::default();
    let one = push(&mut replay, 1, b"o");
    assert_eq!(replay.extend(one, b"ne", 16), 2);
    assert_eq!(replay.extend(one, b"0123456789abcdef", 16), 13);
    assert_eq!(replay.extend(one, b"0", 16), 0);
    let two = push(&mut replay, 2, b"two");
    assert_eq!(replay.extend(one, b"0", 64), 0, "another one follows");
    assert!(replay.finish(one), "which does not matter here");
    assert_eq!(
        handed_out(&mut replay, 24)[..8],
        [0xb7, 1, 0, 0, 0, 1, 0, 16]
    );
    assert!(!replay.finish(one));
    assert_eq!(replay.extend(two, b"!", 64), 1);
    assert_eq!(handed_out(&mut replay, 24), b"\xb7\x11\0\0\0\x02\0\x04two!");
    assert_eq!(replay.extend(two, b"!", 64), 0);
    assert_eq!(replay.resume(24), Ok(()));
    assert_eq!(replay.extend(two, b"!", 64), 0, "some connection had it");
    assert_eq!(replay.extend(NO_FRAME, b"!", 64), 0);
    assert!(!replay.finish(NO_FRAME));
}

#[test]
fn acknowledged_bytes_make_room_for_others() {
    let mut replay = Replay::default();
    let payload = [7; 1000];
    for _ in 0..10 {
        push(&mut replay, 1, &payload);
    }
    for round in 1..10_000 {
        handed_out(&mut replay, usize::MAX);
        replay.acknowledge(round * 1008).expect("the oldest one");
        push(&mut replay, 1, &payload);
        assert_eq!(replay.unacknowledged(), 10 * 1008);
    }
    assert!(replay.heap_bytes() <= 4 * 10 * 1008);
    handed_out(&mut replay, usize::MAX);
    replay.acknowledge(replay.end()).expect("all");
    replay.tidy();
    assert_eq!(replay.heap_bytes(), 0);
}
