//! The authority in one canonical form (RFC 3986 section 3.2, RFC 9110 section 7.2).
//!
//! Virtual hosts are matched on the Host, so two spellings of one host must become equal first, and a value without a
//! clear meaning is refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Reject;

/// Limit on a DNS name, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// A canonical authority. Its text is in the buffer given to [`canonicalise`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority {
    /// Length of the host in the text, without the port. An IPv6 address includes its brackets.
    pub host_len: usize,
    /// The port; `None` when absent or the default.
    pub port: Option<u16>,
    /// Whether the canonical text differs from the input.
    pub changed: bool,
}

/// Replaces `out` by the canonical form of `raw`: lower case, IPv6 addresses as in RFC 5952, no trailing dot, and no
/// port that equals `default_port`.
///
/// # Errors
/// [`Reject`] for user information, an empty host, a host that is neither an address nor a name of letters, digits,
/// `-`, `.` and `_`, a name that ends in a number without being an IPv4 address (resolvers disagree about those), or a
/// port that is not 1 to 65535 in plain digits.
pub fn canonicalise(raw: &[u8], default_port: u16, out: &mut Vec<u8>) -> Result<Authority, Reject> {
    let parts = parse(raw)?;
    let port = parts.port.filter(|&port| port != default_port);
    out.clear();
    match parts.host {
        Host::Name(name) => {
            out.extend_from_slice(name);
            out.make_ascii_lowercase();
        }
        Host::V6(address) => write(out, format_args!("[{address}]")),
    }
    let host_len = out.len();
    if let Some(port) = port {
        write(out, format_args!(":{port}"));
    }
    Ok(Authority {
        host_len,
        port,
        changed: out.as_slice() != raw,
    })
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = std::io::Write::write_fmt(out, text);
}

/// The components of an authority.
pub(super) struct AuthorityParts<'a> {
    host: Host<'a>,
    pub(super) port: Option<u16>,
}

enum Host<'a> {
    /// A name or an IPv4 address, without a trailing dot.
    Name(&'a [u8]),
    V6(Ipv6Addr),
}

/// Validates an authority and splits it into its components.
pub(super) fn parse(raw: &[u8]) -> Result<AuthorityParts<'_>, Reject> {
    if let [b'[', rest @ ..] = raw {
        return parse_v6(rest);
    }
    // Scans label by label, up to the colon.
    let (mut label, mut end) = (0, 0);
    let mut has_empty_label = false;
    loop {
        let rest = &raw[end..];
        end += rest
            .iter()
            .position(|&byte| !IS_LABEL[usize::from(byte)])
            .unwrap_or(rest.len());
        match raw.get(end) {
            None | Some(b':') => break,
            Some(b'.') => {
                has_empty_label |= end == label;
                label = end + 1;
                end += 1;
            }
            Some(_) => return Err(refuse_host(raw)),
        }
    }
    let (host, port) = raw.split_at(end);
    let port = match port {
        [] => None,
        [_, digits @ ..] => Some(parse_port(digits).ok_or_else(|| refuse_port(raw))?),
    };
    if host.is_empty() {
        return Err(Reject::EMPTY_HOST);
    }
    let name = host.strip_suffix(b".").unwrap_or(host);
    if has_empty_label || name.is_empty() || name.ends_with(b".") || name.len() > MAX_NAME_BYTES {
        return Err(Reject::MALFORMED_HOST);
    }
    if name.len() < host.len() {
        label = memchr::memrchr(b'.', name).map_or(0, |dot| dot + 1);
    }
    let last = &name[label..];
    if last[0].is_ascii_digit() && is_number(last) && !is_v4(name) {
        return Err(Reject::MALFORMED_HOST);
    }
    Ok(AuthorityParts {
        host: Host::Name(name),
        port,
    })
}

/// The characters of a label. Underscores are not allowed in host names, but common in names of Services.
static IS_LABEL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_');
        byte += 1;
    }
    table
};

#[cold]
fn refuse_port(raw: &[u8]) -> Reject {
    if raw.contains(&b'@') {
        Reject::USERINFO
    } else {
        Reject::MALFORMED_PORT
    }
}

#[cold]
fn refuse_host(raw: &[u8]) -> Reject {
    if raw.contains(&b'@') {
        Reject::USERINFO
    } else {
        Reject::MALFORMED_HOST
    }
}

fn parse_v6(after_bracket: &[u8]) -> Result<AuthorityParts<'_>, Reject> {
    let end = memchr::memchr(b']', after_bracket).ok_or(Reject::MALFORMED_HOST)?;
    let (text, rest) = after_bracket.split_at(end);
    let address = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    let address = address.ok_or(Reject::MALFORMED_HOST)?;
    let port = match &rest[1..] {
        [] => None,
        [b':', digits @ ..] => Some(parse_port(digits).ok_or(Reject::MALFORMED_PORT)?),
        other => return Err(refuse_host(other)),
    };
    Ok(AuthorityParts {
        host: Host::V6(address),
        port,
    })
}

/// Parses a port: digits only, no leading zero.
fn parse_port(digits: &[u8]) -> Option<u16> {
    if !matches!(digits, [b'1'..=b'9', rest @ ..] if rest.len() <= 4) {
        return None;
    }
    digits.iter().try_fold(0u16, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

fn is_number(label: &[u8]) -> bool {
    match label {
        [b'0', b'x' | b'X', hex @ ..] => hex.iter().all(u8::is_ascii_hexdigit),
        _ => label.iter().all(u8::is_ascii_digit),
    }
}

fn is_v4(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|text| text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests;
