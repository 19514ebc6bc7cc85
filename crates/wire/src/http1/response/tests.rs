use super::ResponseHead;
use crate::http1::{Edits, Framing, Limits, Method, Reject, Version};

fn parse(text: &str, method: Method) -> Result<(ResponseHead, usize), Reject> {
    let mut head = ResponseHead::new();
    let length = head.parse(text.as_bytes(), &Limits::DEFAULT, method)?;
    Ok((head, length.expect("a whole head")))
}

#[test]
fn every_part_is_found_in_place() {
    let text = "HTTP/1.1 201 Created at last\r\nServer: x\r\nContent-Length: 3\r\n\r\nabc";
    let (head, length) = parse(text, Method::Post).unwrap();
    let buf = text.as_bytes();
    assert_eq!(&text[length..], "abc");
    assert_eq!((head.status, head.status_span.of(buf)), (201, &b"201"[..]));
    assert_eq!(
        (head.version, head.version_span.of(buf)),
        (Version::Http11, &b"HTTP/1.1"[..])
    );
    assert_eq!((head.framing, head.keep_alive), (Framing::Length(3), true));
    assert_eq!(head.fields[0].line.of(buf), b"Server: x\r\n");
}

#[test]
fn where_the_body_ends() {
    let length = "Content-Length: 9\r\n";
    let chunked = "Transfer-Encoding: Chunked\r\n";
    for (status, method, fields, expected) in [
        (200, Method::Get, length, Framing::Length(9)),
        (200, Method::Get, chunked, Framing::Chunked),
        (200, Method::Get, "", Framing::UntilClose),
        (200, Method::Head, length, Framing::None),
        (200, Method::Head, chunked, Framing::None),
        (200, Method::Head, "", Framing::None),
        (204, Method::Get, length, Framing::None),
        (304, Method::Get, length, Framing::None),
        (100, Method::Get, "", Framing::None),
        (101, Method::Get, "", Framing::None),
        (404, Method::Options, length, Framing::Length(9)),
    ] {
        let text = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
        let (head, _) = parse(&text, method).unwrap();
        assert_eq!(head.framing, expected, "{text}");
        let contradicts = status == 204;
        assert_eq!(
            head.keep_alive,
            expected != Framing::UntilClose && !contradicts,
            "{text}"
        );
    }
}

#[test]
fn a_connection_is_done_with_when_fields_announce_what_the_status_forbids() {
    let kept = |status: u16, field: &str| {
        let text = format!("HTTP/1.1 {status} X\r\n{field}\r\n\r\n");
        parse(&text, Method::Get).unwrap().0.keep_alive
    };
    for status in [100, 103, 204] {
        assert!(kept(status, "Content-Length: 0"), "{status}");
        assert!(!kept(status, "Content-Length: 1"), "{status}");
        assert!(!kept(status, "Transfer-Encoding: chunked"), "{status}");
    }
    assert!(kept(304, "Content-Length: 1") && kept(304, "Transfer-Encoding: chunked"));
}

#[test]
fn interim_responses_but_no_switch_of_protocols() {
    let interim = |status| {
        parse(&format!("HTTP/1.1 {status}\r\n\r\n"), Method::Get)
            .unwrap()
            .0
    };
    assert!(interim(100).is_interim() && interim(103).is_interim());
    assert!(!interim(101).is_interim() && !interim(200).is_interim());
}

#[test]
fn a_server_of_http_10_closes_unless_it_says_otherwise() {
    let keep = |fields: &str| {
        parse(
            &format!("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n{fields}\r\n"),
            Method::Get,
        )
        .unwrap()
        .0
        .keep_alive
    };
    assert!(!keep(""));
    assert!(keep("Connection: keep-alive\r\n"));
}

