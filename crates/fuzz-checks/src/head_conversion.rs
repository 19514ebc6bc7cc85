//! A head converted between HTTP/1.1, links and HTTP/2 keeps its meaning, and a head from HTTP/2 has as many fields in
//! HTTP/1.1, or is refused.
//!
//! The first byte chooses the kind of head and its protocol. For HTTP/2 the first line has a method, a path and an
//! authority, or a status; the other lines are fields.

use std::collections::BTreeMap;

use heddle_proxy::fuzzing;
use heddle_wire::http1::{
    Edits, Field, FieldKind, Framing, Limits, Method, RequestHead, ResponseHead, TargetForm,
};
use heddle_wire::link::heads::{Decoder, Encoder, HeadLimits};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Uri, request, response};

/// A converted head may be longer than its input.
const LIMITS: Limits = Limits {
    max_head_bytes: u16::MAX as usize,
    max_target_bytes: u16::MAX as usize,
    ..Limits::DEFAULT
};
/// Fields that h2 refuses before it reports a request (RFC 9113 section 8.2.2).
const REFUSED: [&str; 6] = [
    "connection",
    "transfer-encoding",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "te",
];
const DESTINATION: &str = "heddle-destination";

/// The values of each name, in their order.
type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    let method = match how & 4 {
        0 => Method::Get,
        _ => Method::Head,
    };
    match how % 4 {
        0 => request_goes_and_comes(data),
        1 => response_goes_and_comes(data, method),
        2 => drop(request_comes(data, how & 8 != 0)),
        _ => drop(response_comes(data, method, how & 8 != 0)),
    }
}

fn request_goes_and_comes(data: &[u8]) {
    let mut head = RequestHead::new();
    let Ok(Some(length)) = head.parse(data, &Limits::DEFAULT) else {
        return;
    };
    let mut edits = Edits::new();
    head.strip_hop_by_hop(data, &mut edits);
    let mut sent = Vec::new();
    edits.write_to(&data[..length], &mut sent);
    if head.parse(&sent, &LIMITS) != Ok(Some(sent.len())) {
        return;
    }
    over_a_link(&sent);
    if head.host.is_none_or(|host| host.of(&sent).is_empty()) {
        // A proxy gives a request of HTTP/1.0 without Host, or with an empty one, a Host before it converts it.
        return;
    }
    let Some((parts, framing)) = fuzzing::request(&sent) else {
        return;
    };
    assert!(matches!(
        head.form,
        TargetForm::Origin | TargetForm::Asterisk
    ));
    assert_eq!(framing, head.framing);
    let text = fuzzing::write_request(&parts, framing == Framing::None);
    let mut again = RequestHead::new();
    let length = again.parse(&text, &LIMITS);
    assert_eq!(length, Ok(Some(text.len())), "{}", text.escape_ascii());
    assert_eq!(
        (again.method_span.of(&text), again.target.of(&text)),
        (head.method_span.of(&sent), head.target.of(&sent))
    );
    let host = |head: &RequestHead, text: &[u8]| head.host.map(|span| span.of(text).to_vec());
    assert_eq!(host(&again, &text), host(&head, &sent));
    assert_eq!(again.framing, framing);
    assert_eq!(again.expect_continue, head.expect_continue);
    assert_eq!(fields(&text, &again.fields), fields(&sent, &head.fields));
    // Converting the result again does not change it.
    let (parts, _) = fuzzing::request(&text).expect("it was one");
    assert_eq!(
        fuzzing::write_request(&parts, framing == Framing::None),
        text
    );
}

fn response_goes_and_comes(data: &[u8], method: Method) {
    let mut head = ResponseHead::new();
    let Ok(Some(length)) = head.parse(data, &Limits::DEFAULT, method) else {
        return;
    };
    let mut edits = Edits::new();
    head.strip_hop_by_hop(data, &mut edits);
    let mut sent = Vec::new();
    edits.write_to(&data[..length], &mut sent);
    if head.parse(&sent, &LIMITS, method) != Ok(Some(sent.len())) {
        return;
    }
    over_a_link(&sent);
    let Some((parts, framing)) = fuzzing::response(&sent, method) else {
        return;
    };
    assert_eq!(framing, head.framing);
    let is_all = matches!(framing, Framing::None | Framing::Length(0));
    let text = fuzzing::write_response(&parts, method, is_all);
    let mut again = ResponseHead::new();
    let length = again.parse(&text, &LIMITS, method);
    assert_eq!(length, Ok(Some(text.len())), "{}", text.escape_ascii());
    assert_eq!(again.status, head.status);
    let expected = match framing {
        Framing::UntilClose => Framing::Chunked,
        framing => framing,
    };
    assert_eq!(again.framing, expected, "{}", text.escape_ascii());
    assert_eq!(fields(&text, &again.fields), fields(&sent, &head.fields));
}

/// A link carries a head byte for byte, or refuses it.
fn over_a_link(head: &[u8]) {
    let limits = HeadLimits::DEFAULT;
    if head.len() > limits.max_head_bytes as usize {
        return;
    }
    let (mut block, mut out) = (Vec::new(), Vec::new());
    Encoder::new(&limits).encode(0, b"a", head, &mut block);
    let decoded = Decoder::new(&limits).decode(&block, &mut out).is_ok();
    assert!(decoded, "{}", head.escape_ascii());
    assert_eq!(out, head);
}

