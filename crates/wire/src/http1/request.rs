//! The request head.

use super::field::{Field, FieldKind, Span};
use super::framing::{Facts, Framing};
use super::parse::{self, Stop, Window, max_fields};
use super::scan::{self, token_before, token_end};
use super::target::{self, TargetForm};
use super::{Edits, Limits, Nominated, Reject, authority, diagnose};

/// Request methods (RFC 9110 section 9.3, RFC 5789). Unknown methods are forwarded too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    Other,
}

/// Limit on the length of a method, in bytes.
pub(super) const MAX_METHOD_BYTES: usize = 32;

impl Method {
    /// The method with this name. Methods are case-sensitive.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Whether a repeated request has no further effect (RFC 9110 section 9.2.2), so that it may be retried when it is
    /// unknown whether the first one arrived.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Self::Post | Self::Patch | Self::Connect | Self::Other)
    }
}

/// The supported versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

/// A request head as offsets into the bytes that it was parsed from. It is reused from head to head.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// Start of the request line, after empty lines, which are tolerated and not forwarded.
    pub start: u16,
    /// The method, in parsed form.
    pub method: Method,
    /// Where the method's name is.
    pub method_span: Span,
    /// The request target as received.
    pub target: Span,
    pub form: TargetForm,
    /// The path; may be empty in absolute form, is `*` in asterisk form and always empty in authority form.
    pub path: Span,
    /// The query, after the first `?`, without it.
    pub query: Option<Span>,
    /// The target's authority, in absolute and authority form. It overrides Host (RFC 9112 section 3.2.2).
    pub target_authority: Option<Span>,
    /// The value of Host. An HTTP/1.1 request always has one; in HTTP/1.0 it may be empty, which means the same as
    /// absent.
    pub host: Option<Span>,
    /// The version, in parsed form.
    pub version: Version,
    /// Where the version's text is: it is replaced when the request is forwarded in another version.
    pub version_span: Span,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// How the end of the body is found; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client keeps the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for a 100 response before it sends the body.
    pub expect_continue: bool,
    /// Whether the client offers to switch protocols. [`strip_hop_by_hop`](Self::strip_hop_by_hop) removes the offer,
    /// which declines it.
    pub upgrade: bool,
    facts: Facts,
}

