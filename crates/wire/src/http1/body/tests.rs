use proptest::prelude::*;

use super::{Advance, BodyTracker, Line, Piece};
use crate::http1::{Framing, Limits};

fn chunked() -> BodyTracker {
    BodyTracker::from_framing(Framing::Chunked)
}

#[test]
fn each_framing_ends_where_it_says() {
    let end = |framing, input: &[u8]| BodyTracker::from_framing(framing).advance(input).unwrap();
    assert_eq!(
        end(Framing::None, b"next"),
        Advance {
            consumed: 0,
            done: true
        }
    );
    assert_eq!(
        end(Framing::Length(3), b"abcnext"),
        Advance {
            consumed: 3,
            done: true
        }
    );
    assert_eq!(
        end(Framing::Length(9), b"abc"),
        Advance {
            consumed: 3,
            done: false
        }
    );
    assert_eq!(
        end(Framing::UntilClose, b"abc"),
        Advance {
            consumed: 3,
            done: false
        }
    );
    let text = b"3\r\nabc\r\nA;x=\"y;\\\"\"\r\n0123456789\r\n000\r\nX-Sum: 1\r\n\r\nnext";
    assert_eq!(
        end(Framing::Chunked, text),
        Advance {
            consumed: text.len() - 4,
            done: true
        }
    );
    assert_eq!(
        end(Framing::Chunked, b"0\r\n\r\n"),
        Advance {
            consumed: 5,
            done: true
        }
    );
}

#[test]
fn what_is_still_to_come_is_known_when_it_is_known() {
    let mut body = BodyTracker::from_framing(Framing::Length(10));
    body.advance(b"abc").unwrap();
    assert_eq!(
        (body.remaining_hint(), body.is_whole_at_close()),
        (Some(7), false)
    );
    let mut body = chunked();
    assert_eq!(body.remaining_hint(), None);
    body.advance(b"ff\r\nx").unwrap();
    assert_eq!(
        (body.remaining_hint(), body.is_whole_at_close()),
        (Some(254), false)
    );
    assert!(BodyTracker::from_framing(Framing::UntilClose).is_whole_at_close());
}

#[test]
fn a_refusal_is_final() {
    let mut body = chunked();
    let reject = body.advance(b"5x").unwrap_err();
    assert_eq!(reject.code, "malformed_chunk_size");
    assert_eq!(body.advance(b"0\r\n\r\n"), Err(reject));
}

#[test]
fn chunked_bodies_that_do_not_follow_the_grammar() {
    let line = format!("1;{}\r\n", "x".repeat(300));
    let trailers = format!("0\r\n{}", "A: bcdefghijkl\r\n".repeat(600));
    let overhead = format!("1;{}\r\nx\r\n", "x".repeat(200)).repeat(100);
    let cases: &[(&str, &str)] = &[
        ("\r\n", "malformed_chunk_size"),
        (";x\r\n", "malformed_chunk_size"),
        ("0x5\r\n", "malformed_chunk_size"),
        ("+5\r\n", "malformed_chunk_size"),
        (" 5\r\n", "malformed_chunk_size"),
        ("5 \r\n", "malformed_chunk_size"),
        ("5\n", "bare_lf"),
        ("5;a\nb\r\n", "bare_lf"),
        ("5\rX", "bare_cr"),
        ("5;\r\n", "malformed_chunk_extension"),
        ("5; a\r\n", "malformed_chunk_extension"),
        ("5;a =b\r\n", "malformed_chunk_extension"),
        ("5;a=\r\n", "malformed_chunk_extension"),
        ("5;a=\"b\"c\r\n", "malformed_chunk_extension"),
        ("5;a=\"\x01\"\r\n", "malformed_chunk_extension"),
        ("8000000000000000\r\n", "chunk_size_overflow"),
        ("00000000000000001\r\n", "chunk_size_overflow"),
        ("1\r\nab", "chunk_data_end"),
        ("1\r\na\n", "chunk_data_end"),
        ("1\r\na\rb", "chunk_data_end"),
        ("0\r\n\n", "bare_lf"),
        ("0\r\n\rx", "bare_cr"),
        ("0\r\n x\r\n", "malformed_trailer"),
        ("0\r\n: x\r\n", "malformed_trailer"),
        ("0\r\nA : x\r\n", "malformed_trailer"),
        ("0\r\nA: \0\r\n", "malformed_trailer"),
        ("0\r\nA: x\n", "bare_lf"),
        ("0\r\nA: x\rB", "bare_cr"),
        (&line, "chunk_line_too_long"),
        (&trailers, "trailers_too_large"),
        (&overhead, "chunk_overhead"),
    ];
    for (text, expected) in cases {
        assert_eq!(
            chunked().advance(text.as_bytes()).map_err(|r| r.code),
            Err(*expected),
            "{text}"
        );
    }
}

