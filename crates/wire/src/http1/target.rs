//! The request target and its four forms (RFC 9112 section 3.2).

use super::{Method, Reject, Span, authority, scan};

/// The form of a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`: sent to a server.
    #[default]
    Origin,
    /// `http://authority/path?query`: sent to a proxy. Its authority overrides Host.
    Absolute,
    /// `host:port`: CONNECT only.
    Authority,
    /// `*`: OPTIONS only, for the server as a whole.
    Asterisk,
}

/// The components of a target.
#[derive(Debug, Default)]
pub(super) struct TargetParts {
    pub(super) form: TargetForm,
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    pub(super) authority: Option<Span>,
}

/// Splits the target at `span` into components. It has only visible ASCII characters; `found` are the facts from the
/// scan for its end.
pub(super) fn parse(
    buf: &[u8],
    span: Span,
    found: &scan::ScannedTarget,
    method: Method,
) -> Result<TargetParts, Reject> {
    let target = span.of(buf);
    if found.has_fragment {
        return Err(Reject::TARGET_FRAGMENT);
    }
    if method == Method::Connect {
        let parts = authority::parse(target)?;
        if parts.port.is_none() {
            return Err(Reject::TARGET_FORM);
        }
        let path = Span {
            start: span.end,
            end: span.end,
        };
        return Ok(TargetParts {
            form: TargetForm::Authority,
            path,
            query: None,
            authority: Some(span),
        });
    }
    match target {
        [b'/', ..] => Ok(split_query(span, found, TargetForm::Origin, None)),
        b"*" if method == Method::Options => Ok(TargetParts {
            form: TargetForm::Asterisk,
            path: span,
            query: None,
            authority: None,
        }),
        _ => absolute(target, span, found),
    }
}

fn absolute(target: &[u8], span: Span, found: &scan::ScannedTarget) -> Result<TargetParts, Reject> {
    const HTTP: &[u8] = b"http://";
    let Some(scheme) = target.windows(3).position(|three| three == b"://") else {
        return Err(Reject::TARGET_FORM);
    };
    if !target[..scheme + 3].eq_ignore_ascii_case(HTTP) {
        return Err(Reject::TARGET_SCHEME);
    }
    let rest = &target[HTTP.len()..];
    let end = rest
        .iter()
        .position(|&byte| byte == b'/' || byte == b'?')
        .unwrap_or(rest.len());
    authority::parse(&rest[..end])?;
    let start = usize::from(span.start) + HTTP.len();
    let authority = Span::new(start, start + end);
    let remainder = Span {
        start: authority.end,
        end: span.end,
    };
    Ok(split_query(
        remainder,
        found,
        TargetForm::Absolute,
        Some(authority),
    ))
}

/// Splits `span`, the path with the query, at the first question mark.
#[inline]
fn split_query(
    span: Span,
    found: &scan::ScannedTarget,
    form: TargetForm,
    authority: Option<Span>,
) -> TargetParts {
    let (start, end) = (usize::from(span.start), usize::from(span.end));
    let (path, query) = match found.query_mark {
        None => (span, None),
        Some(mark) => (Span::new(start, mark), Some(Span::new(mark + 1, end))),
    };
    TargetParts {
        form,
        path,
        query,
        authority,
    }
}
