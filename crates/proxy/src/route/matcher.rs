//! One rule's conditions, on the bytes of a request.

use heddle_model::{PathMatch, RouteMatch};
use heddle_wire::http1::authority;

/// The port of an authority that names none (RFC 9110 section 4.2.1).
pub(crate) const HTTP_PORT: u16 = 80;

/// The parts of a request that rules match. All of them borrow from the request's head.
pub(crate) struct Request<'a, F> {
    pub(crate) method: &'a [u8],
    /// Canonical, without the query.
    pub(crate) path: &'a [u8],
    /// Without the question mark; empty when there is none.
    pub(crate) query: &'a [u8],
    /// Calls the callback with the value of each field line of that name, in order.
    pub(crate) fields: F,
}

type Bytes = Box<[u8]>;

/// A [`RouteMatch`], prepared for matching bytes.
#[derive(Debug)]
pub(crate) struct Matcher {
    path: Path,
    method: Option<Bytes>,
    headers: Box<[(Bytes, Bytes)]>,
    query: Box<[(Bytes, Bytes)]>,
}

#[derive(Debug)]
enum Path {
    Any,
    Exact(Bytes),
    Prefix(Bytes),
}

impl Matcher {
    pub(crate) fn new(rule: &RouteMatch) -> Self {
        let path = match &rule.path {
            PathMatch::Prefix(prefix) if prefix.is_empty() => Path::Any,
            PathMatch::Prefix(prefix) => Path::Prefix(bytes(prefix)),
            PathMatch::Exact(exact) => Path::Exact(bytes(exact)),
        };
        Matcher {
            path,
            method: rule.method.as_deref().map(bytes),
            headers: rule
                .headers
                .iter()
                .map(|(name, value)| (bytes(name), header_value(name, value)))
                .collect(),
            query: rule
                .query
                .iter()
                .map(|(n, v)| (bytes(n), bytes(v)))
                .collect(),
        }
    }

    /// Whether the rule depends on the path, which makes ambiguous paths dangerous.
    pub(crate) fn looks_at_path(&self) -> bool {
        !matches!(self.path, Path::Any)
    }

    /// Whether every condition holds.
    pub(crate) fn matches<F>(&self, request: &Request<'_, F>) -> bool
    where
        F: Fn(&[u8], &mut dyn FnMut(&[u8])),
    {
        self.matches_path(request.path)
            && self
                .method
                .as_deref()
                .is_none_or(|method| method == request.method)
            && self.headers.iter().all(|(name, value)| {
                let mut joined = CombinedValue {
                    want: value,
                    lines: 0,
                    equal: true,
                };
                (request.fields)(name, &mut |line| joined.add(line));
                joined.is_equal()
            })
            && self
                .query
                .iter()
                .all(|(name, value)| query_has(request.query, name, value))
    }

    fn matches_path(&self, path: &[u8]) -> bool {
        match &self.path {
            Path::Any => true,
            Path::Exact(exact) => path == &**exact,
            Path::Prefix(prefix) => path
                .strip_prefix(&**prefix)
                .is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/')),
        }
    }
}

/// The value that a header condition compares with. Requests present `Host` in canonical form, so a condition on it is
/// canonicalised, too.
fn header_value(name: &str, value: &str) -> Bytes {
    let mut canonical = Vec::new();
    if name.eq_ignore_ascii_case("host")
        && authority::canonicalise(value.as_bytes(), HTTP_PORT, &mut canonical).is_ok()
    {
        return canonical.into();
    }
    bytes(value)
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

/// Compares the lines of a repeated field, joined by `", "` (RFC 9110 section 5.2), with a value,
/// without joining them.
struct CombinedValue<'a> {
    want: &'a [u8],
    lines: usize,
    equal: bool,
}

impl CombinedValue<'_> {
    fn add(&mut self, line: &[u8]) {
        if self.lines > 0 {
            self.take(b", ");
        }
        self.take(line);
        self.lines += 1;
    }

    fn take(&mut self, part: &[u8]) {
        match self.want.strip_prefix(part) {
            Some(rest) => self.want = rest,
            None => self.equal = false,
        }
    }

    fn is_equal(&self) -> bool {
        self.lines > 0 && self.equal && self.want.is_empty()
    }
}

/// Whether the first parameter called `name` has this value, both after percent-decoding.
fn query_has(query: &[u8], name: &[u8], value: &[u8]) -> bool {
    query
        .split(|&byte| byte == b'&')
        .map(|pair| match pair.iter().position(|&byte| byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        })
        .find(|(key, _)| decoded(key).eq(name.iter().copied()))
        .is_some_and(|(_, found)| decoded(found).eq(value.iter().copied()))
}

/// The bytes of a form-encoded name or value.
fn decoded(raw: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *raw.get(at)?;
        at += 1;
        if byte == b'%' {
            let digit = |i: usize| raw.get(i).and_then(|&d| char::from(d).to_digit(16));
            if let (Some(high), Some(low)) = (digit(at), digit(at + 1)) {
                at += 2;
                return u8::try_from(high * 16 + low).ok();
            }
        }
        Some(if byte == b'+' { b' ' } else { byte })
    })
}

#[cfg(test)]
mod tests;
