use proptest::prelude::*;

use super::*;

fn hello() -> Hello {
    Hello {
        server: false,
        version: 1,
        oldest: 1,
        token: Token::NONE,
        received: 0,
        limits: LinkLimits {
            grown_window: 0,
            ..LinkLimits::INITIAL
        },
        beside: false,
        offline: false,
    }
}

fn written(hello: &Hello) -> Vec<u8> {
    let mut bytes = Vec::new();
    hello.write_to(&mut bytes);
    bytes
}

#[test]
fn the_bytes_are_these() {
    let expected = [
        &[0xb7, 0x80, 0, 0, 0, 0, 0, 58][..],
        &[1, 1, 0, 0],
        &[0; 16],
        &[0; 8],
        &[0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0, 0x40, 0],
        &[4, 0, 1, 0],
        &[0, 0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0x75, 0x30],
        &[0, 0],
    ];
    assert_eq!(written(&hello()), expected.concat());
}

#[test]
fn what_no_end_may_say_is_refused() {
    let client = written(&hello());
    let server = written(&Hello {
        server: true,
        token: Token([1; 16]),
        ..hello()
    });
    let with = |whole: &[u8], at: usize, byte: u8| {
        let mut bytes = whole.to_vec();
        bytes[at] = byte;
        bytes
    };
    let refused = [
        ("another kind", with(&client, 1, 0x82)),
        ("too short", with(&client, 7, 57)),
        ("too long", with(&client, 6, 0x10)),
        ("a version to come, and none before", with(&client, 9, 2)),
        ("the oldest is newer", with(&with(&client, 8, 0), 9, 1)),
        ("an older version only", with(&with(&client, 8, 0), 9, 0)),
        ("a new session with an offset", with(&client, 35, 1)),
        ("a server without a token", with(&client, 1, 0xa0)),
        ("a window of nothing", with(&client, 37, 0)),
        ("no streams", with(&client, 48, 0)),
        (
            "a server with less than is granted",
            with(&server, 46, 0x3f),
        ),
        ("more reserved than there is", with(&client, 65, 1)),
        ("more than is reserved", {
            let mut bytes = with(&client, 7, 59);
            bytes.push(0);
            bytes
        }),
    ];
    for (what, bytes) in refused {
        assert!(Hello::parse(&bytes).is_err(), "{what}");
    }
}

#[test]
fn what_later_versions_may_add_is_skipped() {
    let mut bytes = written(&hello());
    // Flags, a newer version that also speaks this one, and three reserved bytes.
    (bytes[8], bytes[10]) = (9, 0x80);
    (bytes[7], bytes[65]) = (61, 3);
    bytes.extend([1, 2, 3]);
    let expected = Hello {
        version: 9,
        ..hello()
    };
    assert_eq!(Hello::parse(&bytes), Ok(Some((expected, bytes.len()))));
}

#[test]
fn a_client_says_that_it_keeps_two_links_or_has_offline_callers_and_a_server_never_does() {
    for (beside, offline, flags) in [(true, false, 1), (false, true, 2), (true, true, 3)] {
        let client = Hello {
            beside,
            offline,
            ..hello()
        };
        let bytes = written(&client);
        assert_eq!(bytes[8..12], [1, 1, 0, flags]);
        assert_eq!(Hello::parse(&bytes), Ok(Some((client, bytes.len()))));
        let server = Hello {
            server: true,
            token: Token([1; 16]),
            ..client
        };
        let parsed = Hello::parse(&written(&server)).unwrap().unwrap();
        assert!(!parsed.0.beside && !parsed.0.offline);
    }
}

#[test]
fn tokens_are_not_shown() {
    let shown = format!("{:?} {:?}", Token::NONE, Token([0xab; 16]));
    assert_eq!(shown, "Token(none) Token(…)");
}

proptest! {
    #[test]
    fn what_was_written_is_read_wherever_it_is_cut(
        token in any::<[u8; 16]>(),
        received in any::<u64>(),
        numbers in any::<[u32; 5]>(),
        more in any::<Vec<u8>>(),
    ) {
        let limits = LinkLimits {
            stream_window: numbers[0],
            link_window: numbers[1],
            max_frame: numbers[2],
            max_streams: numbers[3] as u16,
            max_head: numbers[4],
            ..LinkLimits::INITIAL
        }
        .for_server();
        let hello = Hello {
            server: true,
            token: Token(token),
            received,
            limits: LinkLimits { grown_window: 0, ..limits },
            ..hello()
        };
        prop_assume!(hello.token != Token::NONE);
        let mut bytes = written(&hello);
        let length = bytes.len();
        for cut in 0..length {
            prop_assert_eq!(Hello::parse(&bytes[..cut]), Ok(None));
        }
        bytes.extend(more);
        prop_assert_eq!(Hello::parse(&bytes), Ok(Some((hello, length))));
    }

    #[test]
    fn anything_is_survived(bytes in any::<Vec<u8>>()) {
        let mut frame = written(&hello());
        for (at, byte) in bytes.iter().enumerate().take(frame.len() - 8) {
            frame[8 + at] ^= byte;
        }
        let _ = Hello::parse(&bytes);
        let _ = Hello::parse(&frame);
    }
}