#[test]
fn sixteen_digits_are_enough() {
    let mut body = chunked();
    body.advance(b"7fffffffffffffff\r\n").unwrap();
    assert_eq!(body.remaining_hint(), Some(i64::MAX as u64));
    let mut body = chunked();
    assert_eq!(
        body.advance(b"0000000000000000\r\n\r\n")
            .map(|end| end.done),
        Ok(true)
    );
}

#[test]
fn limits_are_settings() {
    let limits = Limits {
        max_chunk_line_bytes: 3,
        max_trailer_bytes: 8,
        ..Limits::DEFAULT
    };
    let code = |text: &[u8]| {
        BodyTracker::with_limits(Framing::Chunked, &limits)
            .advance(text)
            .map_err(|r| r.code)
    };
    assert!(code(b"001\r\nx\r\n0\r\nA: b\r\n\r\n").is_ok());
    assert_eq!(code(b"0001\r\n"), Err("chunk_line_too_long"));
    assert_eq!(code(b"0\r\nA: bcd\r\n\r\n"), Err("trailers_too_large"));
}

/// Forwards `input` in pieces and returns the output; trailers for which `keeps` returns false are left out.
fn pass_on(
    input: &[u8],
    cuts: &[usize],
    keeps: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, &'static str> {
    let mut body = chunked();
    let (mut out, mut at) = (Vec::new(), 0);
    let mut cuts = cuts.iter().copied().cycle();
    while at < input.len() && !body.is_done() {
        let piece = cuts.next().unwrap_or(1).clamp(1, input.len() - at);
        let mut piece = &input[at..at + piece];
        while !piece.is_empty() && !body.is_done() {
            let step = body.forward(piece).map_err(|reject| reject.code)?;
            out.extend_from_slice(&piece[..step.pass]);
            at += step.pass + step.skip;
            piece = &piece[step.pass + step.skip..];
            if !step.write {
                assert!(piece.is_empty() || step.done);
                continue;
            }
            match body.line().unwrap() {
                Line::Size(size) => out.extend_from_slice(format!("{size:x}\r\n").as_bytes()),
                Line::Trailer { name, line } if keeps(name) => out.extend_from_slice(line),
                Line::Trailer { .. } => {}
            }
        }
    }
    Ok(out)
}

#[test]
fn framing_goes_on_in_one_form() {
    for (came, goes) in [
        ("5;a=b\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        (
            "0005\r\nhello\r\n000;last\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "a\r\n0123456789\r\n0a\r\n0123456789\r\n0\r\n\r\n",
            "a\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
        ),
        (
            "1\r\nx\r\n0\r\nX-Sum: 1\r\nx-role: admin\r\nY:\t2 \r\n\r\n",
            "1\r\nx\r\n0\r\nX-Sum: 1\r\nY:\t2 \r\n\r\n",
        ),
        ("0\r\nX-Role: admin\r\n\r\n", "0\r\n\r\n"),
    ] {
        for piece in [1, 2, 3, 5, 7, 1000] {
            let gone = pass_on(came.as_bytes(), &[piece], |name| {
                !name.eq_ignore_ascii_case(b"x-role")
            });
            assert_eq!(
                gone.map(|gone| String::from_utf8(gone).unwrap()).as_deref(),
                Ok(goes),
                "{came:?} in pieces of {piece}"
            );
        }
    }
}

