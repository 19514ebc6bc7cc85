//! Compares the parser with httparse, which accepts a little more: bare LFs, and targets beyond ASCII. Apart from that,
//! both must agree on heads that are generated, mutilated and truncated.

use super::{Stop, Window};
use crate::http1::{Field, FieldKind, Limits, RequestHead, ResponseHead, Span, Version};

const CASES: u32 = 200_000;
const MAX_FIELDS: usize = 6;
const LIMITS: Limits = Limits {
    max_fields: MAX_FIELDS,
    ..Limits::DEFAULT
};

const REQUESTS: [&str; 7] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /a/b?c=d&e=%20f HTTP/1.1\r\nHost: shop:8080\r\nX-Empty:\r\nContent-Length:  12 \r\n\r\nhello",
    "x-method!#$ http://shop.example/a-path-of-more-than-sixteen-bytes?query=of-more-than-sixteen HTTP/1.0\r\n\
     A-Name_Of.More~Than-Sixteen-Bytes: value\r\nb:c\r\n\r\n",
    "PUT /x HTTP/1.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \u{e9}\u{e8} \t more\r\nTab:\t\tx\ty\t\r\n\
     Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n\r\n",
    "\r\nCONNECT shop:443 HTTP/1.1\r\nHost: shop:443\r\nBlank:  \t \r\n\r\n",
    "GET /some/path#part HTTP/1.1\r\n\r\n",
];

const RESPONSES: [&str; 6] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nDate: Mon, 06 Jul 2026 10:11:12 GMT\r\nContent-Type: application/json\r\n\
     Content-Length: 128\r\nETag: \"5f2b-61d84a0c\"\r\nVary: Accept-Encoding\r\n\r\n{\"a\":1}",
    "HTTP/1.0 404\r\nA:b\r\n\r\n",
    "HTTP/1.1 204 \r\n\r\n",
    "\r\n\r\nHTTP/1.1 500 Tr\u{e8}s mauvais,\tand of more than sixteen bytes\r\nX: \u{e9}\t\r\n\r\n",
    "HTTP/1.1 999 X\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nF: 6\r\nG: 7\r\n\r\n",
];

/// Fragments that are inserted at random places.
const PIECES: [&[u8]; 22] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"?",
    b"#",
    b"\x7f",
    b"\x80",
    b"\xc3\xa9",
    b"\x1f",
    b"_",
    b"-",
    b"/",
    b"@",
    b"a-run-of-twenty-bytes",
    b"\r\n\r\n",
    b"HTTP/1.1",
    b"X: y\r\n",
    b"200",
];

/// Pseudo-random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % bound
    }

    /// A head with up to three errors.
    fn mutilated(&mut self, heads: &[&str]) -> Vec<u8> {
        let mut bytes = heads[self.below(heads.len())].as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(20)).min(bytes.len());
            let piece = PIECES[self.below(PIECES.len())];
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                3 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                4 => drop(bytes.splice(at..end, piece.iter().copied())),
                _ => drop(bytes.splice(at..at, piece.iter().copied())),
            }
        }
        bytes
    }
}

/// The result of a reader: the end of the head, the parts of its first line, and its fields.
type Read = (usize, Vec<Span>, Vec<Field>);

/// The result of httparse; `None` when it needs more bytes.
fn peer(bytes: &[u8], start: usize, is_request: bool) -> Result<Option<Read>, httparse::Error> {
    let message = &bytes[start..];
    let mut table = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let offset = |part: &[u8]| part.as_ptr() as usize - bytes.as_ptr() as usize;
    let span = |part: &[u8]| Span::new(offset(part), offset(part) + part.len());
    let (length, parts, headers) = if is_request {
        let mut parsed = httparse::Request::new(&mut table);
        let httparse::Status::Complete(length) = parsed.parse(message)? else {
            return Ok(None);
        };
        let method = span(parsed.method.unwrap_or_default().as_bytes());
        let target = span(parsed.path.unwrap_or_default().as_bytes());
        (length, vec![method, target], &*parsed.headers)
    } else {
        let mut parsed = httparse::Response::new(&mut table);
        let httparse::Status::Complete(length) = parsed.parse(message)? else {
            return Ok(None);
        };
        let digits = start + "HTTP/1.1 ".len();
        (
            length,
            vec![Span::new(digits, digits + 3)],
            &*parsed.headers,
        )
    };
    let mut fields = Vec::new();
    for header in headers {
        let (name, value) = (span(header.name.as_bytes()), span(header.value));
        let rest = &bytes[usize::from(value.end)..];
        let line_end = rest.iter().position(|&byte| byte == b'\n');
        let line_end = usize::from(value.end) + line_end.expect("each line ends") + 1;
        fields.push(Field {
            line: Span::new(usize::from(name.start), line_end),
            name,
            value,
            kind: FieldKind::of(header.name.as_bytes()),
        });
    }
    Ok(Some((start + length, parts, fields)))
}

