//! The little of HTTP/1.1 that a load generator and its upstream need.
//!
//! Both ends are ours and only a proxy stands between them, so this reads just what proves that an
//! answer is the right one: status, length, and where the head ends. It is no parser to build on.

use memchr::memmem;

/// What the load generator checks of a response.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct Response {
    /// Bytes of the head, its empty line included.
    pub(super) head_len: usize,
    pub(super) status: u16,
    /// The declared length of the body in bytes.
    pub(super) content_length: u64,
}

/// Why bytes are not an answer that the load generator accepts.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Malformed {
    /// No `HTTP/1.1 NNN` in front.
    StatusLine,
    /// No usable `Content-Length`; every body of these experiments declares one.
    Length,
}

/// Reads a response head. `Ok(None)` while the empty line has not arrived.
pub(super) fn response(bytes: &[u8]) -> Result<Option<Response>, Malformed> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = &bytes[..end];
    let status = head
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(number)
        .and_then(|status| u16::try_from(status).ok())
        .ok_or(Malformed::StatusLine)?;
    let content_length = field(head, b"content-length")
        .and_then(number)
        .ok_or(Malformed::Length)?;
    Ok(Some(Response {
        head_len: end + 4,
        status,
        content_length,
    }))
}

/// Reads a request: the length of head and body, and its target. `None` while the empty line has not arrived; the body
/// may still be on its way. A request without `Content-Length` has no body.
pub(super) fn request(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = memmem::find(bytes, b"\r\n\r\n")?;
    let head = &bytes[..end];
    let line = memchr::memchr(b'\r', head).map_or(head, |eol| &head[..eol]);
    let target = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    let declared = field(head, b"content-length").and_then(number);
    let body = declared.and_then(|body| usize::try_from(body).ok());
    Some((
        end.saturating_add(4).saturating_add(body.unwrap_or(0)),
        target,
    ))
}

/// The value of the first header field `name`.
fn field<'head>(head: &'head [u8], name: &[u8]) -> Option<&'head [u8]> {
    let mut rest = head;
    while let Some(eol) = memchr::memchr(b'\n', rest) {
        rest = &rest[eol + 1..];
        if rest.len() > name.len()
            && rest[name.len()] == b':'
            && rest[..name.len()].eq_ignore_ascii_case(name)
        {
            let value = &rest[name.len() + 1..];
            let value = memchr::memchr(b'\r', value).map_or(value, |eol| &value[..eol]);
            return Some(value.trim_ascii());
        }
    }
    None
}

/// A decimal number of at most 19 digits.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, &digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;