#[test]
fn more_bytes_are_asked_for_until_the_head_is_whole() {
    let text = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
    let mut head = ResponseHead::new();
    for end in 0..text.len() {
        assert_eq!(
            head.parse(&text[..end], &Limits::DEFAULT, Method::Get),
            Ok(None),
            "{end}"
        );
    }
}

#[test]
fn reasons_may_be_anything_printable_or_nothing() {
    for line in [
        "HTTP/1.1 200",
        "HTTP/1.1 200 ",
        "HTTP/1.1 200 Tr\u{e8}s bien",
        "HTTP/1.0 200 a\tb",
    ] {
        let text = format!("{line}\r\nA: b\r\n\r\n");
        let (head, length) = parse(&text, Method::Get).unwrap();
        assert_eq!(
            (head.status, head.fields.len(), length),
            (200, 1, text.len()),
            "{line}"
        );
    }
}

#[test]
fn hop_by_hop_fields_end_here() {
    let text = "\r\nHTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                Content-Length: 0\r\nUpgrade: h2c\r\nServer: x\r\n\r\n";
    let forwarded = |text: &str| {
        let (head, length) = parse(text, Method::Get).unwrap();
        let mut edits = Edits::new();
        head.strip_hop_by_hop(text.as_bytes(), &mut edits);
        let mut out = Vec::new();
        edits.write_to(&text.as_bytes()[..length], &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        forwarded(text),
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: x\r\n\r\n"
    );
    assert_eq!(
        forwarded("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nETag: x\r\n\r\n"),
        "HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n"
    );
    assert_eq!(
        forwarded("HTTP/1.1 200 OK\r\nContent-Length:\t007\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
    );
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    for (text, code) in [
        ("HTTP/1.1 200 OK\nA: b\r\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\n", "bare_lf"),
        ("HTTP/1.1 200\n\n", "bare_lf"),
        ("\nHTTP/1.1 200 OK\r\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 O\rK\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 \x01\r\n\r\n", "control_character"),
        ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", "nul"),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "space_before_colon"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "obs_fold"),
        ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", "obs_fold"),
        ("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "field_without_colon"),
        ("HTTP/1.1  200 OK\r\n\r\n", "malformed_status_line"),
        ("HTTP/1.1 20 OK\r\n\r\n", "malformed_status_line"),
        ("HTTP/1.1 2000 OK\r\n\r\n", "malformed_status_line"),
        ("HTTP/1.1 -20 OK\r\n\r\n", "malformed_status_line"),
        ("HTTP/1.1 099 X\r\n\r\n", "status_out_of_range"),
        ("HTTP/1.1 600 X\r\n\r\n", "status_out_of_range"),
        ("HTTP/2.0 200 OK\r\n\r\n", "unsupported_version"),
        ("HTTP/2 200\r\n\r\n", "unsupported_version"),
        ("http/1.1 200 OK\r\n\r\n", "malformed_version"),
        ("220 smtp.example ESMTP\r\n", "malformed_version"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "duplicate_content_length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
            "malformed_content_length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "content_length_with_transfer_encoding",
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "transfer_encoding_in_http10",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "unsupported_transfer_coding",
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 1\r\n\r\n",
            "connection_nominates_protected",
        ),
    ] {
        assert_eq!(
            parse(text, Method::Get)
                .map(|(head, _)| head.status)
                .map_err(|r| r.code),
            Err(code),
            "{text:?}"
        );
    }
}

#[test]
fn limits_refuse_what_exceeds_them() {
    let limits = Limits {
        max_head_bytes: 100,
        max_fields: 2,
        ..Limits::DEFAULT
    };
    let refuse = |text: &str| {
        ResponseHead::new()
            .parse(text.as_bytes(), &limits, Method::Get)
            .map_err(|r| r.code)
    };
    assert_eq!(
        refuse(&format!("HTTP/1.1 200 {}", "x".repeat(100))),
        Err("head_too_large")
    );
    let three = "HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n";
    assert_eq!(refuse(three), Err("too_many_fields"));
}
