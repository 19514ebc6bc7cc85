//! The protocols in `Upgrade` (RFC 9110 section 7.8): a list of `name` or `name/version`.

use super::framing::is_token_byte;
use super::{Field, FieldKind};

/// The elements of all Upgrade fields, in order, well-formed or not.
pub fn protocols<'a>(fields: &'a [Field], buf: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(|field| field.kind == FieldKind::Upgrade)
        .flat_map(|field| field.value.of(buf).split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Whether a proxy that checks requests may forward the offer of a protocol: it must be well-formed, and not a form of
/// HTTP or TLS, because requests inside of those would reach the endpoint unchecked.
#[must_use]
pub fn may_be_offered(protocol: &[u8]) -> bool {
    let is_token = |part: &[u8]| !part.is_empty() && part.iter().copied().all(is_token_byte);
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    let name = parts.next().unwrap_or_default();
    let well_formed = is_token(name) && parts.all(is_token);
    let carries_requests = [&b"h2c"[..], b"h2", b"http", b"tls"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known));
    well_formed && !carries_requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{Limits, RequestHead};

    #[test]
    fn elements_of_all_fields_are_found() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket,, h2c ,\r\nX: y\r\n\
            upgrade: foo/2\r\nUpgrade:\r\nUpgrade: not one\r\n\r\n";
        let mut head = RequestHead::new();
        assert!(head.parse(text, &Limits::DEFAULT).unwrap().is_some());
        let found: Vec<_> = protocols(&head.fields, text).collect();
        let expected = [&b"websocket"[..], b"h2c", b"foo/2", b"not one"];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_carries_requests_is_not_offered() {
        for (protocol, offered) in [
            ("websocket", true),
            ("WebSocket", true),
            ("foo/2", true),
            ("h2cat", true),
            ("h2c", false),
            ("H2C", false),
            ("h2c/1", false),
            ("h2", false),
            ("HTTP/2.0", false),
            ("http", false),
            ("TLS/1.0", false),
            ("tls", false),
            ("", false),
            ("/", false),
            ("foo/", false),
            ("/2", false),
            ("foo/2/3", false),
            ("not one", false),
            ("a\0", false),
        ] {
            assert_eq!(may_be_offered(protocol.as_bytes()), offered, "{protocol:?}");
        }
    }
}