impl RequestHead {
    /// An empty head, to be filled by [`parse`](Self::parse).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the head at the front of `buf`.
    ///
    /// Returns the length of the head, with leading empty lines, or `None` when more bytes are needed. No state is kept
    /// between calls: the work for one head is at most its length times the number of reads in which it arrives.
    ///
    /// # Errors
    /// [`Reject`] for a head that two readers could interpret differently, or that exceeds `limits`. `self` is
    /// meaningful only after a success.
    pub fn parse(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, Reject> {
        let Some(window) = Window::of(buf, limits)? else {
            return Ok(None);
        };
        let (found, length) = match self.lines(&window, limits) {
            Ok(read) => read,
            Err(Stop::Incomplete) => return incomplete(&window, limits),
            Err(stop) => return Err(diagnose::request(window.message(), stop)),
        };
        if self.method_span.len() > MAX_METHOD_BYTES {
            return Err(Reject::METHOD_TOO_LONG);
        }
        if self.target.len() > limits.max_target_bytes {
            return Err(Reject::TARGET_TOO_LONG);
        }
        self.method = Method::of(self.method_span.of(buf));
        self.read_fields(buf)?;
        let target = target::parse(buf, self.target, &found, self.method)?;
        self.form = target.form;
        self.path = target.path;
        self.query = target.query;
        self.target_authority = target.authority;
        Ok(Some(length))
    }

    /// Fills in all spans, up to the end of the head.
    #[inline]
    pub(super) fn lines(
        &mut self,
        window: &Window<'_>,
        limits: &Limits,
    ) -> Result<(scan::ScannedTarget, usize), Stop> {
        self.clear();
        let (bytes, start) = (window.bytes, window.start);
        let Some(method_end) = token_before(bytes, start, b' ') else {
            return Err(match bytes.get(token_end(bytes, start)) {
                None => Stop::Incomplete,
                Some(_) => Stop::FirstLine,
            });
        };
        let target = scan::target(bytes, method_end + 1);
        match bytes.get(target.end) {
            Some(b' ') if target.end > method_end + 1 => {}
            None => return Err(Stop::Incomplete),
            Some(_) => return Err(Stop::FirstLine),
        }
        let (version, version_end) = parse::version(bytes, target.end + 1)?;
        let first_line = parse::line_end(bytes, version_end, Stop::LineEnd)?;
        let length = parse::fields(bytes, first_line, max_fields(limits), &mut self.fields)?;
        self.start = Span::new(start, start).start;
        self.method_span = Span::new(start, method_end);
        self.target = Span::new(method_end + 1, target.end);
        self.version = version;
        self.version_span = Span::new(target.end + 1, version_end);
        Ok((target, length))
    }

    #[inline]
    fn read_fields(&mut self, buf: &[u8]) -> Result<(), Reject> {
        let Self {
            fields,
            facts,
            host,
            version,
            ..
        } = self;
        let mut expect = false;
        let mut upgrade = false;
        for field in fields.iter().filter(|field| field.kind != FieldKind::Other) {
            match field.kind {
                FieldKind::Host => {
                    if host.replace(field.value).is_some() {
                        return Err(Reject::DUPLICATE_HOST);
                    }
                    if *version == Version::Http11 || !field.value.is_empty() {
                        authority::parse(field.value.of(buf))?;
                    }
                }
                FieldKind::Expect => {
                    if !field.value.of(buf).eq_ignore_ascii_case(b"100-continue") {
                        return Err(Reject::UNKNOWN_EXPECTATION);
                    }
                    expect = true;
                }
                FieldKind::Upgrade => upgrade = true,
                _ => facts.note(buf, field)?,
            }
        }
        let http_10 = self.version == Version::Http10;
        if self.host.is_none() && !http_10 {
            return Err(Reject::MISSING_HOST);
        }
        self.framing = self.facts.declared(http_10)?.unwrap_or(Framing::None);
        self.keep_alive = self.facts.persists(http_10);
        // RFC 9110 section 10.1.1: no 100 for HTTP/1.0, nor for a request without a body.
        self.expect_continue =
            expect && !http_10 && !matches!(self.framing, Framing::None | Framing::Length(0));
        self.upgrade = upgrade && self.facts.upgrade && !http_10;
        Ok(())
    }

    /// Whether a field of the request is [`FieldKind::HeddleCaller`].
    #[must_use]
    #[inline]
    pub fn names_caller(&self) -> bool {
        self.facts.names_caller
    }

    /// Removes what must not be forwarded: the fields of RFC 9110 section 7.6.1, the fields that `Connection` names,
    /// and empty lines before the request line.
    ///
    /// `TE: trailers` stays, because trailers are forwarded; any other TE is removed. Framing fields that are not in
    /// their plainest form are rewritten.
    pub fn strip_hop_by_hop(&self, buf: &[u8], edits: &mut Edits) {
        if self.start > 0 {
            edits.cut(Span {
                start: 0,
                end: self.start,
            });
        }
        let all = self.facts.nominates_any();
        for field in &self.fields {
            if (all || field.kind != FieldKind::Other) && self.ends_here(buf, field) {
                edits.cut(field.line);
            }
        }
        self.facts.write_anew(&self.fields, edits);
    }

    /// Whether a field of this head is not forwarded.
    #[must_use]
    #[inline]
    pub fn ends_here(&self, buf: &[u8], field: &Field) -> bool {
        match field.kind {
            FieldKind::Te => !field.value.of(buf).eq_ignore_ascii_case(b"trailers"),
            kind if kind.is_hop_by_hop() => true,
            _ => self.facts.nominates(buf, field.name.of(buf)),
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
        self.host = None;
    }
}

/// The result for an incomplete head: more bytes are needed, unless it is already too long.
#[cold]
fn incomplete(window: &Window<'_>, limits: &Limits) -> Result<Option<usize>, Reject> {
    let message = window.message();
    let longest_line = MAX_METHOD_BYTES + limits.max_target_bytes + " HTTP/1.1\r\n".len() + 1;
    if message.len() > longest_line && !message[..longest_line].contains(&b'\n') {
        return Err(Reject::TARGET_TOO_LONG);
    }
    if window.full {
        Err(Reject::HEAD_TOO_LARGE)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
