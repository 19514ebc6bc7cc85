//! Translates heads from HTTP/1.1 to HTTP/2 and back (RFC 9113 section 8).
//!
//! Both ends see the other's heads as HTTP/1.1: a received head is written as text, and parsed as strictly as any other
//! head. A body without a length is announced as chunked, whatever its real framing.

use std::cell::RefCell;
use std::io::Write;

use bytes::Bytes;
use heddle_wire::http1::{
    Field, FieldKind, Framing, Limits, MAX_FIELDS, Method, RequestHead, ResponseHead, Span,
    TargetForm,
};
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{StatusCode, Uri, request, response};

/// The field that names the endpoint and Service that a request calls.
pub(super) const DESTINATION: HeaderName = HeaderName::from_static("heddle-destination");

/// Up to this length, the values of a head share one copy of its bytes. An HPACK table that keeps one of the values
/// keeps the whole copy in memory.
const SHARED_BYTES: usize = 4 * 1024;

/// The parser's largest limits: a head that was accepted must be forwarded.
const LIMITS: Limits = Limits {
    max_head_bytes: u16::MAX as usize,
    max_fields: MAX_FIELDS,
    max_target_bytes: u16::MAX as usize,
    ..Limits::DEFAULT
};

thread_local! {
    static REQUEST: RefCell<RequestHead> = RefCell::default();
    static RESPONSE: RefCell<ResponseHead> = RefCell::default();
}

/// An outgoing head in HTTP/2 form.
#[derive(Debug)]
pub(super) struct Translated<T> {
    pub(super) head: T,
    /// The framing of its body, as in HTTP/1.1.
    pub(super) framing: Framing,
    pub(super) method: Method,
}

impl<T> Translated<T> {
    /// Whether the message has no body.
    pub(super) fn is_all(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }
}

/// Translates a request's head to HTTP/2. `None` if HTTP/2 cannot represent it, for example because of some bytes in
/// its path.
pub(super) fn request(
    head: &[u8],
    destination: &HeaderValue,
) -> Option<Translated<http::Request<()>>> {
    REQUEST.with_borrow_mut(|parsed| {
        let length = parsed.parse(head, &LIMITS).ok().flatten()?;
        if !matches!(parsed.form, TargetForm::Origin | TargetForm::Asterisk) {
            return None;
        }
        let values = Values::new(&head[..length]);
        let method = http::Method::from_bytes(parsed.method_span.of(head)).ok()?;
        let path = PathAndQuery::from_maybe_shared(values.bytes(parsed.target)).ok()?;
        let host = parsed.host.map(|span| values.bytes(span));
        let authority = host.and_then(|host| Authority::from_maybe_shared(host).ok());
        let mut fields = HeaderMap::with_capacity(parsed.fields.len() + 2);
        fields.insert(DESTINATION, destination.clone());
        let named = authority.is_some();
        for field in &parsed.fields {
            if field.kind != FieldKind::Host || !named {
                values.add(field, &mut fields)?;
            }
        }
        let mut target = http::uri::Parts::default();
        target.scheme = named.then_some(Scheme::HTTP);
        target.authority = authority;
        target.path_and_query = Some(path);
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(target).ok()?;
        *request.headers_mut() = fields;
        Some(Translated {
            head: request,
            framing: parsed.framing,
            method: parsed.method,
        })
    })
}

/// Translates the head of a response to a request with `method` to HTTP/2. `None` if HTTP/2 cannot represent it.
pub(super) fn response(head: &[u8], method: Method) -> Option<Translated<http::Response<()>>> {
    RESPONSE.with_borrow_mut(|parsed| {
        let length = parsed.parse(head, &LIMITS, method).ok().flatten()?;
        if parsed.status == 101 {
            return None;
        }
        let values = Values::new(&head[..length]);
        let mut fields = HeaderMap::with_capacity(parsed.fields.len());
        for field in &parsed.fields {
            values.add(field, &mut fields)?;
        }
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(parsed.status).ok()?;
        *response.headers_mut() = fields;
        Some(Translated {
            head: response,
            framing: parsed.framing,
            method,
        })
    })
}

