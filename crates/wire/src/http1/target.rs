//! The request target and its four forms (RFC 9112 section 3.2).

use super::{Method, Reject, Span, authority};

/// Which of the four forms a target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`: to a server.
    #[default]
    Origin,
    /// `http://authority/path?query`: to a proxy. Its authority replaces Host.
    Absolute,
    /// `host:port`: CONNECT only.
    Authority,
    /// `*`: OPTIONS only, about the server as a whole.
    Asterisk,
}

/// A target taken apart.
#[derive(Debug, Default)]
pub(super) struct TargetParts {
    pub(super) form: TargetForm,
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    pub(super) authority: Option<Span>,
}

/// Takes apart the target at `span`, which is known to hold visible characters only.
pub(super) fn parse(buf: &[u8], span: Span, method: Method) -> Result<TargetParts, Reject> {
    let target = span.of(buf);
    // Both at once and without branches, which the compiler turns into vector instructions.
    let bad = target
        .iter()
        .fold(0, |bad, &byte| bad | (byte & 0x80) | u8::from(byte == b'#'));
    if bad != 0 {
        let is_ascii = target.is_ascii();
        return Err(if is_ascii {
            Reject::TARGET_FRAGMENT
        } else {
            Reject::TARGET_NOT_ASCII
        });
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
        [b'/', ..] => Ok(split_query(target, span, TargetForm::Origin, None)),
        b"*" if method == Method::Options => Ok(TargetParts {
            form: TargetForm::Asterisk,
            path: span,
            query: None,
            authority: None,
        }),
        _ => absolute(target, span),
    }
}

fn absolute(target: &[u8], span: Span) -> Result<TargetParts, Reject> {
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
        &rest[end..],
        remainder,
        TargetForm::Absolute,
        Some(authority),
    ))
}

/// Splits `text`, which lies at `span`, at its first question mark.
fn split_query(text: &[u8], span: Span, form: TargetForm, authority: Option<Span>) -> TargetParts {
    let (path, query) = match memchr::memchr(b'?', text) {
        None => (span, None),
        Some(at) => {
            let mark = usize::from(span.start) + at;
            let end = usize::from(span.end);
            (
                Span::new(usize::from(span.start), mark),
                Some(Span::new(mark + 1, end)),
            )
        }
    };
    TargetParts {
        form,
        path,
        query,
        authority,
    }
}
