//! Detects whether a connection starts with an HTTP/1 request, when its protocol is not declared.

use super::framing::is_token_byte;
use super::request::MAX_METHOD_BYTES;

/// The protocol at the start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// A complete HTTP/1 request line.
    Request,
    /// Another protocol.
    Other,
    /// It may still become a request line: more bytes are needed.
    Unclear,
}

/// Looks at the first bytes of a connection for a method (any token), a target, and an HTTP/1 version at the end of the
/// line. It does not validate the request, which is the parser's task, so unusual methods, empty lines in front and
/// bare LFs cannot be used to hide a request from the parser.
///
/// Other protocols are recognised by the end of their first line at the latest: commands of SMTP (`EHLO name`) or Redis
/// (`GET key`) have no target, a TLS handshake has no method, an HTTP/2 preface has another version.
#[must_use]
pub fn beginning(bytes: &[u8]) -> Beginning {
    let bytes = after_empty_lines(bytes);
    let length = bytes.iter().position(|&byte| !is_token_byte(byte));
    let (method, rest) = match length {
        // All bytes so far may be a method, or the CR of an empty line.
        None if bytes.len() <= MAX_METHOD_BYTES => return Beginning::Unclear,
        None => return Beginning::Other,
        Some(0) if bytes == b"\r" => return Beginning::Unclear,
        Some(length) if length > MAX_METHOD_BYTES || length == 0 => return Beginning::Other,
        Some(length) if bytes[length] != b' ' => return Beginning::Other,
        Some(length) => (&bytes[..length], &bytes[length + 1..]),
    };
    if rest.is_empty() {
        return Beginning::Unclear;
    }
    let line_end = memchr::memchr(b'\n', rest);
    let line = &rest[..line_end.unwrap_or(rest.len())];
    let target_end = memchr::memchr(b' ', line);
    let target = &line[..target_end.unwrap_or(line.len())];
    let target_ok = !target.is_empty() && target.iter().all(|byte| (0x21..0x7f).contains(byte));
    // CONNECT has an authority as its target.
    let absolute = matches!(target.first(), Some(b'/' | b'*'))
        || method == b"CONNECT"
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

/// Skips the empty lines before a request, which are tolerated (RFC 9112 section 2.2).
fn after_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes
        .strip_prefix(b"\r\n")
        .or_else(|| bytes.strip_prefix(b"\n"))
    {
        bytes = rest;
    }
    bytes
}

/// Whether `bytes` begins with `full`, or is itself the beginning of `full`, in any case.
fn begins(bytes: &[u8], full: &[u8]) -> bool {
    let common = bytes.len().min(full.len());
    bytes[..common].eq_ignore_ascii_case(&full[..common])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{Limits, RequestHead};

    /// Every prefix is `Unclear` or already has the final answer: it never changes.
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
            "PROPFIND / HTTP/1.1\r\n",
            "get / HTTP/1.1\r\n",
            "!#$%&'*+-.^_`|~ / HTTP/1.1\r\n",
            "M-SEARCH * HTTP/1.1\r\n",
            "\nGET / HTTP/1.1\r\n",
            "\r\n\r\n\n\r\n\r\nGET / HTTP/1.1\r\n",
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
            b" GET / HTTP/1.1\r\n",
            b"\rGET / HTTP/1.1\r\n",
            b"\r\rGET / HTTP/1.1\r\n",
            b"SSH-2.0-Go\r\n",
            b"AMQP\x00\x00\x09\x01",
            b"get /key\r\n",
            b"CONNECT {\"verbose\":false}\r\n",
            b"CWD /pub\r\n",
            b"DESCRIBE * RTSP/1.0\r\n",
            b"OPTIONS sip:a@b SIP/2.0\r\n",
            b"GET https://a/ HTTP/1.1\r\n",
            b"a-token-that-is-longer-than-methods / HTTP/1.1\r\n",
        ] {
            assert_eq!(all_prefixes(first), Beginning::Other, "{first:?}");
        }
    }

    #[test]
    fn what_the_parser_takes_is_a_request() {
        let fields = "Host: a\r\n\r\n";
        for line in [
            "GET / HTTP/1.1",
            "\r\nx-method /a?b HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "QUERY http://a/b HTTP/1.1",
            "CONNECT a:80 HTTP/1.1",
            "CONNECT _a:80 HTTP/1.1",
        ] {
            let text = format!("{line}\r\n{fields}");
            let mut head = RequestHead::new();
            let parsed = head.parse(text.as_bytes(), &Limits::DEFAULT);
            assert!(matches!(parsed, Ok(Some(_))), "{line}: {parsed:?}");
            assert_eq!(all_prefixes(text.as_bytes()), Beginning::Request, "{line}");
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
            "\n\n\r\n",
            "\r\n\r",
            "ruok",
            "PROPFIND /x",
        ] {
            assert_eq!(beginning(part.as_bytes()), Beginning::Unclear, "{part:?}");
        }
    }
}
