//! Finds the reason why a head could not be parsed.
//!
//! The parser is fast and only says yes or no. After a refusal, this slow second pass looks for the first error, line
//! by line, so that the log has a useful reason.

use super::Reject;
use super::framing::is_token_byte;
use super::parse::Stop;

/// The reason to refuse a request head.
#[cold]
pub(super) fn request(head: &[u8], stop: Stop) -> Reject {
    // A TLS record of type handshake, version 3.x.
    if head.starts_with(&[0x16, 0x03]) {
        return Reject::TLS_ON_PLAINTEXT;
    }
    find(head, request_line).unwrap_or_else(|| fallback(stop, Reject::MALFORMED_REQUEST_LINE))
}

/// The reason to refuse a response head.
#[cold]
pub(super) fn response(head: &[u8], stop: Stop) -> Reject {
    find(head, status_line).unwrap_or_else(|| fallback(stop, Reject::MALFORMED_STATUS_LINE))
}

fn fallback(stop: Stop, first_line: Reject) -> Reject {
    match stop {
        Stop::TooManyFields => Reject::TOO_MANY_FIELDS,
        Stop::FieldName => Reject::FIELD_NAME_NOT_TOKEN,
        Stop::FieldValue => Reject::CONTROL_CHARACTER,
        Stop::FirstLine => first_line,
        Stop::Version => Reject::MALFORMED_VERSION,
        Stop::LineEnd | Stop::Incomplete => Reject::MALFORMED_HEAD,
    }
}

/// Checks each line up to the blank one; the last line may be incomplete.
fn find(head: &[u8], first_line: fn(&[u8], bool) -> Option<Reject>) -> Option<Reject> {
    let mut rest = head;
    let mut is_first = true;
    loop {
        let (line, complete) = match memchr::memchr(b'\n', rest) {
            Some(end) => (&rest[..end], true),
            None => (rest, false),
        };
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(reject) = characters(text) {
            return Some(reject);
        }
        if is_first {
            if let Some(reject) = first_line(text, complete) {
                return Some(reject);
            }
        } else if let Some(reject) = field_line(text, complete) {
            return Some(reject);
        }
        if complete && text.len() == line.len() {
            return Some(Reject::BARE_LF);
        }
        if !complete || text.is_empty() {
            return None;
        }
        rest = &rest[line.len() + 1..];
        is_first = false;
    }
}

fn characters(line: &[u8]) -> Option<Reject> {
    line.iter().find_map(|&byte| match byte {
        b'\r' => Some(Reject::BARE_CR),
        0 => Some(Reject::NUL),
        b'\t' => None,
        0x01..=0x1f | 0x7f => Some(Reject::CONTROL_CHARACTER),
        _ => None,
    })
}

fn field_line(line: &[u8], complete: bool) -> Option<Reject> {
    let (&first, _) = line.split_first()?;
    if first == b' ' || first == b'\t' {
        return Some(Reject::OBS_FOLD);
    }
    let Some(colon) = memchr::memchr(b':', line) else {
        let sound = line.iter().copied().all(is_token_byte);
        return match (complete, sound) {
            (true, _) => Some(Reject::FIELD_WITHOUT_COLON),
            (false, true) => None,
            (false, false) => Some(Reject::FIELD_NAME_NOT_TOKEN),
        };
    };
    let name = &line[..colon];
    if name.is_empty() {
        Some(Reject::EMPTY_FIELD_NAME)
    } else if name.ends_with(b" ") || name.ends_with(b"\t") {
        Some(Reject::SPACE_BEFORE_COLON)
    } else if !name.iter().copied().all(is_token_byte) {
        Some(Reject::FIELD_NAME_NOT_TOKEN)
    } else {
        None
    }
}

fn request_line(line: &[u8], complete: bool) -> Option<Reject> {
    if line.starts_with(b"PRI * HTTP/2") {
        return Some(Reject::HTTP2_PREFACE);
    }
    if line.contains(&b'\t') || line.starts_with(b" ") || line.windows(2).any(|two| two == b"  ") {
        return Some(Reject::REQUEST_LINE_WHITESPACE);
    }
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let method = parts.next().unwrap_or_default();
    if !method.iter().copied().all(is_token_byte) {
        return Some(Reject::METHOD_NOT_TOKEN);
    }
    match (parts.next(), parts.next()) {
        (Some(target), _) if !target.is_ascii() => Some(Reject::TARGET_NOT_ASCII),
        (Some(_), Some(version)) => self::version(version, complete),
        (Some(target), None) if complete && !target.is_empty() => Some(Reject::HTTP_09),
        _ if complete => Some(Reject::MALFORMED_REQUEST_LINE),
        _ => None,
    }
}

fn version(version: &[u8], complete: bool) -> Option<Reject> {
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => None,
        _ if version.contains(&b' ') => Some(Reject::REQUEST_LINE_WHITESPACE),
        [b'H', b'T', b'T', b'P', b'/', major, rest @ ..]
            if major.is_ascii_digit() && is_minor(rest) =>
        {
            Some(Reject::UNSUPPORTED_VERSION)
        }
        _ if !complete && b"HTTP/1.".starts_with(version) => None,
        _ => Some(Reject::MALFORMED_VERSION),
    }
}

fn is_minor(rest: &[u8]) -> bool {
    match rest {
        [] => true,
        [b'.', minor] => minor.is_ascii_digit(),
        _ => false,
    }
}

fn status_line(line: &[u8], complete: bool) -> Option<Reject> {
    let version = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    self::version(version, complete || version.len() < line.len())
}
