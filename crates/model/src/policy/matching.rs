//! Evaluates the conditions of rules on the bytes of a request.
//!
//! A condition is read in two ways. To *allow*, it must hold exactly. To *deny*, it is enough that some server could
//! treat the request as the denied one: the method in another case, parameters in path segments, a header under another
//! spelling of its name, one of several values in it.

use super::guard::HttpAccess;
use super::{HttpMatch, PolicyAction};
use crate::PathMatch;

impl HttpMatch {
    /// Whether the path can affect the result.
    pub(super) fn looks_at_path(&self) -> bool {
        let is_any = |path: &PathMatch| matches!(path, PathMatch::Prefix(all) if all.is_empty());
        !self.path_starts.is_empty() || !self.paths.iter().all(is_any)
    }

    /// Whether a request meets every condition, read as `action` requires.
    pub(super) fn matches<F>(&self, request: &HttpAccess<'_, F>, action: PolicyAction) -> bool
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        self.takes_method(request.method, action)
            && self.takes_path(request.path, action)
            && self.takes_headers(&request.fields, action)
    }

    /// Whether a header of this name, in any spelling, can affect the result.
    pub(super) fn looks_at_header(&self, name: &[u8]) -> bool {
        let mut known = self.headers.iter().map(|(known, _)| known.as_bytes());
        known.any(|known| is_spelling(name, known))
    }

    pub(super) fn takes_headers<F>(&self, fields: &F, action: PolicyAction) -> bool
    where
        F: Fn(&mut dyn FnMut(&[u8], &[u8])),
    {
        self.headers.iter().all(|(name, value)| match action {
            PolicyAction::Allow => is_exactly(fields, name.as_bytes(), value.as_bytes()),
            PolicyAction::Deny => may_be(fields, name.as_bytes(), value.as_bytes()),
        })
    }

    pub(super) fn takes_method(&self, method: &[u8], action: PolicyAction) -> bool {
        let equal = |wanted: &String| match action {
            PolicyAction::Allow => wanted.as_bytes() == method,
            PolicyAction::Deny => wanted.as_bytes().eq_ignore_ascii_case(method),
        };
        self.methods.is_empty() || self.methods.iter().any(equal)
    }

    pub(super) fn takes_path(&self, path: &[u8], action: PolicyAction) -> bool {
        let starts = |start: &String| path.starts_with(start.as_bytes());
        self.paths.is_empty() && self.path_starts.is_empty()
            || self.path_starts.iter().any(starts)
            || self.paths.iter().any(|wanted| {
                to_the_letter(wanted, path)
                    || action == PolicyAction::Deny && without_parameters(wanted, path)
            })
    }
}

/// As [`PathMatch::matches`], on bytes.
fn to_the_letter(wanted: &PathMatch, path: &[u8]) -> bool {
    match wanted {
        PathMatch::Exact(exact) => path == exact.as_bytes(),
        PathMatch::Prefix(prefix) => path
            .strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| prefix.is_empty() || rest.first().is_none_or(|byte| *byte == b'/')),
    }
}

/// The same for a server that removes `;x` from every segment (RFC 3986 section 3.3).
fn without_parameters(wanted: &PathMatch, path: &[u8]) -> bool {
    let (wanted, is_prefix) = match wanted {
        PathMatch::Exact(exact) => (exact, false),
        PathMatch::Prefix(prefix) => (prefix, true),
    };
    let mut segments = path.split(|byte| *byte == b'/');
    for segment in wanted.as_bytes().split(|byte| *byte == b'/') {
        let same = |found: &[u8]| found == segment || name_of(found) == segment;
        if !segments.next().is_some_and(same) {
            return false;
        }
    }
    is_prefix || segments.next().is_none()
}

/// A segment without its parameters, whose `;` may be percent-encoded.
fn name_of(segment: &[u8]) -> &[u8] {
    let plain = segment.iter().position(|byte| *byte == b';');
    let encoded = segment.windows(3).position(|three| three == b"%3B");
    let end = plain.into_iter().chain(encoded).min();
    segment
        .get(..end.unwrap_or(segment.len()))
        .unwrap_or(segment)
}

/// Whether two names are the same to a server that turns header names into variables: `x_role`, `X.Role` and `X-Role`
/// become `X_ROLE`.
fn is_spelling(name: &[u8], known: &[u8]) -> bool {
    let folded = |byte: &u8| match byte.is_ascii_alphanumeric() {
        true => byte.to_ascii_lowercase(),
        false => b'-',
    };
    name.len() == known.len() && name.iter().map(folded).eq(known.iter().map(folded))
}

/// Whether the field lines, joined by `", "` (RFC 9110 section 5.2), equal the value, without any other spelling of the
/// name in the request, which a server might read instead.
fn is_exactly<F>(fields: &F, name: &[u8], value: &[u8]) -> bool
where
    F: Fn(&mut dyn FnMut(&[u8], &[u8])),
{
    let (mut left, mut equal, mut count) = (value, true, 0);
    let mut take = |part: &[u8]| match left.strip_prefix(part) {
        Some(rest) => left = rest,
        None => equal = false,
    };
    let mut spelt_otherwise = false;
    fields(&mut |known, line| {
        if known.eq_ignore_ascii_case(name) {
            if count > 0 {
                take(b", ");
            }
            take(line);
            count += 1;
        } else {
            spelt_otherwise |= is_spelling(known, name);
        }
    });
    count > 0 && equal && left.is_empty() && !spelt_otherwise
}

/// Whether some server may find the value in the field: every piece of the value is a piece of some field line, in any
/// spelling of the name.
fn may_be<F>(fields: &F, name: &[u8], value: &[u8]) -> bool
where
    F: Fn(&mut dyn FnMut(&[u8], &[u8])),
{
    let is_there = |wanted: Option<&[u8]>| {
        let mut found = false;
        fields(&mut |known, line| {
            found = found
                || is_spelling(known, name)
                    && wanted.is_none_or(|wanted| pieces(line).any(|piece| is_same(piece, wanted)));
        });
        found
    };
    is_there(None) && pieces(value).all(|wanted| is_there(Some(wanted)))
}

/// The elements of a list and their parameters (RFC 9110 sections 5.6.1 and 5.6.6), separately.
fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b',' | b';'))
}

/// Whether two pieces are equal, ignoring case and what parsers ignore: quotes and white space, also after the `=` of a
/// cookie or parameter, and the backslashes of quoted text.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    letters(one).eq(letters(other))
}

fn letters(piece: &[u8]) -> impl Iterator<Item = u8> {
    let is_left_out = |byte: &u8| matches!(byte, b'\\' | b'"' | b' ' | b'\t');
    let letters = piece.iter().filter(move |byte| !is_left_out(byte));
    letters.map(u8::to_ascii_lowercase)
}
