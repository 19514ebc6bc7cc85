//! Rules of the protocol: the errors that an end detects, and the behaviour that it must have.

use super::super::super::frame::HEAD_BYTES;
use super::super::super::hello::{Hello, VERSION};
use super::*;

/// A frame made by hand.
fn frame(kind: FrameKind, number: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = Head::new(kind, number);
    head.wanted = flags & 4 != 0;
    head.response = flags & 2 != 0;
    head.more = flags & 1 != 0;
    head.length = payload.len() as u16;
    [&head.bytes()[..], payload].concat()
}

const MORE: u8 = 1;
const RESPONSE_BIT: u8 = 2;
const WANTED: u8 = 4;

fn block(destination: &[u8], head: &[u8]) -> Vec<u8> {
    let mut block = vec![0x20, destination.len() as u8];
    block.extend_from_slice(destination);
    block.extend_from_slice(head);
    block.insert(0, block.len() as u8);
    block
}

fn request(number: u32) -> Vec<u8> {
    let block = block(DESTINATION, REQUEST);
    frame(FrameKind::Message, number, WANTED | MORE, &block)
}

fn flow(number: u32) -> Vec<u8> {
    frame(FrameKind::Open, number, WANTED | MORE, b"\0\x02db")
}

fn data(number: u32, flags: u8, length: usize) -> Vec<u8> {
    frame(FrameKind::Data, number, flags, &vec![7; length])
}

fn hello_of(server: bool, token: Token, received: u64, limits: LinkLimits) -> Vec<u8> {
    let hello = Hello {
        server,
        version: VERSION,
        oldest: VERSION,
        token,
        received,
        limits,
        beside: false,
        offline: false,
    };
    let mut bytes = Vec::new();
    hello.write_to(&mut bytes);
    bytes
}

#[test]
fn a_client_that_breaks_the_rules_is_given_up() {
    let window = |bytes: u32| frame(FrameKind::Window, 1, MORE, &bytes.to_be_bytes());
    let overrun = |first: Vec<u8>| {
        let mut frames = vec![first];
        frames.extend((0..5).map(|_| data(1, MORE, 16_000)));
        frames.concat()
    };
    let part = |number, flags| frame(FrameKind::Part, number, flags | MORE, &[0x20; 10]);
    let long_parts = [part(1, WANTED)]
        .into_iter()
        .chain((0..5).map(|_| frame(FrameKind::Part, 1, MORE, &[0x20; 16_000])))
        .collect::<Vec<_>>()
        .concat();
    let hello = hello_of(false, Token::NONE, 0, LinkLimits::INITIAL);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a second HELLO", hello),
        ("data of no stream", data(1, MORE, 1)),
        ("an end of no stream", data(1, 0, 0)),
        ("a stream opened twice", [request(1), request(1)].concat()),
        ("a flow opened twice", [flow(1), flow(1)].concat()),
        ("a flow as an exchange", [flow(1), request(1)].concat()),
        (
            "bytes after the end",
            [flow(1), data(1, 0, 1), data(1, 0, 1)].concat(),
        ),
        ("a response", frame(FrameKind::Data, 1, RESPONSE_BIT, b"")),
        ("a frame that is too long", {
            let mut head = Head::new(FrameKind::Data, 1);
            head.length = 16_385;
            head.bytes().to_vec()
        }),
        (
            "a part without the rest",
            [part(1, WANTED), data(1, 0, 0)].concat(),
        ),
        (
            "a part of another stream",
            [part(1, WANTED), part(2, 0)].concat(),
        ),
        (
            "two first parts",
            [part(1, WANTED), part(1, WANTED)].concat(),
        ),
        ("parts without an end", long_parts),
        (
            "a block beyond its frame",
            frame(FrameKind::Message, 1, WANTED, &[9, 0x20]),
        ),
        (
            "an unknown block",
            frame(FrameKind::Message, 1, WANTED, &[1, 0xff]),
        ),
        (
            "no destination",
            frame(FrameKind::Message, 1, WANTED, &block(b"", REQUEST)),
        ),
        (
            "no destination of a flow",
            frame(FrameKind::Open, 1, WANTED, &[0, 0]),
        ),
        (
            "a destination beyond its frame",
            frame(FrameKind::Open, 1, WANTED, &[0, 2, 7]),
        ),
        ("a long destination", {
            let mut payload = vec![0x10, 0];
            payload.extend([7; 0x1000]);
            frame(FrameKind::Open, 1, WANTED, &payload)
        }),
        ("more than a flow's window", overrun(flow(1))),
        ("more than an exchange's window", overrun(request(1))),
        ("a window of nothing", [flow(1), window(0)].concat()),
        ("a window too wide", [flow(1), window(0x7fff_ffff)].concat()),
        (
            "an ACK of what was never sent",
            frame(FrameKind::Ack, 1, 0, b""),
        ),
        (
            "an ACK that goes back",
            frame(FrameKind::Ack, 0xff_ffff, 0, b""),
        ),
        (
            "an answer to no heartbeat",
            frame(FrameKind::Heartbeat, 1, RESPONSE_BIT, b""),
        ),
        (
            "ACKs that say nothing",
            frame(FrameKind::Ack, 0, 0, b"").repeat(101),
        ),
        (
            "heartbeats without a pause",
            frame(FrameKind::Heartbeat, 1, WANTED, b"").repeat(101),
        ),
        (
            "farewells without an end",
            frame(FrameKind::GoAway, 1, 0, b"").repeat(101),
        ),
    ];
    for (what, bytes) in cases {
        let mut whole = pair();
        assert!(whole.server_takes(&bytes).is_err(), "{what}");
        assert!(whole.server_takes(&flow(9)).is_err(), "it stays so: {what}");
        whole.server.fail_all(&mut whole.at_server);
        assert_eq!(whole.server.open_streams(), 0);
        assert_eq!(whole.server.next_deadline(), None);
        // The result is the same when the bytes arrive one by one.
        let mut pieces = pair();
        let taken = bytes
            .iter()
            .try_for_each(|&byte| pieces.server_takes(&[byte]));
        assert!(taken.is_err(), "in pieces: {what}");
    }
}