/// The result of our parser.
fn own(window: &Window<'_>, is_request: bool) -> Result<Read, Stop> {
    let after = |span: Span| Span::new(usize::from(span.end) + 1, usize::from(span.end) + 9);
    if is_request {
        let mut head = RequestHead::new();
        let (target, length) = head.lines(window, &LIMITS)?;
        assert_eq!(usize::from(head.start), window.start);
        assert_eq!(head.version_span, after(head.target));
        assert_eq!(version(window.bytes, head.version_span), head.version);
        let text = head.target.of(window.bytes);
        let mark = text.iter().position(|&byte| byte == b'?');
        assert_eq!(
            target.query_mark,
            mark.map(|at| usize::from(head.target.start) + at)
        );
        assert_eq!(target.has_fragment, text.contains(&b'#'));
        Ok((length, vec![head.method_span, head.target], head.fields))
    } else {
        let mut head = ResponseHead::new();
        let length = head.lines(window, &LIMITS)?;
        assert_eq!(usize::from(head.start), window.start);
        assert_eq!(usize::from(head.version_span.start), window.start);
        assert_eq!(version(window.bytes, head.version_span), head.version);
        assert_eq!(
            head.status_span.of(window.bytes),
            format!("{:03}", head.status).as_bytes()
        );
        Ok((length, vec![head.status_span], head.fields))
    }
}

fn version(bytes: &[u8], span: Span) -> Version {
    match span.of(bytes) {
        b"HTTP/1.0" => Version::Http10,
        b"HTTP/1.1" => Version::Http11,
        other => panic!("{other:?}"),
    }
}

/// Whether the message has a feature that only httparse accepts.
fn is_too_much(message: &[u8], is_request: bool) -> bool {
    let bare = |(at, &byte): (usize, &u8)| byte == b'\n' && (at == 0 || message[at - 1] != b'\r');
    let mut lines = message.split(|&byte| byte == b'\n');
    let first_line = lines.next().unwrap_or_default();
    message.iter().enumerate().any(bare) || (is_request && !first_line.is_ascii())
}

fn compare(heads: &[&str], is_request: bool, seed: u64) {
    let mut random = Random(seed);
    let mut seen = [0; 4];
    for _ in 0..CASES {
        let bytes = random.mutilated(heads);
        let Ok(Some(window)) = Window::of(&bytes, &LIMITS) else {
            continue;
        };
        let own = own(&window, is_request);
        let peer = peer(&bytes, window.start, is_request);
        let shown = bytes.escape_ascii();
        match (own, peer) {
            (Ok(own), Ok(Some(peer))) => {
                assert_eq!(own, peer, "{shown}");
                assert!(
                    !is_too_much(&bytes[window.start..own.0], is_request),
                    "{shown}"
                );
                seen[0] += 1;
            }
            (Err(Stop::Incomplete), Ok(None)) => seen[1] += 1,
            (Err(stop), Err(_)) if stop != Stop::Incomplete => seen[2] += 1,
            (Err(stop), Ok(peer)) if stop != Stop::Incomplete => {
                let end = peer.map_or(bytes.len(), |(length, ..)| length);
                assert!(
                    is_too_much(&bytes[window.start..end], is_request),
                    "{shown}"
                );
                seen[3] += 1;
            }
            (own, peer) => panic!("{own:?} beside {peer:?}: {shown}"),
        }
    }
    assert!(seen.iter().all(|&count| count > CASES / 200), "{seen:?}");
}

#[test]
fn requests_are_read_as_httparse_reads_them() {
    compare(&REQUESTS, true, 1);
}

#[test]
fn responses_are_read_as_httparse_reads_them() {
    compare(&RESPONSES, false, 2);
}
