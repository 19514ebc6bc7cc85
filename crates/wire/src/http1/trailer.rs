//! The fields that may come as trailers (RFC 9110 section 6.5.1).

use super::field::same_name;
use super::{FieldKind, Span};

/// Fields that a recipient needs before the body: about the content, controls, authentication. Those with a
/// [`FieldKind`] of their own are not listed.
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

/// Whether a field with this name may come as a trailer: it is not about framing, routing, authentication, the content,
/// the sender, or the processing of the message. A name in another [spelling](same_name) of a forbidden one is
/// forbidden too.
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

/// Names that `Connection` nominated in the head of a message, kept until its trailers arrive: trailers with these
/// names are not forwarded either (RFC 9110 section 7.6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nominated {
    /// Each name is followed by a comma.
    names: Box<[u8]>,
}

impl Nominated {
    /// Keeps the names that could come as trailers. `None` if there are none.
    #[cold]
    pub(super) fn of(buf: &[u8], names: &[Span]) -> Option<Box<Self>> {
        let mut kept = Vec::new();
        let names = names.iter().map(|span| span.of(buf));
        for name in names.filter(|name| may_be_trailer(name)) {
            kept.extend_from_slice(name);
            kept.push(b',');
        }
        let names = kept.into_boxed_slice();
        (!names.is_empty()).then(|| Box::new(Nominated { names }))
    }

    /// Whether a trailer with this name, in any [spelling](same_name), was nominated.
    #[must_use]
    pub fn names(&self, name: &[u8]) -> bool {
        let mut names = self.names.split(|&byte| byte == b',');
        names.any(|nominated| same_name(nominated, name))
    }
}

#[cfg(test)]
mod tests {
    use super::{Nominated, Span, may_be_trailer};

    #[test]
    fn what_connection_names_is_no_trailer_in_any_spelling() {
        let buf = b"TE, X-Secret,X-Sum";
        let names = [Span::new(0, 2), Span::new(4, 12), Span::new(13, 18)];
        // Names that cannot be trailers need not be kept.
        assert_eq!(Nominated::of(buf, &names[..1]), None);
        let nominated = Nominated::of(buf, &names).unwrap();
        for (name, is_named) in [
            ("X-Secret", true),
            ("x_secret", true),
            ("x-sum", true),
            ("X-Su", false),
            ("X-Sum2", false),
        ] {
            assert_eq!(nominated.names(name.as_bytes()), is_named, "{name}");
        }
    }

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
