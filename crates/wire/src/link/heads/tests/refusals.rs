//! All malformed blocks that a decoder refuses, with the error.

use super::*;

/// Concatenates bytes and text to a block.
macro_rules! block {
    ($($part:expr),* $(,)?) => { [$(&$part[..]),*].concat() };
}

/// A piece of a definition with text.
fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    instruction::put_piece(&mut out, instruction::TEXT, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
    out
}

fn copy(length: u64, from: u64) -> Vec<u8> {
    let mut out = Vec::new();
    instruction::put_piece(&mut out, instruction::COPY, length);
    number::put(&mut out, 0, 8, from);
    out
}

fn slot(kind: u64) -> Vec<u8> {
    let mut out = Vec::new();
    instruction::put_piece(&mut out, instruction::SLOT, kind);
    out
}

const END: &[u8] = &[3];
/// Defines template 0, without a base, for no destination.
const DEFINE: &[u8] = &[0x40, 0, 0];
const SMALL: HeadLimits = HeadLimits {
    templates: 2,
    template_bytes: 600,
    all_bytes: 900,
    max_head_bytes: 300,
};

fn refusal(blocks: &[Vec<u8>]) -> HeadError {
    let mut decoder = Decoder::new(&SMALL);
    let (last, first) = blocks.split_last().expect("a block");
    let mut head = Vec::new();
    for block in first {
        decoder.decode(block, &mut head).expect("a sound block");
    }
    let mut head = b"before".to_vec();
    let error = decoder.decode(last, &mut head).expect_err("refused");
    assert_eq!(head, b"before");
    assert!(decoder.bytes() <= SMALL.all_bytes);
    assert!(!error.to_string().is_empty());
    error
}

/// A template `GET /` whose only field has a slot of `kind` as its value.
fn with_slot(kind: u64) -> Vec<u8> {
    let before = text("GET / HTTP/1.1\r\nA: ");
    block!(DEFINE, before, slot(kind), text("\r\n\r\n"), END)
}

#[test]
fn instructions() {
    use HeadError::{Cut, Full, Instruction, NoTemplate, Number, Over};
    let request = text("GET / HTTP/1.1\r\n\r\n");
    let plain = block!(DEFINE, request, END);
    let long_number = block!([0x20, 0xff], [0x80; 10], [1]);
    let padded_number = block!([0x20, 0xff, 0x80, 0]);
    let sixty_five_bits = block!([0x20, 0xff], [0xff; 9], [1]);
    let cases: &[(&str, &[Vec<u8>], HeadError)] = &[
        ("nothing", &[vec![]], Cut),
        ("a reserved one", &[vec![0]], Instruction),
        ("another", &[vec![0x21]], Instruction),
        ("a use of nothing", &[vec![0x80]], NoTemplate),
        ("a drop of nothing", &[vec![0x10]], NoTemplate),
        (
            "a use of the next",
            &[plain.clone(), vec![0x81]],
            NoTemplate,
        ),
        (
            "a use of a far one",
            &[plain.clone(), block!([0xff], [0xff; 4], [1])],
            NoTemplate,
        ),
        (
            "a use after a drop",
            &[plain.clone(), vec![0x10, 0x80]],
            NoTemplate,
        ),
        (
            "a second drop",
            &[plain.clone(), vec![0x10, 0x10]],
            NoTemplate,
        ),
        (
            "an id that is skipped",
            &[block!([0x41, 0, 0], request, END)],
            NoTemplate,
        ),
        (
            "an id beyond the limit",
            &[
                plain.clone(),
                block!([0x41, 0, 0], request, END),
                block!([0x42, 0, 0], request, END),
            ],
            NoTemplate,
        ),
        (
            "a base that is not there",
            &[block!([0x40, 1, 0], request, END)],
            NoTemplate,
        ),
        ("more than what it says", &[plain, vec![0x80, 0]], Over),
        ("a number that is padded", &[padded_number], Number),
        ("a number too long", &[long_number], Number),
        ("a number too large", &[sixty_five_bits], Number),
        ("a destination that is cut", &[vec![0x20, 5, b'a']], Cut),
        ("a text that is cut", &[block!(DEFINE, [40], b"GET /")], Cut),
        ("no end of pieces", &[block!(DEFINE, request)], Cut),
        (
            "a value that is cut",
            &[block!(with_slot(4), [1, 2, 3])],
            Cut,
        ),
        (
            "a template too large",
            &[block!(DEFINE, text(&"x".repeat(600)), END)],
            Full,
        ),
        (
            "templates too large together",
            &[
                block!(
                    DEFINE,
                    text(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(275))),
                    END
                ),
                block!([0x41, 1, 0], copy(5, 0), slot(0), copy(288, 5), END),
            ],
            Full,
        ),
        (
            "a destination too large",
            &[block!([0x40, 0, 0xff, 0xff, 3], [b'x'; 766], request, END)],
            Full,
        ),
        (
            "more slots than it may cost",
            &[block!(DEFINE, text("GET /"), [2; 20])],
            Full,
        ),
    ];
    for (what, blocks, error) in cases {
        assert_eq!(refusal(blocks), *error, "{what}");
    }
}