#[test]
fn a_server_that_breaks_the_rules_is_given_up() {
    let response = |number, destination| {
        let block = block(destination, RESPONSE);
        frame(FrameKind::Message, number, RESPONSE_BIT | MORE, &block)
    };
    let head = |number| response(number, b"");
    let bytes = |number| data(number, RESPONSE_BIT | MORE, 3);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a head of no stream", head(9)),
        ("bytes of no stream", bytes(9)),
        ("a body before its head", bytes(1)),
        (
            "a head after the body",
            [head(1), bytes(1), head(1)].concat(),
        ),
        ("heads without an end", head(1).repeat(129)),
        ("an answer that is not wanted", head(2)),
        ("a head on a flow", head(3)),
        ("a response with a destination", response(1, b"x")),
        ("a request", request(4)),
        ("a flow", flow(4)),
        ("a response that wants one", {
            let mut wrong = head(1);
            wrong[1] |= 0x40;
            wrong
        }),
    ];
    for (what, bytes) in cases {
        let mut pair = pair();
        let client = &mut pair.client;
        let one = client.open(0, DESTINATION, REQUEST, true);
        let two = client.open(0, DESTINATION, REQUEST, false);
        let three = client.open_flow(DESTINATION);
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        let _unheard = pair.client_bytes();
        assert!(pair.client_takes(&bytes).is_err(), "{what}");
        pair.told_client();
        pair.client.fail_all(&mut pair.at_client);
        let lost = [1, 2, 3].map(|number| Told::Lost(number, true));
        let mut told = pair.told_client();
        told.sort_by_key(|told| format!("{told:?}"));
        assert_eq!(told, lost, "{what}");
        assert_eq!(pair.client.open_flow(DESTINATION), Err(NoStream::Over));
    }
}

