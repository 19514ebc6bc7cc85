//! What fields say about the connection and about where the message ends, the same for requests
//! and responses.

use std::io::Write;

use super::{Edits, Field, FieldKind, Nominated, Reject, Span};

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is none.
    #[default]
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk and the trailer section (RFC 9112 section 7.1).
    Chunked,
    /// When the connection is closed: responses only.
    UntilClose,
}

/// Most fields that `Connection` may name. Each is looked for among all fields, so this bounds
/// the work that one head can cause.
const MAX_NOMINATED: usize = 16;

/// Collects what the fields of one head say, as they are read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    /// Whether one of the two does not stand there in its plainest form.
    anew: bool,
    /// Connection options.
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    /// Fields named by `Connection`, which end with this hop.
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
        self.nominated.clear();
    }

    /// Takes note of one field.
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
            FieldKind::FramingAlias => Err(Reject::FIELD_ALIAS),
            _ => Ok(()),
        }
    }

    /// Equal duplicates and lists ("5, 5") are refused too: RFC 9110 section 8.6 lets a recipient
    /// choose, and two readers that choose differently are what smuggling needs.
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

    /// Writes framing fields anew if they do not stand there in the one form that every reader knows:
    /// `Transfer-Encoding: chunked`, `Content-Length: 5`.
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
                    // It has room for the longest.
                    let _ = write!(rest, "Content-Length: {length}\r\n");
                    let left = rest.len();
                    edits.replace(field.line, &text[..text.len() - left]);
                }
                _ => {}
            }
        }
    }

    /// The framing that the fields declare, before status and method have their say.
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

    /// Whether a field of no kind could be one that `Connection` names.
    #[inline]
    pub(super) fn nominates_any(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// What is remembered of those until the trailers come, if any can.
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

/// What stands between a field's colon and the end of its value, if the line ends there and the value
/// begins after one byte.
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

/// Why a Transfer-Encoding that is not exactly `chunked` is refused: 501 for a coding that is not
/// spoken here (RFC 9112 section 6.1), 400 when no reader could tell where the message ends.
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

/// A Content-Length: digits only, at most 63 bits, so that no reader sees a negative number.
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
