//! Fields that describe the connection and the end of the message, for requests and responses.

use std::io::Write;

use super::{Edits, Field, FieldKind, Nominated, Reject, Span};

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// The body has this many bytes.
    Length(u64),
    /// The body ends after the last chunk and the trailer section (RFC 9112 section 7.1).
    Chunked,
    /// The body ends when the connection is closed: responses only.
    UntilClose,
}

/// Limit on the fields that `Connection` may name. Each is searched for among all fields, so this limits the work for
/// one head.
const MAX_NOMINATED: usize = 16;

/// The facts collected from the fields of one head while they are read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    /// Whether Content-Length or Transfer-Encoding is not in its plainest form, and must be rewritten.
    anew: bool,
    /// Options of `Connection`.
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) names_caller: bool,
    /// Fields named by `Connection`, which are not forwarded.
    pub(super) nominated: Vec<Span>,
}

impl Facts {
    pub(super) fn clear(&mut self) {
        self.content_length = None;
        self.chunked = false;
        self.anew = false;
        self.close = false;
        self.keep_alive = false;
        self.upgrade = false;
        self.names_caller = false;
        self.nominated.clear();
    }

    /// Records one field.
    #[inline]
    pub(super) fn note(&mut self, buf: &[u8], field: &Field) -> Result<(), Reject> {
        match field.kind {
            FieldKind::ContentLength => {
                let rest = after_colon(buf, field);
                self.anew |= !matches!(rest, [b' ', b'1'..=b'9', ..] | b" 0");
                self.content_length(field.value.of(buf))
            }
            FieldKind::TransferEncoding => {
                self.anew |= after_colon(buf, field) != b" chunked";
                self.transfer_encoding(field.value.of(buf))
            }
            FieldKind::Connection => self.connection(buf, field.value),
            FieldKind::HeddleCaller => {
                self.names_caller = true;
                Ok(())
            }
            FieldKind::FramingAlias => Err(Reject::FIELD_ALIAS),
            _ => Ok(()),
        }
    }