/// Creates the values of a head, which share one copy of its text, or are copied one by one.
struct Values<'a> {
    text: &'a [u8],
    shared: Option<Bytes>,
}

impl<'a> Values<'a> {
    fn new(text: &'a [u8]) -> Self {
        let shared = text.len() <= SHARED_BYTES;
        let shared = shared.then(|| Bytes::copy_from_slice(text));
        Values { text, shared }
    }

    fn bytes(&self, span: Span) -> Bytes {
        match &self.shared {
            Some(shared) => shared.slice(usize::from(span.start)..usize::from(span.end)),
            None => Bytes::copy_from_slice(span.of(self.text)),
        }
    }

    /// Adds a field, unless it is hop-by-hop or belongs to the node protocol.
    fn add(&self, field: &Field, fields: &mut HeaderMap) -> Option<()> {
        let stays = match field.kind {
            FieldKind::TransferEncoding => true,
            FieldKind::Te => {
                // HTTP/2 allows only the value `trailers`, in lower case and once (RFC 9113 section 8.2.2).
                if field.value.of(self.text).eq_ignore_ascii_case(b"trailers") {
                    fields.insert(TE, HeaderValue::from_static("trailers"));
                }
                true
            }
            kind => kind.is_hop_by_hop(),
        };
        let name = HeaderName::from_bytes(field.name.of(self.text)).ok()?;
        if stays || name == DESTINATION {
            return Some(());
        }
        let value = HeaderValue::from_maybe_shared(self.bytes(field.value)).ok()?;
        fields.try_append(name, value).ok()?;
        Some(())
    }
}

/// Writes a request's head as HTTP/1.1. `ended` means that no body follows.
pub(super) fn write_request(head: &request::Parts, ended: bool, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let path = head.uri.path_and_query();
    out.extend_from_slice(path.map_or("/", PathAndQuery::as_str).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let authority = head.uri.authority().map(Authority::as_str);
    if let Some(authority) = authority {
        field(out, HOST.as_str(), authority.as_bytes());
    }
    put_fields(&head.headers, authority.is_some(), out);
    let has_end = ended || head.headers.contains_key(CONTENT_LENGTH);
    finish(has_end, out);
}

/// Writes the head of a response to a request with `method` as HTTP/1.1. `ended` means that no body follows.
pub(super) fn write_response(
    head: &response::Parts,
    method: Method,
    ended: bool,
    out: &mut Vec<u8>,
) {
    out.clear();
    let phrase = head.status.canonical_reason().unwrap_or_default();
    // Writing to a vector cannot fail.
    let _ = write!(out, "HTTP/1.1 {} {phrase}\r\n", head.status.as_u16());
    put_fields(&head.headers, false, out);
    let bare = method == Method::Head || matches!(head.status.as_u16(), 100..200 | 204 | 304);
    let has_end = bare || head.headers.contains_key(CONTENT_LENGTH);
    if ended && !has_end {
        field(out, CONTENT_LENGTH.as_str(), b"0");
    }
    finish(has_end || ended, out);
}

fn put_fields(fields: &HeaderMap, has_host: bool, out: &mut Vec<u8>) {
    if fields.contains_key(COOKIE) {
        // All cookies are joined in one line (RFC 9113 section 8.2.3). An empty one would leave a separator at the end.
        out.extend_from_slice(b"cookie: ");
        let cookies = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
        for (index, cookie) in cookies.filter(|cookie| !cookie.is_empty()).enumerate() {
            if index > 0 {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(cookie);
        }
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in fields {
        if *name != COOKIE && *name != DESTINATION && !(has_host && *name == HOST) {
            field(out, name.as_str(), value.as_bytes());
        }
    }
}

/// Ends a head. If it does not frame its body yet, the body is announced as chunked.
fn finish(has_end: bool, out: &mut Vec<u8>) {
    if !has_end {
        field(out, "transfer-encoding", b"chunked");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes one field line.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
