//! The parts of parsing that request heads and response heads share.
//!
//! One pass over the bytes, many at a time, finds the end of each part of each line and checks its characters. The
//! grammar is that of RFC 9112 without its leniencies: a line ends with CR LF only, and only a limited number of empty
//! lines is skipped before a message.

use super::scan::{chunk, text_end, token_before, token_end};
use super::{Field, FieldKind, Limits, MAX_FIELDS, Reject, Span, Version};

/// Limit on empty lines before a message. RFC 9112 section 2.2 asks a server to skip at least one.
const MAX_EMPTY_LINES: usize = 2;

/// The part of `buf` that may hold a head.
pub(super) struct Window<'a> {
    pub(super) bytes: &'a [u8],
    /// Start of the message, after any empty lines.
    pub(super) start: usize,
    /// Whether the window has the maximum length of a head, so that more bytes would not help.
    pub(super) full: bool,
}

impl<'a> Window<'a> {
    #[inline]
    pub(super) fn of(buf: &'a [u8], limits: &Limits) -> Result<Option<Self>, Reject> {
        let max = limits.max_head_bytes.min(usize::from(u16::MAX));
        let full = buf.len() >= max;
        let bytes = &buf[..buf.len().min(max)];
        let start = match bytes.first() {
            None => return Ok(None),
            Some(b'\r' | b'\n') => match skip_empty_lines(bytes)? {
                None => return Ok(None),
                Some(start) => start,
            },
            Some(_) => 0,
        };
        Ok(Some(Self { bytes, start, full }))
    }

    pub(super) fn message(&self) -> &'a [u8] {
        &self.bytes[self.start..]
    }
}

/// The reason why the parser stopped. [`diagnose`](super::diagnose) finds the exact error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end before the head does.
    Incomplete,
    FirstLine,
    Version,
    LineEnd,
    FieldName,
    FieldValue,
    TooManyFields,
}

/// Parses the version at `at`.
#[inline]
pub(super) fn version(bytes: &[u8], at: usize) -> Result<(Version, usize), Stop> {
    let version = match chunk(bytes, at) {
        Some(b"HTTP/1.1") => Version::Http11,
        Some(b"HTTP/1.0") => Version::Http10,
        None if b"HTTP/1.".starts_with(&bytes[at..]) => return Err(Stop::Incomplete),
        _ => return Err(Stop::Version),
    };
    Ok((version, at + "HTTP/1.1".len()))
}

/// Expects CR LF at `at`; anything else is the error `otherwise`.
#[inline(always)]
pub(super) fn line_end(bytes: &[u8], at: usize, otherwise: Stop) -> Result<usize, Stop> {
    if chunk(bytes, at) == Some(b"\r\n") {
        return Ok(at + 2);
    }
    Err(match bytes.get(at..) {
        Some([b'\r'] | []) | None => Stop::Incomplete,
        Some(_) => otherwise,
    })
}

/// Parses the field lines from `at` on, at most `max`, and the blank line.
#[inline]
pub(super) fn fields(
    bytes: &[u8],
    mut at: usize,
    max: usize,
    out: &mut Vec<Field>,
) -> Result<usize, Stop> {
    loop {
        let line = at;
        if chunk(bytes, line) == Some(b"\r\n") {
            return Ok(line + 2);
        }
        let Some(name_end) = token_before(bytes, line, b':') else {
            return no_field(bytes, line);
        };
        let start = skip_whitespace(bytes, name_end + 1);
        let text_end = text_end(bytes, start);
        at = line_end(bytes, text_end, Stop::FieldValue)?;
        let end = trim_end(bytes, start, text_end);
        if out.len() == max {
            return Err(Stop::TooManyFields);
        }
        out.push(Field {
            line: Span::new(line, at),
            name: Span::new(line, name_end),
            value: Span::new(start, end),
            kind: FieldKind::of(&bytes[line..name_end]),
        });
    }
}

/// Handles a line that does not start with a name and a colon: the blank line, an incomplete line or an error.
#[cold]
fn no_field(bytes: &[u8], line: usize) -> Result<usize, Stop> {
    let name_end = token_end(bytes, line);
    match bytes.get(name_end) {
        None => Err(Stop::Incomplete),
        Some(_) if name_end == line => line_end(bytes, line, Stop::FieldName),
        Some(_) => Err(Stop::FieldName),
    }
}

/// Skips the whitespace before a value: nearly always one space.
#[inline(always)]
fn skip_whitespace(bytes: &[u8], mut at: usize) -> usize {
    if let Some(&[b' ', after]) = chunk(bytes, at)
        && after > b' '
    {
        return at + 1;
    }
    while let Some(b' ' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The end of a value without trailing whitespace, given the start of the value and the end of its line's text.
#[inline(always)]
fn trim_end(bytes: &[u8], start: usize, mut end: usize) -> usize {
    while end > start && matches!(bytes.get(end - 1), Some(b' ' | b'\t')) {
        end -= 1;
    }
    end
}

/// The effective limit on fields.
pub(super) fn max_fields(limits: &Limits) -> usize {
    limits.max_fields.min(MAX_FIELDS)
}

#[cold]
fn skip_empty_lines(bytes: &[u8]) -> Result<Option<usize>, Reject> {
    let mut at = 0;
    loop {
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Err(Reject::BARE_LF),
            Some([b'\r', b'\n', ..]) if at == 2 * MAX_EMPTY_LINES => {
                return Err(Reject::LEADING_EMPTY_LINES);
            }
            Some([b'\r', b'\n', ..]) => at += 2,
            Some([b'\r'] | []) | None => return Ok(None),
            Some([b'\r', ..]) => return Err(Reject::BARE_CR),
            Some(_) => return Ok(Some(at)),
        }
    }
}

#[cfg(test)]
mod tests;