#[test]
fn greetings_are_looked_at() {
    let less = LinkLimits {
        stream_window: 65_535,
        ..LinkLimits::INITIAL
    };
    let token = Token([3; 16]);
    let to_client = [
        ("a client's", hello_of(false, token, 0, LinkLimits::INITIAL)),
        (
            "without a token",
            hello_of(true, Token::NONE, 0, LinkLimits::INITIAL),
        ),
        ("with less than is granted", hello_of(true, token, 0, less)),
        (
            "with what was never sent",
            hello_of(true, token, 1, LinkLimits::INITIAL),
        ),
        ("not at all", frame(FrameKind::Ack, 0, 0, b"")),
    ];
    for (what, bytes) in to_client {
        let mut pair = SessionPair::unconnected(LinkLimits::INITIAL, LinkLimits::INITIAL);
        pair.connect();
        pair.client_bytes();
        assert!(pair.client_takes(&bytes).is_err(), "{what}");
    }
    let resumed = [
        (
            "another session",
            hello_of(false, token, 0, LinkLimits::INITIAL),
        ),
        (
            "a new session",
            hello_of(false, Token::NONE, 0, LinkLimits::INITIAL),
        ),
        (
            "what was never sent",
            hello_of(false, TOKEN, 9, LinkLimits::INITIAL),
        ),
        ("other limits", hello_of(false, TOKEN, 0, less)),
    ];
    for (what, bytes) in resumed {
        let mut pair = pair();
        pair.disconnect();
        pair.connect();
        assert!(pair.server_takes(&bytes).is_err(), "{what}");
    }
}

#[test]
fn what_crosses_the_end_of_a_stream_is_no_violation() {
    let mut pair = pair();
    let credit = 9u32.to_be_bytes();
    let late = [
        frame(FrameKind::Window, 7, MORE, &credit),
        frame(FrameKind::Reset, 7, 0, b""),
    ];
    assert_eq!(pair.server_takes(&late.concat()), Ok(()));
    assert_eq!(pair.told_server(), []);
    assert!(!pair.server.wants_transmit());
}

