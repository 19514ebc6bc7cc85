//! Paths in matches, rewrites and redirects.
//!
//! A request's path is compared in one canonical form. A path in a manifest is brought into the same form (RFC 3986
//! section 6.2.2: unreserved characters decoded, other escapes in upper case), or refused if it is ambiguous.

use super::Flaw;

/// Limit of a path in bytes (Gateway API `HTTPPathMatch.value`).
const MAX_PATH: usize = 1024;

/// A path to compare as a whole.
pub(crate) fn exact_path(text: &str) -> Result<String, Flaw> {
    canonical(text)
}

/// A prefix of path elements, without a final slash: `/` becomes the empty prefix.
pub(crate) fn path_prefix(text: &str) -> Result<String, Flaw> {
    let path = canonical(text)?;
    Ok(path.strip_suffix('/').unwrap_or(&path).to_owned())
}

/// A path that replaces the whole path.
pub(crate) fn full_path(text: &str) -> Result<String, Flaw> {
    canonical(text)
}

/// A prefix that replaces a matched prefix; both the empty text and `/` remove it.
pub(crate) fn replacement_prefix(text: &str) -> Result<String, Flaw> {
    if text.is_empty() {
        Ok(String::new())
    } else {
        path_prefix(text)
    }
}

fn canonical(text: &str) -> Result<String, Flaw> {
    let flaw = |reason: &str, remedy: &str| Err(Flaw::new(format!("{text:?} {reason}"), remedy));
    if text.len() > MAX_PATH {
        return Err(Flaw::new(
            format!("the path has {} bytes", text.len()),
            format!("the Gateway API takes {MAX_PATH}"),
        ));
    }
    if !text.starts_with('/') {
        return flaw("is no absolute path", "start it with '/'");
    }
    if text.contains(['?', '#']) {
        return flaw(
            "holds more than a path",
            "match a query with queryParams; a fragment never reaches a server",
        );
    }
    let Some(path) = decode(text) else {
        let remedy = "use a-z, A-Z, 0-9, -._~!$&'()*+,;=:@/ and %XX for all else";
        return flaw("holds a character that no path can have", remedy);
    };
    if path.contains("%2F") {
        return flaw(
            "holds an escaped slash",
            "servers disagree on what it means: write '/'",
        );
    }
    if path.contains("%5C") || has_escaped_control(&path) {
        return flaw(
            "holds an escaped backslash or control character",
            "remove it",
        );
    }
    if path.contains("//") {
        return flaw("holds '//'", "write one slash");
    }
    let mut elements = path[1..].split('/').peekable();
    while let Some(element) = elements.next() {
        let name = without_parameters(element);
        if matches!(name, "." | "..") {
            return flaw("holds '.' or '..'", "write the path that it leads to");
        }
        if name.is_empty() && !element.is_empty() && elements.peek().is_some() {
            return flaw(
                "has a segment with only parameters",
                "requests with one are refused: leave it out",
            );
        }
    }
    Ok(path)
}

/// Some servers remove parameters from an element before they resolve it, even after an escaped `;`: they read `..;x`
/// as `..`, and `;x` as empty.
fn without_parameters(element: &str) -> &str {
    let name = element.split(';').next().unwrap_or(element);
    name.split("%3B").next().unwrap_or(name)
}

/// Whether a canonical path holds `%00` to `%1F` or `%7F`. Requests with one are refused.
fn has_escaped_control(path: &str) -> bool {
    let escapes = path.split('%').skip(1);
    escapes
        .into_iter()
        .any(|escape| escape.starts_with(['0', '1']) || escape.starts_with("7F"))
}

/// Decodes escapes of unreserved characters and writes the others in upper case; `None` if a character is not allowed
/// in a path, or a '%' does not begin an escape.
fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut path = String::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let digit = |offset: usize| char::from(*bytes.get(at + offset)?).to_digit(16);
                let value = u8::try_from(digit(1)? * 16 + digit(2)?).ok()?;
                if value.is_ascii_alphanumeric() || b"-._~".contains(&value) {
                    path.push(char::from(value));
                } else {
                    path.push_str(&format!("%{value:02X}"));
                }
                at += 3;
            }
            b'/' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*'
            | b'+' | b',' | b';' | b'=' | b':' | b'@' => {
                path.push(char::from(byte));
                at += 1;
            }
            _ if byte.is_ascii_alphanumeric() => {
                path.push(char::from(byte));
                at += 1;
            }
            _ => return None,
        }
    }
    Some(path)
}
