//! Texts that are sent to other programs, where a wrong character would change the meaning.

/// Limit of a rule's path, from the Gateway API.
const MAX_PATH: usize = 1024;
/// Limit of a header value in a rule.
const MAX_VALUE: usize = 4096;
/// Limit of a header's or a query parameter's name, and of a method.
const MAX_NAME: usize = 256;

/// Whether a text is a valid field name or method (RFC 9110 section 5.6.2).
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Whether a text is a valid field value (RFC 9110 section 5.5) of visible ASCII, spaces and tabs.
pub(super) fn is_field_value(value: &str) -> bool {
    value.len() <= MAX_VALUE
        && value
            .bytes()
            .all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        && value.trim_matches([' ', '\t']) == value
}

/// Whether a path is in the canonical form in which paths are compared: see `heddle_wire::http1::canonicalise`.
pub(super) fn is_canonical_path(path: &str) -> bool {
    let inner = path.rsplit_once('/').map_or("", |(inner, _)| inner);
    let vanishes = |segment: &str| !segment.is_empty() && name_of(segment).is_empty();
    path.len() <= MAX_PATH
        && path.starts_with('/')
        && !path.contains("//")
        && are_escapes_canonical(path)
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&b))
        && !path
            .split('/')
            .any(|segment| matches!(name_of(segment), "." | ".."))
        && !inner.split('/').any(vanishes)
}

/// A segment without its parameters, whose `;` may be escaped.
fn name_of(segment: &str) -> &str {
    let plain = segment.split(';').next().unwrap_or(segment);
    plain.split("%3B").next().unwrap_or(plain)
}

/// Whether each `%` begins a necessary escape, in upper case: not one of an unreserved character, a slash, a backslash,
/// or a control character.
fn are_escapes_canonical(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| {
        let digits = rest.get(..2).filter(|digits| {
            let is_digit = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
            digits.bytes().all(is_digit)
        });
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        value.is_some_and(|value| {
            let unreserved = value.is_ascii_alphanumeric() || b"-._~".contains(&value);
            !unreserved && !value.is_ascii_control() && !b"/\\".contains(&value)
        })
    })
}
