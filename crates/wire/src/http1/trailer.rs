//! Which fields may come after a body (RFC 9110 section 6.5.1).

use super::FieldKind;
use super::field::same_name;

/// What else a server reads a request by, or a client an answer, before the body is there: content,
/// controls, authentication. The kinds that a proxy acts on are known by themselves.
const HEAD_ONLY: [&[u8]; 26] = [
    b"accept-encoding",
    b"age",
    b"authentication-info",
    b"cache-control",
    b"content-disposition",
    b"content-encoding",
    b"content-language",
    b"content-location",
    b"content-range",
    b"content-type",
    b"cookie2",
    b"date",
    b"expires",
    b"location",
    b"max-forwards",
    b"origin",
    b"pragma",
    b"range",
    b"realm",
    b"referer",
    b"retry-after",
    b"set-cookie2",
    b"vary",
    b"via",
    b"warning",
    b"www-authenticate",
];

/// Whether a field of this name may come after the body: it is not about framing, routing,
/// authentication, the content, who called, or what is to be done with the message. Any
/// [spelling](same_name) of a name that may not is one.
#[must_use]
pub fn may_be_trailer(name: &[u8]) -> bool {
    let begins_with = |start: &[u8]| {
        name.get(..start.len())
            .is_some_and(|begin| same_name(begin, start))
    };
    FieldKind::of(name) == FieldKind::Other
        && !begins_with(b"if-")
        && !HEAD_ONLY.iter().any(|known| same_name(known, name))
}

#[cfg(test)]
mod tests {
    use super::may_be_trailer;

    #[test]
    fn what_decides_about_a_message_may_not_come_after_it() {
        for name in [
            "Content-Length",
            "Transfer-Encoding",
            "transfer.encoding",
            "Host",
            "Connection",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Range",
            "If-None-Match",
            "IF_RANGE",
            "Cache-Control",
            "Max-Forwards",
            "Authorization",
            "Proxy-Authorization",
            "WWW-Authenticate",
            "Cookie",
            "Set-Cookie",
            "set_cookie",
            "Content-Type",
            "Content.Type",
            "Content-Encoding",
            "Content-Range",
            "Location",
            "Date",
            "Forwarded",
            "X-Forwarded-Whatever-The-Length-Of-It",
            "X.Forwarded.For",
            "X_Real_IP",
            "Heddle-Reason",
        ] {
            assert!(!may_be_trailer(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_is_known_only_after_the_body_may() {
        for name in [
            "X-Sum",
            "Content-Digest",
            "Content-MD5",
            "Digest",
            "Server-Timing",
            "ETag",
            "grpc-status",
            "x_sum",
            "Hosts",
            "iffy",
            "If",
        ] {
            assert!(may_be_trailer(name.as_bytes()), "{name}");
        }
    }
}