#[test]
fn what_is_plain_passes_in_one_piece() {
    let text = b"5\r\nhello\r\nA0\r\n";
    let mut body = chunked();
    let step = body.forward(text).unwrap();
    assert_eq!((step.pass, step.skip, step.write), (text.len(), 0, false));
    let rest = [&[b'x'; 0xa0][..], b"\r\n0\r\n\r\nGET"].concat();
    let step = body.forward(&rest).unwrap();
    assert_eq!(
        (step.pass, step.skip, step.write, step.done),
        (rest.len() - 3, 0, false, true)
    );
}

/// A valid chunked body, and its data.
fn body() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunk = (
        prop::collection::vec(any::<u8>(), 1..40),
        "(;[a-z]{1,5}(=([a-z]{1,5}|\"[a-z ;]{0,5}\"))?){0,2}",
    );
    (
        prop::collection::vec(chunk, 0..8),
        "(X-[a-z]{1,5}: [a-z ]{0,9}\r\n){0,3}",
    )
        .prop_map(|(chunks, trailers)| {
            let mut raw = Vec::new();
            let mut data = Vec::new();
            for (bytes, extension) in chunks {
                raw.extend(format!("{:x}{extension}\r\n", bytes.len()).into_bytes());
                raw.extend_from_slice(&bytes);
                raw.extend_from_slice(b"\r\n");
                data.extend(bytes);
            }
            raw.extend(format!("0\r\n{trailers}\r\n").into_bytes());
            (raw, data)
        })
}

/// Feeds `input` in pieces and returns the outcome: bytes consumed and data, or the reason code.
fn feed(input: &[u8], cuts: &[usize]) -> Result<(usize, bool, Vec<u8>), &'static str> {
    let mut body = chunked();
    let mut data = Vec::new();
    let mut at = 0;
    let mut cuts = cuts.iter().copied().cycle();
    while at < input.len() && !body.is_done() {
        let piece = cuts.next().unwrap_or(1).clamp(1, input.len() - at);
        let end = body
            .take_apart(&input[at..at + piece], &mut |piece| {
                if let Piece::Data(run) = piece {
                    data.extend_from_slice(run);
                }
            })
            .map_err(|reject| reject.code)?;
        at += end.consumed;
    }
    Ok((at, body.is_done(), data))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_it_is_cut_a_body_is_the_same(
        (raw, data) in body(),
        cuts in prop::collection::vec(1..20usize, 1..10),
    ) {
        let mut input = raw.clone();
        input.extend_from_slice(b"GET / HTTP/1.1\r\n");
        prop_assert_eq!(feed(&input, &cuts), Ok((raw.len(), true, data)));
    }

    #[test]
    fn however_it_is_cut_what_goes_on_is_plain(
        (raw, data) in body(),
        cuts in prop::collection::vec(1..20usize, 1..10),
    ) {
        let gone = pass_on(&raw, &cuts, |_| true).unwrap();
        prop_assert_eq!(&gone, &pass_on(&raw, &[usize::MAX], |_| true).unwrap());
        prop_assert_eq!(feed(&gone, &[usize::MAX]), Ok((gone.len(), true, data)));
        prop_assert_eq!(&pass_on(&gone, &cuts, |_| true).unwrap(), &gone);
        // The output without trailers is in plain form, so it is forwarded unchanged.
        let bare = pass_on(&raw, &cuts, |_| false).unwrap();
        let step = chunked().forward(&bare).unwrap();
        prop_assert_eq!((step.pass, step.done), (bare.len(), true));
    }

    #[test]
    fn however_it_is_cut_a_mutilated_body_has_the_same_outcome(
        (mut raw, _) in body(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b' '), Just(b'0')],
        cuts in prop::collection::vec(1..20usize, 1..10),
    ) {
        let at = at.index(raw.len());
        raw[at] = byte;
        prop_assert_eq!(feed(&raw, &cuts), feed(&raw, &[usize::MAX]));
    }
}
