//! Conditions of rules, on the bytes of a request.
//!
//! Two readings of one condition. To *allow*, it must hold to the letter. To *deny*, it is enough
//! that some server could take the request for what is denied: the letters of a method in another
//! case, parameters on a path's segments, one of several values of a header.

use super::guard::HttpAccess;
use super::{HttpMatch, PolicyAction};
use crate::PathMatch;

impl HttpMatch {
    /// Whether the path makes a difference.
    pub(super) fn looks_at_path(&self) -> bool {
        let is_any = |path: &PathMatch| matches!(path, PathMatch::Prefix(all) if all.is_empty());
        !self.path_starts.is_empty() || !self.paths.iter().all(is_any)
    }

    /// Whether a request meets every condition, in the reading of this action.
    pub(super) fn matches<F>(&self, request: &HttpAccess<'_, F>, action: PolicyAction) -> bool
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        self.takes_method(request.method, action)
            && self.takes_path(request.path, action)
            && self.takes_headers(&request.fields, action)
    }

    pub(super) fn takes_headers<F>(&self, fields: &F, action: PolicyAction) -> bool
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        self.headers.iter().all(|(name, value)| {
            let mut lines = Lines::new(value.as_bytes());
            fields(name.as_bytes(), &mut |line| lines.add(line));
            match action {
                PolicyAction::Allow => lines.joined_is_equal(),
                PolicyAction::Deny => lines.one_is_equal || lines.joined_is_equal(),
            }
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

/// The same as a server sees it that cuts `;x` off every segment (RFC 3986 section 3.3).
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

/// A segment without its parameters, whose `;` may be encoded.
fn name_of(segment: &[u8]) -> &[u8] {
    let plain = segment.iter().position(|byte| *byte == b';');
    let encoded = segment.windows(3).position(|three| three == b"%3B");
    let end = plain.into_iter().chain(encoded).min();
    segment
        .get(..end.unwrap_or(segment.len()))
        .unwrap_or(segment)
}

/// The lines of one field, compared with a value while they are called out.
struct Lines<'v> {
    value: &'v [u8],
    /// What is left of the value for further lines joined by `", "` (RFC 9110 section 5.2).
    left: &'v [u8],
    count: usize,
    joined: bool,
    /// A line, or an element of a line's list (RFC 9110 section 5.6.1), is the value.
    one_is_equal: bool,
}

impl<'v> Lines<'v> {
    fn new(value: &'v [u8]) -> Self {
        Self {
            value,
            left: value,
            count: 0,
            joined: true,
            one_is_equal: false,
        }
    }

    fn add(&mut self, line: &[u8]) {
        if self.count > 0 {
            self.take(b", ");
        }
        self.take(line);
        self.count += 1;
        let mut elements = line.split(|byte| *byte == b',').map(trimmed);
        self.one_is_equal |= line == self.value || elements.any(|element| element == self.value);
    }

    fn take(&mut self, part: &[u8]) {
        match self.left.strip_prefix(part) {
            Some(rest) => self.left = rest,
            None => self.joined = false,
        }
    }

    fn joined_is_equal(&self) -> bool {
        self.count > 0 && self.joined && self.left.is_empty()
    }
}

fn trimmed(element: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = element.iter().position(|byte| !is_space(byte));
    let end = element.iter().rposition(|byte| !is_space(byte));
    match (start, end) {
        (Some(start), Some(end)) => element.get(start..=end).unwrap_or_default(),
        _ => &[],
    }
}