/// The fields of a head without framing and host. Cookies that are not empty are joined into one (RFC 9113 section 8.2.3).
fn fields(text: &[u8], all: &[Field]) -> Fields {
    let mut found = Fields::new();
    for field in all {
        let name = String::from_utf8_lossy(field.name.of(text)).to_ascii_lowercase();
        let stays = matches!(
            field.kind,
            FieldKind::Host | FieldKind::ContentLength | FieldKind::TransferEncoding
        );
        if stays || name == DESTINATION || field.kind.is_hop_by_hop() && name != "te" {
            continue;
        }
        let value = match &*name {
            "te" => field.value.of(text).to_ascii_lowercase(),
            _ => field.value.of(text).to_vec(),
        };
        let values = found.entry(name.clone()).or_default();
        match &*name {
            "te" => *values = vec![value],
            _ => values.push(value),
        }
    }
    if let Some(cookies) = found.get_mut("cookie") {
        *cookies = vec![joined(cookies.iter().map(Vec::as_slice))];
    }
    found
}

fn joined<'a>(cookies: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let cookies: Vec<&[u8]> = cookies.filter(|cookie| !cookie.is_empty()).collect();
    cookies.join(&b"; "[..]).trim_ascii().to_vec()
}

/// Field lines as an HTTP/2 header map.
fn header_map(lines: &[&[u8]]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (name, value)
            && !REFUSED.contains(&name.as_str())
            // Another spelling of a field for one connection, such as `proxy+connection`, is not forwarded either.
            && !FieldKind::of(name.as_str().as_bytes()).is_hop_by_hop()
        {
            map.append(name, value);
        }
    }
    map
}

/// The fields of an HTTP/2 head in the form of `fields`, and the number of their lines.
fn expected(map: &HeaderMap, has_host: bool) -> (Fields, usize) {
    let (mut found, mut lines) = (Fields::new(), 0);
    for (name, value) in map {
        let name = name.as_str();
        if name == DESTINATION || name == "host" && has_host {
            continue;
        }
        lines += 1;
        if !["host", "content-length"].contains(&name) {
            let values = found.entry(name.to_owned()).or_default();
            values.push(value.as_bytes().trim_ascii().to_vec());
        }
    }
    if let Some(cookies) = found.get_mut("cookie") {
        lines -= cookies.len() - 1;
        let all = map.get_all("cookie").iter().map(HeaderValue::as_bytes);
        *cookies = vec![joined(all)];
    }
    (found, lines)
}

fn request_comes(data: &[u8], ended: bool) -> Option<()> {
    let lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let (first, rest) = lines.split_first()?;
    let words: Vec<&[u8]> = first.split(|&byte| byte == b' ').collect();
    let [method, path, authority] = words[..] else {
        return None;
    };
    let mut target = http::uri::Parts::default();
    target.path_and_query = Some(path.try_into().ok()?);
    if !authority.is_empty() {
        target.scheme = Some(http::uri::Scheme::HTTP);
        target.authority = Some(authority.try_into().ok()?);
    }
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::from_bytes(method).ok()?;
    *request.uri_mut() = Uri::from_parts(target).ok()?;
    *request.headers_mut() = header_map(rest);
    let (parts, ()): (request::Parts, ()) = request.into_parts();
    let text = fuzzing::write_request(&parts, ended);
    let mut head = RequestHead::new();
    // A head that is invalid in HTTP/1.1 is refused, as on every connection.
    let length = head.parse(&text, &LIMITS).ok()?;
    assert_eq!(length, Some(text.len()), "{}", text.escape_ascii());
    assert_eq!(head.method_span.of(&text), method);
    let written = parts.uri.path_and_query()?.as_str();
    assert_eq!(head.target.of(&text), written.as_bytes());
    if !authority.is_empty() {
        assert_eq!(head.host.map(|host| host.of(&text)), Some(authority));
    }
    let (expected, mut lines) = expected(&parts.headers, !authority.is_empty());
    assert_eq!(fields(&text, &head.fields), expected);
    lines += usize::from(!authority.is_empty());
    let has_length = parts.headers.contains_key("content-length");
    lines += usize::from(!ended && !has_length);
    assert_eq!(head.fields.len(), lines, "{}", text.escape_ascii());
    match head.framing {
        Framing::Length(_) => assert!(has_length),
        Framing::Chunked => assert!(!ended && !has_length),
        framing => assert!(ended && framing == Framing::None),
    }
    Some(())
}

fn response_comes(data: &[u8], method: Method, ended: bool) -> Option<()> {
    let lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let (first, rest) = lines.split_first()?;
    let mut response = http::Response::new(());
    *response.status_mut() = http::StatusCode::from_bytes(first).ok()?;
    *response.headers_mut() = header_map(rest);
    let (parts, ()): (response::Parts, ()) = response.into_parts();
    let text = fuzzing::write_response(&parts, method, ended);
    let mut head = ResponseHead::new();
    let length = head.parse(&text, &LIMITS, method).ok()?;
    assert_eq!(length, Some(text.len()), "{}", text.escape_ascii());
    assert_eq!(head.status, parts.status.as_u16());
    let (expected, lines) = expected(&parts.headers, false);
    assert_eq!(fields(&text, &head.fields), expected);
    // The conversion may add one field, for the framing of the body.
    assert!((lines..=lines + 1).contains(&head.fields.len()));
    assert_ne!(head.framing, Framing::UntilClose, "{}", text.escape_ascii());
    Some(())
}