#[test]
fn heads() {
    let literal = |head: &str| vec![block!([0x20, 0], head.as_bytes())];
    for head in [
        "",
        "\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n\n",
        "GET / HTTP/1.1\r\nA: b\n\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \0\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n\r\n\r\n",
    ] {
        let error = refusal(&literal(head));
        assert!(matches!(error, HeadError::Head(_)), "{head:?}: {error}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(300));
    assert_eq!(refusal(&literal(&long)), HeadError::TooLong);
}

#[test]
fn templates() {
    for head in [
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n\r\nA: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\n\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x01\r\n\r\n",
        "\r\n\r\n",
        "\r\n",
        "GET /\r\n\r\n",
        "GET  HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET / / HTTP/1.1\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "G(T / HTTP/1.1\r\n\r\n",
        "GET /\t HTTP/1.1\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "GET / HTTP/1.1\r\nA\r\n\r\n",
        "GET / HTTP/1.1\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\n A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent_Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nCookie: a=b\r\n\r\n",
        "GET / HTTP/1.1\r\nauthorization: Bearer x\r\n\r\n",
        "GET / HTTP/1.1\r\nProxy-Authorization: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nSET-COOKIE:x\r\n\r\n",
    ] {
        let error = refusal(&[block!(DEFINE, text(head), END)]);
        assert!(matches!(error, HeadError::Template(_)), "{head:?}: {error}");
    }
}

#[test]
fn cut_points() {
    // A digit marks a slot and gives its kind.
    for head in [
        "0GET / HTTP/1.1\r\n\r\n",
        "GE0T / HTTP/1.1\r\n\r\n",
        "GET 0/ HTTP/1.1\r\n\r\n",
        "GET / 0HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.10\r\n\r\n",
        "GET /00 HTTP/1.1\r\n\r\n",
        "GET /3 HTTP/1.1\r\n\r\n",
        "GET /6 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r0\n\r\n",
        "GET / HTTP/1.1\r\n0A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA0: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r0\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n0\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n\r0\n",
        "GET / HTTP/1.1\r\nA: b\r\n\r\n0",
        "GET / HTTP/1.1\r\nCookie: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nCookie: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nCookie: a1\r\n\r\n",
        "HTTP/1.1 200 O0K\r\n\r\n",
    ] {
        // The digits of version and status are not marks.
        let head = head.replace("1.1", "v").replace("200", "s");
        let mut block = DEFINE.to_vec();
        let mut rest = head.as_str();
        while let Some(at) = rest.find(|mark: char| mark.is_ascii_digit()) {
            let back = |text: &str| text.replace('v', "1.1").replace('s', "200");
            if at > 0 {
                block.extend(text(&back(&rest[..at])));
            }
            block.extend(slot(u64::from(rest.as_bytes()[at] - b'0')));
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            block.extend(text(&rest.replace('v', "1.1").replace('s', "200")));
        }
        block.extend(END);
        let error = refusal(&[block]);
        assert!(matches!(error, HeadError::Template(_)), "{head:?}: {error}");
    }
    let piece = block!(DEFINE, text("GET /"), [7], END);
    assert!(matches!(refusal(&[piece]), HeadError::Template(_)));
    let copy = block!(DEFINE, [5, 0], END);
    assert!(matches!(refusal(&[copy]), HeadError::Template(_)));
}

#[test]
fn values() {
    use HeadError::{Full, TooLong, Value};
    let in_target = block!(
        DEFINE,
        text("GET /"),
        slot(0),
        text(" HTTP/1.1\r\n\r\n"),
        END
    );
    let value = |kind: u64, value: &[u8]| refusal(&[block!(with_slot(kind), value)]);
    let is_value = |error| matches!(error, Value(_));
    for raw in [&b"\r"[..], b"\n", b"\0", b"\x7f", b"\x1b"] {
        assert!(is_value(value(0, &block!([0x21], raw))));
        assert!(is_value(value(1, &block!([0x21], raw))));
    }
    for raw in [&b" "[..], b"\t", b"\x80"] {
        let error = refusal(&[block!(in_target, [0x21], raw)]);
        assert!(is_value(error), "a target has no {raw:?}");
    }
    assert!(is_value(refusal(&[block!(
        in_target,
        [0xc2, 0, 0, 0, 0, 0]
    )])));
    // Remembered values: nothing stored there, no such place, a gap, too long, in a slot that does not remember.
    assert!(is_value(value(0, &[0x00])));
    assert!(is_value(value(0, &[0xe1, 0x21, b'a'])));
    assert!(is_value(value(0, &[0xe8, 0x21, b'a'])));
    assert!(is_value(value(0, &[0xe0, 0xe0, 0x21, b'a'])));
    assert!(is_value(value(
        0,
        &block!([0xe0, 0x3f, 225, 1], [b'a'; 256])
    )));
    assert!(is_value(value(1, &[0x00])));
    assert!(is_value(value(1, &[0xe0, 0x21, b'a'])));
    // Forms: unknown, dates beyond the year 9999, padding bits that are not zero.
    assert!(is_value(value(0, &[0xc3])));
    assert!(is_value(value(0, &[0xdf])));
    assert!(is_value(value(0, &[0xc2, 0xff, 0, 0, 0, 0])));
    assert!(is_value(value(0, &[0x81, 1])));
    assert!(is_value(value(3, &[1])));
    assert!(is_value(value(3, &block!([0xff], [0xff; 8], [0x7f]))));
    // Lengths: a head has at most 300 bytes, whatever length the value claims.
    assert_eq!(value(0, &[0x3f, 0xff, 0xff, 3]), TooLong);
    assert_eq!(value(0, &block!([0x5f, 0x70], [0; 143])), TooLong);
    assert_eq!(value(0, &block!([0x3f, 0xff, 1], [b'a'; 286])), TooLong);
    // Each remembered value has a cost; 7 times 32 + 200 exceeds 600.
    let remember = |place: u8| block!([0x80, 0xe0 | place, 0x3f, 169, 1], [b'a'; 200]);
    let first = block!(with_slot(0), [0x21, b'a']);
    assert_eq!(refusal(&[first, remember(0), remember(1)]), Full);
}

#[test]
fn no_templates_at_all() {
    let limits = HeadLimits {
        templates: 0,
        ..HeadLimits::DEFAULT
    };
    let mut pair = CoderPair::new(limits);
    for _ in 0..2 {
        pair.send(1, "a", REQUEST);
        assert_eq!(pair.block[0], 0x20);
    }
    let mut decoder = Decoder::new(&limits);
    let (block, mut head) = (with_slot(0), Vec::new());
    let error = decoder.decode(&block, &mut head);
    assert_eq!(error, Err(HeadError::NoTemplate));
}
