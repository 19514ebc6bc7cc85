//! Header names and values, in matches and in edits.

use heddle_model::PROXY_FIELDS;

use super::Flaw;

/// Longest header name and value (Gateway API `HeaderName`, `HTTPHeader.value`).
const MAX_NAME: usize = 256;
const MAX_VALUE: usize = 4096;

/// Fields of one connection (RFC 9110 section 7.6.1) or of message framing (RFC 9112 section 6). The proxy writes them
/// itself; an edit would break framing or be lost.
const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// Fields that name the origin of a request. The proxy sets them from the connection.
const FORWARDING: [&str; 5] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
];

/// Whether a request's or a response's headers are edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

fn token(name: &str, of: &str) -> Result<(), Flaw> {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_token_byte) {
        return Err(Flaw::new(
            format!("{name:?} is no name of a {of}"),
            "use letters, digits and !#$%&'*+-.^_`|~, at most 256 characters",
        ));
    }
    Ok(())
}

/// The name in a match of a header or query parameter; `of` says which of them in messages.
pub(crate) fn match_name(name: &str, of: &str) -> Result<(), Flaw> {
    token(name, of)
}

/// The value of a header or query parameter in a match, of at most `longest` bytes.
pub(crate) fn match_value(value: &str, longest: usize) -> Result<(), Flaw> {
    if value.is_empty() {
        return Err(Flaw::new(
            "the value is empty",
            "write the value to compare with",
        ));
    }
    if value.len() > longest {
        let remedy = format!("the Gateway API takes {longest}");
        return Err(Flaw::new(
            format!("the value has {} bytes", value.len()),
            remedy,
        ));
    }
    no_controls(value)
}

/// A name in lower case, with every other character than letters and digits as a hyphen: servers that turn header names
/// into variables treat all these spellings as the same.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Checks the name of a header in a policy, in addition to [`match_name`]. Headers that the proxy removes or writes
/// itself tell nothing about the caller, in any spelling.
pub(crate) fn policy_header(name: &str) -> Result<(), Flaw> {
    let lower = plain(name);
    let is_forwarding = FORWARDING.contains(&lower.as_str())
        || lower.starts_with("x-forwarded-")
        || lower == "x-real-ip";
    let is_proxies = OWN.contains(&lower.as_str()) || PROXY_FIELDS.contains(&lower.as_str());
    if is_proxies || is_forwarding {
        return Err(Flaw::new(
            format!("{name} is written by proxies on the way: a policy cannot rely on it"),
            "name who may call in sources",
        ));
    }
    if lower == "host" {
        return Err(Flaw::new(
            "a policy protects a workload under whatever name it is called",
            "remove the condition on Host",
        ));
    }
    Ok(())
}

/// The name of a header that a filter sets, adds or removes.
pub(crate) fn edit_name(name: &str, direction: Direction) -> Result<(), Flaw> {
    token(name, "header")?;
    let lower = plain(name);
    if OWN.contains(&lower.as_str()) {
        return Err(Flaw::new(
            format!(
                "{name} belongs to the connection or frames the message; a filter cannot change it"
            ),
            "remove it from the filter",
        ));
    }
    if PROXY_FIELDS.contains(&lower.as_str()) {
        return Err(Flaw::new(
            format!("{name} is what proxies tell each other; a filter cannot change it"),
            "use another name",
        ));
    }
    if direction == Direction::Request && lower == "host" {
        return Err(Flaw::new(
            "a header filter cannot change Host",
            "use a URLRewrite filter with hostname",
        ));
    }
    if direction == Direction::Request && FORWARDING.contains(&lower.as_str()) {
        return Err(Flaw::new(
            format!("{name} says where a request came from; the proxy sets it itself"),
            "use another name",
        ));
    }
    Ok(())
}

/// The value of a header that a filter sets or adds.
pub(crate) fn edit_value(value: &str) -> Result<(), Flaw> {
    match_value(value, MAX_VALUE)
}

/// RFC 9110 section 5.5: visible ASCII, inner spaces and tabs. No bytes beyond ASCII: the Gateway
/// API does not take them either.
fn no_controls(value: &str) -> Result<(), Flaw> {
    if let Some(bad) = value.chars().find(|c| !matches!(c, '\t' | ' '..='~')) {
        return Err(Flaw::new(
            format!("the value holds the character {bad:?}"),
            "use visible ASCII characters, spaces and tabs",
        ));
    }
    if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
        return Err(Flaw::new(
            "the value starts or ends with a space",
            "remove it",
        ));
    }
    Ok(())
}
