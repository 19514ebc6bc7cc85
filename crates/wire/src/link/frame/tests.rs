use proptest::prelude::*;

use super::*;

fn head(bytes: [u8; 8]) -> Result<Head, LinkError> {
    Head::parse(&bytes)
}

#[test]
fn heads_are_these_bytes() {
    let at_rest = |kind, number| Head::new(kind, number);
    let cases = [
        // A request with a body that wants an answer.
        (
            Head {
                wanted: true,
                more: true,
                length: 513,
                ..at_rest(FrameKind::Message, 1)
            },
            [0xb7, 0x50, 0, 0, 0, 1, 2, 1],
        ),
        // Its whole response.
        (
            Head {
                response: true,
                code: Code::LOCAL,
                length: 1,
                ..at_rest(FrameKind::Message, 1)
            },
            [0xb7, 0x20, 11, 0, 0, 1, 0, 1],
        ),
        (
            Head {
                more: true,
                length: 2,
                ..at_rest(FrameKind::Data, 0xff_ffff)
            },
            [0xb7, 0x11, 0, 0xff, 0xff, 0xff, 0, 2],
        ),
        (at_rest(FrameKind::Data, 2), [0xb7, 0x01, 0, 0, 0, 2, 0, 0]),
        (
            Head {
                more: true,
                length: 4,
                ..at_rest(FrameKind::Window, 2)
            },
            [0xb7, 0x12, 0, 0, 0, 2, 0, 4],
        ),
        (
            Head {
                code: Code::CANCELLED,
                ..at_rest(FrameKind::Reset, 2)
            },
            [0xb7, 0x03, 1, 0, 0, 2, 0, 0],
        ),
        (
            Head {
                wanted: true,
                more: true,
                length: 2,
                ..at_rest(FrameKind::Open, 3)
            },
            [0xb7, 0x54, 0, 0, 0, 3, 0, 2],
        ),
        (
            Head {
                more: true,
                length: 9,
                ..at_rest(FrameKind::Part, 3)
            },
            [0xb7, 0x15, 0, 0, 0, 3, 0, 9],
        ),
        (at_rest(FrameKind::Hello, 0), [0xb7, 0x80, 0, 0, 0, 0, 0, 0]),
        (
            Head {
                wanted: true,
                ..at_rest(FrameKind::Heartbeat, 5)
            },
            [0xb7, 0xc1, 0, 0, 0, 5, 0, 0],
        ),
        (
            Head {
                response: true,
                ..at_rest(FrameKind::Heartbeat, 5)
            },
            [0xb7, 0xa1, 0, 0, 0, 5, 0, 0],
        ),
        (at_rest(FrameKind::Ack, 0), [0xb7, 0x82, 0, 0, 0, 0, 0, 0]),
        (
            Head {
                code: Code::EXPIRED,
                ..at_rest(FrameKind::GoAway, 7)
            },
            [0xb7, 0x83, 10, 0, 0, 7, 0, 0],
        ),
    ];
    for (head, bytes) in cases {
        assert_eq!(head.bytes(), bytes, "{head:?}");
        assert_eq!(Head::parse(&bytes), Ok(head), "{bytes:?}");
    }
}

#[test]
fn what_no_frame_can_be_is_refused() {
    let refused = [
        ("another magic number", [0xb6, 0x01, 0, 0, 0, 1, 0, 0]),
        ("TLS within TLS", [0x16, 3, 3, 0, 0, 1, 0, 0]),
        ("an unknown kind", [0xb7, 0x06, 0, 0, 0, 1, 0, 0]),
        ("an unknown event", [0xb7, 0x84, 0, 0, 0, 1, 0, 0]),
        ("a stream of no number", [0xb7, 0x01, 0, 0, 0, 0, 0, 0]),
        ("a HELLO with a number", [0xb7, 0x80, 0, 0, 0, 1, 0, 58]),
        ("data with a code", [0xb7, 0x01, 1, 0, 0, 1, 0, 0]),
        ("data that wants an answer", [0xb7, 0x41, 0, 0, 0, 1, 0, 0]),
        ("data that says nothing", [0xb7, 0x11, 0, 0, 0, 1, 0, 0]),
        ("a message of nothing", [0xb7, 0x40, 0, 0, 0, 1, 0, 0]),
        ("a response that wants one", [0xb7, 0x60, 0, 0, 0, 1, 0, 1]),
        ("a last part", [0xb7, 0x45, 0, 0, 0, 1, 0, 1]),
        ("a part of nothing", [0xb7, 0x55, 0, 0, 0, 1, 0, 0]),
        ("a flow without an answer", [0xb7, 0x14, 0, 0, 0, 1, 0, 9]),
        ("a flow as an answer", [0xb7, 0x74, 0, 0, 0, 1, 0, 9]),
        ("a flow to nowhere", [0xb7, 0x54, 0, 0, 0, 1, 0, 1]),
        ("a window of 3 bytes", [0xb7, 0x12, 0, 0, 0, 1, 0, 3]),
        ("a window that ends", [0xb7, 0x02, 0, 0, 0, 1, 0, 4]),
        ("a reset that goes on", [0xb7, 0x13, 0, 0, 0, 1, 0, 0]),
        ("a reset with text", [0xb7, 0x03, 0, 0, 0, 1, 0, 1]),
        (
            "a heartbeat of neither kind",
            [0xb7, 0x81, 0, 0, 0, 1, 0, 0],
        ),
        ("a heartbeat of both kinds", [0xb7, 0xe1, 0, 0, 0, 1, 0, 0]),
        ("an ACK with text", [0xb7, 0x82, 0, 0, 0, 1, 0, 1]),
        ("an ACK that is answered", [0xb7, 0xa2, 0, 0, 0, 1, 0, 0]),
        ("a GOAWAY that goes on", [0xb7, 0x93, 0, 0, 0, 1, 0, 0]),
    ];
    for (what, bytes) in refused {
        assert!(head(bytes).is_err(), "{what}");
    }
}

#[test]
fn serials_count_up_and_wrap() {
    assert_eq!(Serial::new(0), None);
    assert_eq!(Serial::new(1 << 24), None);
    assert_eq!(Serial::FIRST.next(), Serial(2));
    assert_eq!(Serial(Serial::MAX).next(), Serial::FIRST);
}

proptest! {
    #[test]
    fn what_is_taken_is_written_as_the_same_bytes(bytes in any::<[u8; 7]>()) {
        let mut whole = [MAGIC; 8];
        whole[1..].copy_from_slice(&bytes);
        if let Ok(head) = Head::parse(&whole) {
            prop_assert_eq!(head.bytes(), whole);
        }
    }
}
