//! The response head.

use super::field::{Field, FieldKind, Span};
use super::framing::{Facts, Framing};
use super::parse::{self, Stop, Window, max_fields};
use super::scan::{chunk, text_end};
use super::{Edits, Limits, Method, Nominated, Reject, Version, diagnose};

/// A response head as offsets into the bytes that it was parsed from. It is reused from head to head.
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// Start of the status line, after empty lines, which are tolerated and not forwarded.
    pub start: u16,
    /// The status code: 100 to 599.
    pub status: u16,
    /// Where the three digits of the status are.
    pub status_span: Span,
    /// The version, in parsed form.
    pub version: Version,
    /// Where the version's text is.
    pub version_span: Span,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// How the end of the body is found, given the status and the request's method.
    pub framing: Framing,
    /// Whether the server keeps the connection open.
    pub keep_alive: bool,
    facts: Facts,
}

impl ResponseHead {
    /// An empty head, to be filled by [`parse`](Self::parse).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether another response to the same request follows (RFC 9110 section 15.2). A 101 is not interim: after it the
    /// connection uses another protocol.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Whether the response has an `Upgrade` field and `Connection: upgrade`, as every 101 must (RFC 9110 section 7.8).
    #[must_use]
    pub fn upgrades(&self) -> bool {
        let named = |field: &Field| field.kind == FieldKind::Upgrade;
        self.facts.upgrade && self.version == Version::Http11 && self.fields.iter().any(named)
    }

    /// Parses the head at the front of `buf`, the response to a request with `request_method`.
    ///
    /// Returns the length of the head, or `None` when more bytes are needed. A status line without a reason may lack
    /// the space before it, as from many servers.
    ///
    /// # Errors
    /// As for [`RequestHead::parse`](super::RequestHead::parse): if a response could be read in two ways, the next
    /// client could receive a part of it.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        request_method: Method,
    ) -> Result<Option<usize>, Reject> {
        let Some(window) = Window::of(buf, limits)? else {
            return Ok(None);
        };
        let length = match self.lines(&window, limits) {
            Ok(length) => length,
            Err(Stop::Incomplete) if window.full => return Err(Reject::HEAD_TOO_LARGE),
            Err(Stop::Incomplete) => return Ok(None),
            Err(stop) => return Err(diagnose::response(window.message(), stop)),
        };
        if !(100..600).contains(&self.status) {
            return Err(Reject::STATUS_OUT_OF_RANGE);
        }
        for field in self
            .fields
            .iter()
            .filter(|field| field.kind != FieldKind::Other)
        {
            self.facts.note(buf, field)?;
        }
        self.frame(request_method)?;
        Ok(Some(length))
    }

    /// Fills in all spans, up to the end of the head.
    #[inline]
    pub(super) fn lines(&mut self, window: &Window<'_>, limits: &Limits) -> Result<usize, Stop> {
        self.clear();
        let (bytes, start) = (window.bytes, window.start);
        let (version, version_end) = parse::version(bytes, start)?;
        let (status, status_end) = status(bytes, version_end)?;
        let line_end = match bytes.get(status_end) {
            Some(b' ') => text_end(bytes, status_end + 1),
            _ => status_end,
        };
        let first_line = parse::line_end(bytes, line_end, Stop::FirstLine)?;
        let length = parse::fields(bytes, first_line, max_fields(limits), &mut self.fields)?;
        self.start = Span::new(start, start).start;
        self.version = version;
        self.version_span = Span::new(start, version_end);
        self.status = status;
        self.status_span = Span::new(version_end + 1, status_end);
        Ok(length)
    }

    /// Finds out how the body ends (RFC 9112 section 6.3).
    fn frame(&mut self, request_method: Method) -> Result<(), Reject> {
        let http_10 = self.version == Version::Http10;
        let declared = self.facts.declared(http_10)?;
        self.framing = if request_method == Method::Head || self.is_bodiless() {
            Framing::None
        } else {
            declared.unwrap_or(Framing::UntilClose)
        };
        // The status allows no body, but fields announce one: whether a body follows is unknown, and so is the meaning
        // of the next bytes.
        let contradicts = self.is_unframed()
            && declared.is_some_and(|framing| !matches!(framing, Framing::Length(0)));
        self.keep_alive =
            self.facts.persists(http_10) && self.framing != Framing::UntilClose && !contradicts;
        Ok(())
    }

    /// Whether Content-Length and Transfer-Encoding are forbidden in the response (RFC 9110 section 8.6, RFC 9112
    /// section 6.1). Other responses without a body may have them, to describe the body of a GET.
    fn is_unframed(&self) -> bool {
        matches!(self.status, 100..=199 | 204)
    }

    /// Whether the response has no body although its fields announce one, which is allowed for HEAD and for 304 (RFC
    /// 9110 section 8.6).
    #[must_use]
    pub fn withholds_body(&self) -> bool {
        let announced =
            self.facts.chunked || self.facts.content_length.is_some_and(|bytes| bytes > 0);
        self.framing == Framing::None && announced
    }

    fn is_bodiless(&self) -> bool {
        matches!(self.status, 100..=199 | 204 | 304)
    }

    /// Removes what must not be forwarded, as for a request. In a 1xx or 204, Content-Length and Transfer-Encoding are
    /// removed (RFC 9110 section 8.6); in others they are rewritten if they are not in their plainest form.
    pub fn strip_hop_by_hop(&self, buf: &[u8], edits: &mut Edits) {
        if self.start > 0 {
            edits.cut(Span {
                start: 0,
                end: self.start,
            });
        }
        let unframed = self.is_unframed();
        let all = self.facts.nominates_any();
        for field in &self.fields {
            if !all && field.kind == FieldKind::Other {
                continue;
            }
            let ends_here = match field.kind {
                FieldKind::Te => true,
                FieldKind::ContentLength | FieldKind::TransferEncoding => unframed,
                kind if kind.is_hop_by_hop() => true,
                _ => self.facts.nominates(buf, field.name.of(buf)),
            };
            if ends_here {
                edits.cut(field.line);
            }
        }
        if !unframed {
            self.facts.write_anew(&self.fields, edits);
        }
    }

    /// Names of trailers that must not be forwarded, because `Connection` names them.
    #[must_use]
    #[inline]
    pub fn nominated_trailers(&self, buf: &[u8]) -> Option<Box<Nominated>> {
        self.facts.nominated_trailers(buf, self.framing)
    }

    fn clear(&mut self) {
        self.fields.clear();
        self.facts.clear();
    }
}

/// Parses the space at `at` and the three digits of the status.
#[inline]
fn status(bytes: &[u8], at: usize) -> Result<(u16, usize), Stop> {
    match bytes.get(at) {
        Some(b' ') => {}
        Some(_) => return Err(Stop::Version),
        None => return Err(Stop::Incomplete),
    }
    let Some(digits) = chunk::<3>(bytes, at + 1) else {
        let sound = bytes[at + 1..].iter().all(u8::is_ascii_digit);
        return Err(if sound {
            Stop::Incomplete
        } else {
            Stop::FirstLine
        });
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Stop::FirstLine);
    }
    let [hundreds, tens, ones] = digits.map(|digit| u16::from(digit - b'0'));
    Ok((100 * hundreds + 10 * tens + ones, at + " 200".len()))
}

#[cfg(test)]
mod tests;
