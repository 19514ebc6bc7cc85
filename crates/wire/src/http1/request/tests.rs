use proptest::prelude::*;

use super::{Method, RequestHead, TargetForm, Version};
use crate::http1::{Edits, Framing, Limits, Reject};

fn parse(text: &str) -> Result<(RequestHead, usize), Reject> {
    let mut head = RequestHead::new();
    let length = head.parse(text.as_bytes(), &Limits::DEFAULT)?;
    Ok((head, length.expect("a whole head")))
}

fn code(text: &str) -> &'static str {
    parse(text).expect_err("a refusal").code
}

/// The head that is forwarded, without hop-by-hop fields.
fn forwarded(text: &str) -> String {
    let (head, length) = parse(text).unwrap();
    let mut edits = Edits::new();
    head.strip_hop_by_hop(text.as_bytes(), &mut edits);
    let mut out = Vec::new();
    edits.write_to(&text.as_bytes()[..length], &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_part_is_found_in_place() {
    let text = "POST /a/b?c=d HTTP/1.1\r\nHost: shop:8080\r\nX-Empty:\r\nContent-Length:  12 \r\n\r\nhello";
    let (head, length) = parse(text).unwrap();
    let buf = text.as_bytes();
    assert_eq!(&text[length..], "hello");
    assert_eq!(
        (head.method, head.method_span.of(buf)),
        (Method::Post, &b"POST"[..])
    );
    assert_eq!(
        (head.form, head.target.of(buf)),
        (TargetForm::Origin, &b"/a/b?c=d"[..])
    );
    assert_eq!(head.path.of(buf), b"/a/b");
    assert_eq!(head.query.map(|query| query.of(buf)), Some(&b"c=d"[..]));
    assert_eq!(
        (head.version, head.version_span.of(buf)),
        (Version::Http11, &b"HTTP/1.1"[..])
    );
    assert_eq!(head.host.map(|host| host.of(buf)), Some(&b"shop:8080"[..]));
    assert_eq!((head.framing, head.keep_alive), (Framing::Length(12), true));
    let lines: Vec<_> = head.fields.iter().map(|field| field.line.of(buf)).collect();
    assert_eq!(
        lines,
        [
            &b"Host: shop:8080\r\n"[..],
            b"X-Empty:\r\n",
            b"Content-Length:  12 \r\n"
        ]
    );
    let values: Vec<_> = head
        .fields
        .iter()
        .map(|field| field.value.of(buf))
        .collect();
    assert_eq!(values, [&b"shop:8080"[..], b"", b"12"]);
}

#[test]
fn the_four_forms_of_a_target() {
    let (head, _) = parse("GET HTTP://Shop:80?x HTTP/1.1\r\nHost: other\r\n\r\n").unwrap();
    let buf = b"GET HTTP://Shop:80?x HTTP/1.1";
    assert_eq!(
        (head.form, head.path.of(buf)),
        (TargetForm::Absolute, &b""[..])
    );
    assert_eq!(head.query.map(|query| query.of(buf)), Some(&b"x"[..]));
    assert_eq!(
        head.target_authority.map(|authority| authority.of(buf)),
        Some(&b"Shop:80"[..])
    );
    let (head, _) = parse("CONNECT shop:443 HTTP/1.1\r\nHost: shop:443\r\n\r\n").unwrap();
    assert_eq!(head.form, TargetForm::Authority);
    let (head, _) = parse("OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
    assert_eq!(head.form, TargetForm::Asterisk);
}

#[test]
fn more_bytes_are_asked_for_until_the_head_is_whole() {
    let text = "\r\nGET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
    let mut head = RequestHead::new();
    for end in 0..text.len() {
        assert_eq!(
            head.parse(&text.as_bytes()[..end], &Limits::DEFAULT),
            Ok(None),
            "{end}"
        );
    }
    assert_eq!(
        head.parse(text.as_bytes(), &Limits::DEFAULT),
        Ok(Some(text.len()))
    );
}

#[test]
fn one_head_is_reused_without_memory_of_the_last() {
    let mut head = RequestHead::new();
    let first = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-A\r\nContent-Length: 5\r\n\r\n";
    head.parse(first, &Limits::DEFAULT).unwrap();
    head.parse(b"GET / HTTP/1.0\r\n\r\n", &Limits::DEFAULT)
        .unwrap();
    assert_eq!(
        (head.host, head.fields.len(), head.framing),
        (None, 0, Framing::None)
    );
    assert!(!head.keep_alive);
    let mut edits = Edits::new();
    head.strip_hop_by_hop(b"GET / HTTP/1.0\r\n\r\n", &mut edits);
    assert!(edits.is_empty());
}

#[test]
fn framing_fields_go_on_in_their_plainest_form() {
    for (field, goes) in [
        ("Transfer-Encoding: CHUNKED", "Transfer-Encoding: chunked"),
        ("transfer-encoding: Chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding:chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked\t", "Transfer-Encoding: chunked"),
        ("transfer-encoding: chunked", "transfer-encoding: chunked"),
        ("Content-Length: 0005", "Content-Length: 5"),
        ("Content-Length: 5 \t", "Content-Length: 5"),
        ("Content-Length:5", "Content-Length: 5"),
        ("Content-Length: 000", "Content-Length: 0"),
        ("CONTENT-LENGTH: 50", "CONTENT-LENGTH: 50"),
        ("Content-Length: 0", "Content-Length: 0"),
        (
            "Content-Length: 09223372036854775807",
            "Content-Length: 9223372036854775807",
        ),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\nX: y\r\n\r\n");
        let expected = format!("POST / HTTP/1.1\r\nHost: a\r\n{goes}\r\nX: y\r\n\r\n");
        assert_eq!(forwarded(&text), expected, "{field:?}");
    }
}

#[test]
fn only_in_http_10_may_host_be_missing_or_empty() {
    for line in ["", "Host:\r\n", "Host: \t\r\n"] {
        let (head, _) = parse(&format!("GET / HTTP/1.0\r\n{line}\r\n")).unwrap();
        assert!(head.host.is_none_or(|host| host.is_empty()), "{line:?}");
    }
    assert_eq!(code("GET / HTTP/1.1\r\n\r\n"), "missing_host");
    assert_eq!(code("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "empty_host");
    assert_eq!(
        code("GET / HTTP/1.0\r\nHost:\r\nHost: a\r\n\r\n"),
        "duplicate_host"
    );
    assert_eq!(code("GET / HTTP/1.0\r\nHost: :80\r\n\r\n"), "empty_host");
}

#[test]
fn the_connection_stays_open_as_version_and_options_say() {
    for (version, option, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        (
            "1.0",
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{option}\r\n");
        assert_eq!(parse(&text).unwrap().0.keep_alive, expected, "{text}");
    }
}

#[test]
fn a_100_is_owed_only_for_a_body_in_http_11() {
    let expect = |version: &str, length: u32| {
        let text = format!(
            "PUT / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: {length}\r\n\r\n"
        );
        parse(&text).unwrap().0.expect_continue
    };
    assert!(expect("1.1", 3));
    assert!(!expect("1.1", 0));
    assert!(!expect("1.0", 3));
}

#[test]
fn hop_by_hop_fields_end_here() {
    assert_eq!(
        forwarded(
            "\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Hop , ,upgrade\r\nKeep-Alive: timeout=5\r\n\
             x-hop: 1\r\nX-Hop-2: stays\r\nUpgrade: websocket\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\n\
             Proxy-Authorization: Basic eA==\r\nAuthorization: Basic eQ==\r\nX-HOP: 2\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: a\r\nX-Hop-2: stays\r\nTE: trailers\r\nAuthorization: Basic eQ==\r\n\r\n"
    );
    assert_eq!(
        forwarded("GET / HTTP/1.1\r\nHost: a\r\nTE: gzip, trailers\r\nConnection: TE\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    );
}

#[test]
fn an_upgrade_is_seen_only_when_connection_says_so_too() {
    let upgrade = |fields: &str| {
        parse(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
            .unwrap()
            .0
            .upgrade
    };
    assert!(upgrade("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert!(!upgrade("Upgrade: websocket\r\n"));
    assert!(!upgrade("Connection: Upgrade\r\n"));
}

#[test]
fn limits_refuse_what_exceeds_them() {
    let limits = Limits {
        max_head_bytes: 200,
        max_fields: 3,
        max_target_bytes: 20,
        ..Limits::DEFAULT
    };
    let refuse = |text: &str| {
        let mut head = RequestHead::new();
        head.parse(text.as_bytes(), &limits)
            .map_err(|reject| (reject.status, reject.code))
    };
    let long = "x".repeat(200);
    assert_eq!(
        refuse(&format!("GET /{long}")),
        Err((414, "target_too_long"))
    );
    assert_eq!(
        refuse("GET /12345678901234567890 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Err((414, "target_too_long"))
    );
    assert_eq!(
        refuse(&format!("GET / HTTP/1.1\r\nA: {long}")),
        Err((431, "head_too_large"))
    );
    let four = "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n";
    assert_eq!(refuse(four), Err((431, "too_many_fields")));
    let three = "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\n\r\n";
    assert_eq!(refuse(three), Ok(Some(three.len())));
}

#[test]
fn a_body_behind_the_head_does_not_count_towards_its_limit() {
    let limits = Limits {
        max_head_bytes: 64,
        ..Limits::DEFAULT
    };
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{}", "x".repeat(1000));
    assert_eq!(
        RequestHead::new().parse(text.as_bytes(), &limits),
        Ok(Some(27))
    );
}

#[test]
fn bounds_on_what_connection_may_name() {
    let many = (0..17)
        .map(|n| format!("x-{n}"))
        .collect::<Vec<_>>()
        .join(",");
    assert_eq!(
        code(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {many}\r\n\r\n"
        )),
        "too_many_connection_options"
    );
}

/// Field lines with names and values that a proxy ignores.
fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let value = "([!-~\u{e9}]([ -~\t]{0,20}[!-~])?)?";
    prop::collection::vec(("X[!#$%&'*+.^_`|~0-9A-Za-z-]{0,12}", value), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_read_as_it_was_written(
        method in "[A-Z!#$%&'*+.^_`|~0-9a-z-]{1,32}",
        path in "/[!-\"$->@-~]{0,40}",
        query in prop::option::of("[!-\"$-~]{0,20}"),
        list in fields(),
        padding in "[ \t]{0,3}",
    ) {
        prop_assume!(method != "CONNECT");
        let mut target = path.clone();
        if let Some(query) = &query {
            target.push('?');
            target.push_str(query);
        }
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: shop\r\n");
        for (name, value) in &list {
            text.push_str(&format!("{name}:{padding}{value}{padding}\r\n"));
        }
        text.push_str("\r\n");
        let (head, length) = parse(&text).unwrap();
        let buf = text.as_bytes();
        prop_assert_eq!(length, text.len());
        prop_assert_eq!(head.method_span.of(buf), method.as_bytes());
        prop_assert_eq!(head.target.of(buf), target.as_bytes());
        prop_assert_eq!(head.path.of(buf), path.as_bytes());
        prop_assert_eq!(head.query.map(|span| span.of(buf)), query.as_ref().map(String::as_bytes));
        let read: Vec<_> = head.fields[1..]
            .iter()
            .map(|field| (field.name.of(buf), field.value.of(buf)))
            .collect();
        let written: Vec<_> =
            list.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(read, written);
    }

    /// Any input gets an answer, and an accepted head is not accepted with one byte less.
    #[test]
    fn a_mutilated_request_is_refused_or_read(
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':')],
        list in fields(),
    ) {
        let mut text = b"POST /a/b?c HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n".to_vec();
        for (name, value) in &list {
            text.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        text.extend_from_slice(b"\r\n");
        let at = at.index(text.len());
        text[at] = byte;
        let mut head = RequestHead::new();
        if let Ok(Some(length)) = head.parse(&text, &Limits::DEFAULT) {
            prop_assert_eq!(head.parse(&text[..length - 1], &Limits::DEFAULT), Ok(None));
        }
    }
}