#[test]
fn streams_beyond_the_limit_are_refused_and_forgotten() {
    let one_stream = LinkLimits {
        max_streams: 1,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::unconnected(LinkLimits::INITIAL, one_stream);
    pair.connect();
    for _ in 0..3 {
        let opened = pair.client.open(0, DESTINATION, REQUEST, true);
        assert!(opened.is_ok());
    }
    pair.pass();
    assert_eq!(
        (pair.client.open_streams(), pair.server.open_streams()),
        (1, 1)
    );
    let refused = |number| [Told::Reset(number, Code::REFUSED.0), Told::Over(number)];
    assert_eq!(pair.told_client(), [refused(2), refused(3)].concat());
    assert_eq!(pair.told_server().len(), 2);
    let opened = pair.client.open_flow(DESTINATION);
    assert_eq!(opened, Err(NoStream::TooMany));
}

#[test]
fn a_client_that_keeps_opening_what_is_refused_is_given_up() {
    let one_stream = LinkLimits {
        max_streams: 1,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::new(LinkLimits::INITIAL, one_stream);
    let taken = (1..3000).try_for_each(|number| pair.server_takes(&flow(number)));
    assert!(taken.is_err());
    assert_eq!(pair.server.streams.len(), 1025);
}

#[test]
fn who_never_acknowledges_is_given_up() {
    let small = LinkLimits {
        link_window: 8192,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::new(small, LinkLimits::INITIAL);
    let mut number = 0;
    let taken = loop {
        number += 1;
        let visit = [flow(number), frame(FrameKind::Reset, number, 0, b"")].concat();
        let taken = pair.server_takes(&visit);
        if taken.is_err() || number == 100_000 {
            break taken;
        }
        pair.server_bytes();
    };
    assert!(taken.is_err());
    assert!(pair.server.heap_bytes() < 1 << 20);
}

#[test]
fn an_end_that_goes_away_serves_what_is_open() {
    let mut pair = pair();
    let one = pair.client.open_flow(DESTINATION).expect("a flow");
    pair.pass();
    pair.server.go_away(Code::EXPIRED);
    // GOAWAY is sent again on a new connection, because it may not have arrived.
    pair.server_bytes();
    pair.disconnect();
    pair.connect();
    pair.pass();
    assert_eq!(pair.told_client(), [Told::GoingAway(Code::EXPIRED.0, 1)]);
    assert_eq!(pair.client.open_flow(DESTINATION), Err(NoStream::GoingAway));
    assert_eq!(pair.client.send(one, b"more"), 4);
    pair.pass();
    let came = [Told::Opened(1, Opened::Flow, DESTINATION.to_vec())];
    let came = [&came[..], &[Told::Data(1, b"more".to_vec())]].concat();
    assert_eq!(pair.told_server(), came);
}

#[test]
fn acknowledgements_wait_for_company() {
    let mut pair = pair();
    let flow = pair.client.open_flow(DESTINATION).expect("a flow");
    let acks = |bytes: &[u8]| bytes.len() == HEAD_BYTES && bytes[1] == 0x82;
    // Few bytes: half a second after the last one.
    pair.pass();
    assert_eq!(pair.server.next_deadline(), Some(pair.now_ms + 500));
    pair.tick(499);
    assert!(!pair.server.wants_transmit());
    pair.tick(1);
    assert!(acks(&pair.server_bytes()));
    // From 4 KiB on: with the next frames.
    pair.client.send(flow, &[7; 5000]);
    let bytes = pair.client_bytes();
    pair.server_takes(&bytes).expect("data");
    assert!(!pair.server.wants_transmit());
    pair.server.send(flow, b"!");
    let bytes = pair.server_bytes();
    assert!(acks(&bytes[..HEAD_BYTES]) && bytes.len() == 2 * HEAD_BYTES + 1);
    pair.client_takes(&bytes).expect("an ACK");
    assert!(pair.client.out.is_empty());
    // From an eighth of the window on: at once.
    pair.server.consumed(flow, 5000);
    for _ in 0..3 {
        assert_eq!(pair.client.send(flow, &[7; 50_000]), 50_000);
        let bytes = pair.client_bytes();
        pair.server_takes(&bytes).expect("data");
        pair.server.consumed(flow, 50_000);
        let bytes = pair.server_bytes();
        pair.client_takes(&bytes).expect("credit");
    }
    assert!(pair.client.out.unacknowledged() < 128 * 1024);
}

#[test]
fn silence_is_asked_about_and_then_ends_the_path() {
    let mut pair = pair();
    assert_eq!(pair.tick(100_000), (Verdict::GoOn, Verdict::GoOn));
    assert!(!pair.client.wants_transmit(), "it waits for nothing");
    pair.client.open_flow(DESTINATION).expect("a flow");
    pair.pass();
    assert_eq!(pair.client.next_deadline(), Some(pair.now_ms + 500 + 500));
    assert_eq!(pair.tick(500), (Verdict::GoOn, Verdict::GoOn));
    pair.server_bytes();
    assert_eq!(pair.tick(500), (Verdict::GoOn, Verdict::GoOn));
    assert!(pair.client.wants_transmit());
    pair.client_bytes();
    assert_eq!(pair.tick(1999), (Verdict::GoOn, Verdict::GoOn));
    assert!(!pair.client.wants_transmit());
    assert_eq!(pair.tick(1), (Verdict::PathDead, Verdict::PathDead));
    pair.disconnect();
    assert_eq!(pair.client.next_deadline(), Some(pair.now_ms + 30_000));
    pair.told_client();
    assert_eq!(
        pair.tick(30_000),
        (Verdict::SessionOver, Verdict::SessionOver)
    );
    assert_eq!(pair.told_client(), [Told::Lost(1, true)]);
    assert_eq!(pair.client.heap_bytes(), 0);
}

#[test]
fn who_was_late_to_ask_waits_for_an_answer() {
    let mut pair = pair();
    pair.client.open_flow(DESTINATION).expect("a flow");
    pair.pass();
    // The owner made no call for a minute, which is not the peer's fault.
    assert_eq!(pair.tick(60_000), (Verdict::GoOn, Verdict::GoOn));
    pair.pass();
    assert_eq!(pair.tick(999), (Verdict::GoOn, Verdict::GoOn));
    assert!(!pair.client.wants_transmit() && !pair.server.wants_transmit());
}

#[test]
fn what_was_never_sent_is_told_apart() {
    let mut pair = pair();
    pair.client.open_flow(DESTINATION).expect("a flow");
    pair.client_bytes();
    pair.client.open_flow(DESTINATION).expect("another one");
    pair.disconnect();
    pair.tick(30_000);
    let mut told = pair.told_client();
    told.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(told, [Told::Lost(1, true), Told::Lost(2, false)]);
}

#[test]
fn of_a_session_that_the_server_has_not_heard_nothing_is_lost() {
    let mut pair = SessionPair::unconnected(LinkLimits::INITIAL, LinkLimits::INITIAL);
    pair.client
        .open_flow(DESTINATION)
        .expect("before there is a connection");
    pair.client.connected(1000);
    pair.client.disconnected(1000);
    assert!(pair.client.is_resumable(), "nothing was said of it");
    pair.client.connected(1000);
    pair.client_bytes();
    pair.client.disconnected(1000);
    assert!(pair.client.is_resumable(), "but for a HELLO");
    pair.connect();
    pair.pass();
    let opened = Told::Opened(1, Opened::Flow, DESTINATION.to_vec());
    assert_eq!(pair.told_server(), [opened]);
}

#[test]
fn the_other_end_does_not_decide_how_much_is_kept() {
    // Given a client that accepts heads of any length …
    let greedy = LinkLimits {
        max_head: u32::MAX,
        max_templates: u16::MAX,
        template_bytes: u32::MAX,
        ..LinkLimits::INITIAL
    };
    let mut pair = SessionPair::new(greedy, LinkLimits::INITIAL);
    assert_eq!(pair.server.theirs.max_head, LinkLimits::INITIAL.max_head);
    // … when it makes the server answer and never acknowledges, then the server gives up before it keeps much.
    for number in 1..1_000_000 {
        let opened = pair.server_takes(&flow(number));
        let serial = Serial::new(number).expect("a serial");
        pair.server.reset(serial, Code::CANCELLED);
        let ended =
            opened.and_then(|()| pair.server_takes(&frame(FrameKind::Reset, number, 0, b"")));
        if ended.is_err() {
            assert!(
                number > 1000 && pair.server.heap_bytes() < 8 << 20,
                "{number}"
            );
            return;
        }
    }
    panic!("it goes on for ever");
}

#[test]
fn silent_connections_make_a_session_no_younger() {
    let mut pair = pair();
    pair.client.open_flow(DESTINATION).expect("a flow");
    let retention = u64::from(LinkLimits::INITIAL.retention_ms);
    let mut now = 5000;
    pair.client.disconnected(now);
    let mut told = Owner::default();
    while pair.client.tick(now, &mut told) == Verdict::GoOn {
        assert!(now <= 5000 + retention, "it is kept for ever");
        now += 1000;
        pair.client.connected(now);
        pair.client.disconnected(now);
    }
}

#[test]
fn serials_wrap_and_skip_what_is_open() {
    let mut pair = pair();
    let first = pair.client.open_flow(DESTINATION).expect("the first");
    pair.client.last = Serial::new((1 << 24) - 2);
    let mut opened = Vec::new();
    for _ in 0..3 {
        let flow = pair.client.open_flow(DESTINATION).expect("a flow");
        opened.push(flow.number());
    }
    assert_eq!(first.number(), 1);
    assert_eq!(opened, [(1 << 24) - 1, 2, 3]);
    pair.pass();
    assert_eq!(pair.server.open_streams(), 4);
}

#[test]
fn a_response_without_a_head_is_none() {
    let mut pair = pair();
    let one = pair
        .client
        .open(0, DESTINATION, REQUEST, true)
        .expect("one");
    pair.client.end(one);
    pair.pass();
    assert_eq!(pair.server.send(one, b"hello"), 0);
    assert!(pair.server.end(one));
    pair.pass();
    let reset = Told::Reset(1, Code::INTERNAL.0);
    assert_eq!(pair.told_client(), [reset, Told::Over(1)]);
}