    /// Equal duplicates and lists ("5, 5") are refused too: RFC 9110 section 8.6 lets a recipient choose, and smuggling
    /// needs two readers that choose differently.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.content_length.is_some() {
            return Err(Reject::DUPLICATE_CONTENT_LENGTH);
        }
        self.content_length = Some(decimal(value)?);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.chunked {
            return Err(Reject::DUPLICATE_TRANSFER_ENCODING);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(refuse_codings(value));
        }
        self.chunked = true;
        Ok(())
    }

    fn connection(&mut self, buf: &[u8], value: Span) -> Result<(), Reject> {
        if value.of(buf).eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return Ok(());
        }
        let mut at = usize::from(value.start);
        for element in value.of(buf).split(|&byte| byte == b',') {
            let start = at + leading_whitespace(element);
            at += element.len() + 1;
            let option = element.trim_ascii();
            if option.is_empty() {
                continue;
            }
            if !option.iter().copied().all(is_token_byte) {
                return Err(Reject::MALFORMED_CONNECTION);
            }
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.nominate(option, Span::new(start, start + option.len()))?;
            }
        }
        Ok(())
    }

    fn nominate(&mut self, name: &[u8], span: Span) -> Result<(), Reject> {
        if FieldKind::of(name).is_protected() {
            return Err(Reject::CONNECTION_NOMINATES_PROTECTED);
        }
        if self.nominated.len() == MAX_NOMINATED {
            return Err(Reject::TOO_MANY_CONNECTION_OPTIONS);
        }
        self.nominated.push(span);
        Ok(())
    }

    /// Rewrites framing fields that are not in the one form that all readers understand: `Transfer-Encoding: chunked`,
    /// `Content-Length: 5`.
    #[inline]
    pub(super) fn write_anew(&self, fields: &[Field], edits: &mut Edits) {
        if self.anew {
            self.write(fields, edits);
        }
    }

    #[cold]
    fn write(&self, fields: &[Field], edits: &mut Edits) {
        for field in fields {
            match (field.kind, self.content_length) {
                (FieldKind::TransferEncoding, _) => {
                    edits.replace(field.line, b"Transfer-Encoding: chunked\r\n");
                }
                (FieldKind::ContentLength, Some(length)) => {
                    let mut text = [0; "Content-Length: 18446744073709551615\r\n".len()];
                    let mut rest = &mut text[..];
                    // `text` has room for the longest number.
                    let _ = write!(rest, "Content-Length: {length}\r\n");
                    let left = rest.len();
                    edits.replace(field.line, &text[..text.len() - left]);
                }
                _ => {}
            }
        }
    }

    /// The framing that the fields declare. Status and method may override it.
    pub(super) fn declared(&self, http_10: bool) -> Result<Option<Framing>, Reject> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(Reject::CONTENT_LENGTH_WITH_TRANSFER_ENCODING),
            (true, None) if http_10 => Err(Reject::TRANSFER_ENCODING_IN_HTTP10),
            (true, None) => Ok(Some(Framing::Chunked)),
            (false, Some(length)) => Ok(Some(Framing::Length(length))),
            (false, None) => Ok(None),
        }
    }

    /// Whether the connection stays open after the message (RFC 9112 section 9.3).
    pub(super) fn persists(&self, http_10: bool) -> bool {
        !self.close && (!http_10 || self.keep_alive)
    }

    /// Whether `Connection` names any fields.
    #[inline]
    pub(super) fn nominates_any(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// The names that `Connection` nominates and that may come as trailers, if the body can have trailers.
    #[inline]
    pub(super) fn nominated_trailers(
        &self,
        buf: &[u8],
        framing: Framing,
    ) -> Option<Box<Nominated>> {
        match framing {
            Framing::Chunked if self.nominates_any() => Nominated::of(buf, &self.nominated),
            _ => None,
        }
    }

    /// Whether `Connection` names this field.
    pub(super) fn nominates(&self, buf: &[u8], name: &[u8]) -> bool {
        self.nominated
            .iter()
            .any(|span| span.of(buf).eq_ignore_ascii_case(name))
    }
}

/// The bytes from after a field's colon to the end of its value, if exactly one byte comes before the value and none
/// between the value and the CRLF. Otherwise empty.
#[inline]
fn after_colon<'a>(buf: &'a [u8], field: &Field) -> &'a [u8] {
    let Field {
        line, name, value, ..
    } = *field;
    let bare = value.start.wrapping_sub(name.end) == 2 && line.end.wrapping_sub(value.end) == 2;
    match bare {
        true => &buf[usize::from(value.start) - 1..usize::from(value.end)],
        false => b"",
    }
}

/// The reason to refuse a Transfer-Encoding other than `chunked`: 501 for an unsupported coding (RFC 9112 section 6.1),
/// 400 when the end of the message cannot be known.
#[cold]
fn refuse_codings(value: &[u8]) -> Reject {
    let codings = || value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let well_formed =
        codings().all(|coding| !coding.is_empty() && coding.iter().copied().all(is_token_byte));
    let chunked = codings()
        .filter(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        .count();
    let last = codings().next_back().unwrap_or_default();
    if !well_formed || chunked > 1 || (chunked == 1 && !last.eq_ignore_ascii_case(b"chunked")) {
        Reject::MALFORMED_TRANSFER_ENCODING
    } else {
        Reject::UNSUPPORTED_TRANSFER_CODING
    }
}

/// Parses a Content-Length: digits only, at most 63 bits, so that no reader sees a negative number.
fn decimal(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Reject::MALFORMED_CONTENT_LENGTH);
    }
    value
        .iter()
        .try_fold(0u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .filter(|&length| i64::try_from(length).is_ok())
        .ok_or(Reject::CONTENT_LENGTH_OVERFLOW)
}

fn leading_whitespace(bytes: &[u8]) -> usize {
    bytes.len() - bytes.trim_ascii_start().len()
}

/// The characters of a token (RFC 9110 section 5.6.2).
pub(super) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
        | b'|' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
}
