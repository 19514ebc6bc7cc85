//! Texts that end up in messages to others, where a wrong character would mean something else.

/// Longest path that a rule may name, as the Gateway API has it.
const MAX_PATH: usize = 1024;
/// Longest value of a header that a rule may name or set.
const MAX_VALUE: usize = 4096;
/// Longest name of a header or a query parameter, and longest method.
const MAX_NAME: usize = 256;

/// A field name or a method (RFC 9110 section 5.6.2).
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A field value (RFC 9110 section 5.5) of visible ASCII, spaces and tabs.
pub(super) fn is_field_value(value: &str) -> bool {
    value.len() <= MAX_VALUE
        && value
            .bytes()
            .all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        && value.trim_matches([' ', '\t']) == value
}

/// A path in the one form in which paths are compared: see `heddle_wire::http1::canonicalise`.
pub(super) fn is_canonical_path(path: &str) -> bool {
    let names = path.split('/').map(|segment| {
        let plain = segment.split(';').next().unwrap_or(segment);
        plain.split("%3B").next().unwrap_or(plain)
    });
    path.len() <= MAX_PATH
        && path.starts_with('/')
        && !path.contains("//")
        && are_escapes_canonical(path)
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&b))
        && !names.into_iter().any(|name| matches!(name, "." | ".."))
}

/// Whether each `%` begins an escape that has to be one: no unreserved character, no slash, no
/// backslash, no control character; in upper case.
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
