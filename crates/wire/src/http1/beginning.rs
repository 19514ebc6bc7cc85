//! Whether bytes begin an HTTP/1 request, for connections whose protocol nobody has declared.

/// What the first bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// A request line, whole.
    Request,
    /// Something else.
    Other,
    /// It may still become a request line.
    Unclear,
}

/// Methods of RFC 9110 section 9.3 and RFC 5789. Any token may be a method, but then a line of SMTP
/// (`EHLO …`) or the banner of SSH could begin one too: a connection with another method is passed on
/// as bytes, which is what it would get from a proxy that did not look.
const METHODS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"HEAD ",
    b"PATCH ",
    b"OPTIONS ",
    b"CONNECT ",
    b"TRACE ",
];

/// Looks at the first bytes of a connection: a method, a target, and a version of HTTP/1 at the end of
/// the line. Whether the request is a good one is for the parser to say.
///
/// Other protocols are told at their first bytes: inline commands of Redis (`GET key`) have no target, a
/// TLS handshake and an HTTP/2 preface no method.
#[must_use]
pub fn beginning(bytes: &[u8]) -> Beginning {
    // Empty lines before a request are tolerated (RFC 9112 section 2.2).
    let bytes = match bytes.strip_prefix(b"\r\n") {
        Some(rest) => rest,
        None => bytes,
    };
    let Some(method) = METHODS
        .iter()
        .find(|method| bytes.starts_with(method) || method.starts_with(bytes))
    else {
        return if bytes == b"\r" {
            Beginning::Unclear
        } else {
            Beginning::Other
        };
    };
    let Some(rest) = bytes.get(method.len()..).filter(|rest| !rest.is_empty()) else {
        return Beginning::Unclear;
    };
    let line_end = memchr::memchr(b'\n', rest);
    let line = &rest[..line_end.unwrap_or(rest.len())];
    let target_end = memchr::memchr(b' ', line);
    let target = &line[..target_end.unwrap_or(line.len())];
    let plausible = match target.first() {
        Some(b'/' | b'*') => true,
        // http://… or, of CONNECT, an authority.
        Some(first) => first.is_ascii_alphanumeric() || *first == b'[',
        None => false,
    };
    let target_ok = plausible && target.iter().all(|byte| (0x21..0x7f).contains(byte));
    let absolute = matches!(target.first(), Some(b'/' | b'*'))
        || *method == b"CONNECT "
        || begins(target, b"http://");
    if !target_ok || !absolute {
        return Beginning::Other;
    }
    let Some(target_end) = target_end else {
        return match line_end {
            Some(_) => Beginning::Other,
            None => Beginning::Unclear,
        };
    };
    let version = &line[target_end + 1..];
    match line_end {
        Some(_) if version.starts_with(b"HTTP/1.") => Beginning::Request,
        Some(_) => Beginning::Other,
        None if begins(version, b"HTTP/1.") => Beginning::Unclear,
        None => Beginning::Other,
    }
}

/// Whether `bytes` begins with `full`, or may still do so.
fn begins(bytes: &[u8], full: &[u8]) -> bool {
    let common = bytes.len().min(full.len());
    bytes[..common].eq_ignore_ascii_case(&full[..common])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every prefix of a beginning is unclear or the answer itself: nothing flips.
    fn all_prefixes(bytes: &[u8]) -> Beginning {
        let last = beginning(bytes);
        let mut decided = None;
        for length in 1..=bytes.len() {
            let now = beginning(&bytes[..length]);
            if let Some(before) = decided {
                assert_eq!(now, before, "flips at {length}");
            }
            decided = (now != Beginning::Unclear).then_some(now);
        }
        last
    }

    #[test]
    fn request_lines_are_requests() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "\r\nPOST /a?b=c HTTP/1.0\r\nHost: a\r\n",
            "OPTIONS * HTTP/1.1\r\n",
            "CONNECT db:5432 HTTP/1.1\r\n",
            "PUT http://host/path HTTP/1.1\r\n",
            "DELETE /x HTTP/1.9\n",
        ] {
            assert_eq!(
                all_prefixes(line.as_bytes()),
                Beginning::Request,
                "{line:?}"
            );
        }
    }

    #[test]
    fn other_protocols_are_other() {
        for first in [
            &b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"[..],
            b"EHLO example.org\r\n",
            b"USER bob\r\n",
            b"PING\r\n",
            b"GET key\r\n",
            b"GET key HTTP/1.1\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /no-version\r\n",
            b"GET / HTTP/2.0\r\n",
            b"GET /\x00 HTTP/1.1\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"get / HTTP/1.1\r\n",
            b"PROPFIND / HTTP/1.1\r\n",
        ] {
            assert_eq!(all_prefixes(first), Beginning::Other, "{first:?}");
        }
    }

    #[test]
    fn what_is_cut_short_is_unclear() {
        for part in [
            "",
            "\r",
            "\r\n",
            "G",
            "GET",
            "GET ",
            "GET /",
            "GET / HTTP/1",
            "CONNECT a:1",
        ] {
            assert_eq!(beginning(part.as_bytes()), Beginning::Unclear, "{part:?}");
        }
    }
}
