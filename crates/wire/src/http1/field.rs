//! Fields as offsets, and the kinds of fields that a proxy acts on.

/// A part of a head, as offsets from the start of the parsed buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u16,
    /// Offset after the last byte.
    pub end: u16,
}

impl Span {
    /// A span of a head. A head has at most `u16::MAX` bytes, so the offsets fit.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(
            start <= end && end <= usize::from(u16::MAX),
            "{start}..{end}"
        );
        Self {
            start: start as u16,
            end: end as u16,
        }
    }

    /// The bytes of `buf` in the span; empty when `buf` is too short, and so not the parsed buffer.
    #[must_use]
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(usize::from(self.start)..usize::from(self.end))
            .unwrap_or_default()
    }

    /// Bytes in the span.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        usize::from(self.end.saturating_sub(self.start))
    }

    /// Whether the span has no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// A field line of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The whole line with its CRLF: cut it to remove the field.
    pub line: Span,
    /// The name as received.
    pub name: Span,
    /// The value without surrounding whitespace.
    pub value: Span,
    /// The role of the field for a proxy.
    pub kind: FieldKind,
}

/// The fields that a proxy acts on. All others are [`Other`](Self::Other) and are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum FieldKind {
    Other,
    Authorization,
    Connection,
    ContentLength,
    Cookie,
    Expect,
    Forwarded,
    /// The reason why a node answered by itself instead of the server.
    HeddleReason,
    /// Who has sent the request, as a gateway asserts it.
    HeddleCaller,
    Host,
    Http2Settings,
    KeepAlive,
    ProxyAuthenticate,
    ProxyAuthenticationInfo,
    ProxyAuthorization,
    ProxyConnection,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    XForwardedClientCert,
    XForwardedFor,
    XForwardedHost,
    XForwardedPort,
    XForwardedProto,
    /// Any other field whose name begins with `X-Forwarded-`.
    XForwardedOther,
    XRealIp,
    /// Content-Length or Transfer-Encoding in another [spelling](same_name): a head with such a field is refused.
    FramingAlias,
}

const X_FORWARDED: &[u8] = b"x-forwarded-";
const X_HEDDLE_CALLER: &[u8] = b"x-heddle-caller";

/// Maps each byte of a name as a server does that turns names into variables: letters to lower case, digits to
/// themselves, all others to a hyphen.
static FOLDED: [u8; 256] = {
    let mut table = [b'-'; 256];
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

/// Whether some server treats two names as the same field: equal in any case, and with any other characters between
/// letters and digits. Servers that turn names into variables (CGI, WSGI, PHP) read `X_Role` as `X-Role`, and some of
/// them `X.Role` and `X~Role` too.
#[must_use]
pub fn same_name(one: &[u8], other: &[u8]) -> bool {
    let fold = |&byte: &u8| FOLDED[usize::from(byte)];
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

/// For each length, the first letters of the names that a proxy acts on. The last entry is for all longer names.
static FIRST_LETTERS: [u32; 32] = {
    let mut table = [0; 32];
    let mut length = 0;
    while length < table.len() {
        let mut letter = b'a';
        while letter <= b'z' {
            let forwarded = letter == b'x' && length > X_FORWARDED.len();
            if forwarded || FieldKind::candidate(length, letter).is_some() {
                table[length] |= bit_of(letter);
            }
            letter += 1;
        }
        length += 1;
    }
    table
};

/// Whether `name`, a token, equals `full` in any case. Both have the same length.
///
/// The bytes must be equal except in bit 5, the difference between upper and lower case. All characters of `full` have
/// bit 5 set, and only a letter has a token character as its counterpart without it.
#[inline(always)]
fn is_named(name: &[u8], full: &[u8]) -> bool {
    // Compares words of 8 bytes from the front, and the last word, which may overlap the one before.
    if let (Some(last), Some(last_of_full)) = (name.last_chunk(), full.last_chunk()) {
        let words = name.as_chunks().0.iter().zip(full.as_chunks().0);
        let equal = |(one, other): (&[u8; 8], &[u8; 8])| {
            let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
            differ & 0xdfdf_dfdf_dfdf_dfdf == 0
        };
        return equal((last, last_of_full)) && words.into_iter().all(equal);
    }
    name.iter()
        .zip(full)
        .all(|(one, other)| (one ^ other) & 0xdf == 0)
}

/// One bit for a letter in either case. Some other characters share it.
#[inline]
const fn bit_of(letter: u8) -> u32 {
    1 << (letter & 31)
}

impl FieldKind {
    /// The kind of the field called `name`, a token, in any case.
    ///
    /// Length and first letter leave at most one candidate, and none for nearly every name that a proxy ignores. A name
    /// in another [spelling](same_name) has the same kind, except for the framing fields: see
    /// [`FramingAlias`](Self::FramingAlias).
    #[must_use]
    #[inline(always)]
    pub fn of(name: &[u8]) -> Self {
        match name.first() {
            Some(&first) if FIRST_LETTERS[name.len().min(31)] & bit_of(first) != 0 => {
                Self::of_known(name, first)
            }
            _ => Self::Other,
        }
    }

    #[inline(never)]
    fn of_known(name: &[u8], first: u8) -> Self {
        match Self::candidate(name.len(), first) {
            Some((kind, full)) => kind.if_named(name, full),
            None => Self::x_forwarded(name),
        }
    }

    /// The only known name with this length and first letter, and its kind.
    const fn candidate(length: usize, first: u8) -> Option<(Self, &'static [u8])> {
        Some(match (length, first | 0x20) {
            (2, b't') => (Self::Te, b"te"),
            (4, b'h') => (Self::Host, b"host"),
            (6, b'c') => (Self::Cookie, b"cookie"),
            (6, b'e') => (Self::Expect, b"expect"),
            (7, b't') => (Self::Trailer, b"trailer"),
            (7, b'u') => (Self::Upgrade, b"upgrade"),
            (9, b'f') => (Self::Forwarded, b"forwarded"),
            (9, b'x') => (Self::XRealIp, b"x-real-ip"),
            (10, b'c') => (Self::Connection, b"connection"),
            (10, b'k') => (Self::KeepAlive, b"keep-alive"),
            (10, b's') => (Self::SetCookie, b"set-cookie"),
            (13, b'a') => (Self::Authorization, b"authorization"),
            (13, b'h') => (Self::HeddleReason, b"heddle-reason"),
            (14, b'c') => (Self::ContentLength, b"content-length"),
            (14, b'h') => (Self::Http2Settings, b"http2-settings"),
            (16, b'p') => (Self::ProxyConnection, b"proxy-connection"),
            (17, b't') => (Self::TransferEncoding, b"transfer-encoding"),
            (18, b'p') => (Self::ProxyAuthenticate, b"proxy-authenticate"),
            (19, b'p') => (Self::ProxyAuthorization, b"proxy-authorization"),
            (25, b'p') => (Self::ProxyAuthenticationInfo, b"proxy-authentication-info"),
            _ => return None,
        })
    }

    /// This kind if `name` equals `full`, which has the same length.
    #[inline(always)]
    fn if_named(self, name: &[u8], full: &[u8]) -> Self {
        if is_named(name, full) {
            self
        } else {
            self.if_alias(name, full)
        }
    }

    /// The kind if `name` is another spelling of `full`.
    #[cold]
    fn if_alias(self, name: &[u8], full: &[u8]) -> Self {
        match self {
            _ if !same_name(name, full) => Self::Other,
            Self::ContentLength | Self::TransferEncoding => Self::FramingAlias,
            _ => self,
        }
    }

    fn x_forwarded(name: &[u8]) -> Self {
        let Some((prefix, rest)) = name.split_at_checked(X_FORWARDED.len()) else {
            return Self::Other;
        };
        if !same_name(prefix, X_FORWARDED) {
            return match same_name(name, X_HEDDLE_CALLER) {
                true => Self::HeddleCaller,
                false => Self::Other,
            };
        }
        let kind = match rest.len() {
            3 => Self::XForwardedFor.if_named(rest, b"for"),
            4 if rest[0] | 0x20 == b'h' => Self::XForwardedHost.if_named(rest, b"host"),
            4 => Self::XForwardedPort.if_named(rest, b"port"),
            5 => Self::XForwardedProto.if_named(rest, b"proto"),
            11 => Self::XForwardedClientCert.if_named(rest, b"client-cert"),
            _ => Self::Other,
        };
        if kind == Self::Other {
            Self::XForwardedOther
        } else {
            kind
        }
    }

    /// Fields that name the sender of the request and the proxies on its way. Those from a client are removed, unless
    /// it is trusted.
    #[must_use]
    pub fn is_forwarding(self) -> bool {
        matches!(
            self,
            Self::Forwarded
                | Self::XForwardedClientCert
                | Self::XForwardedFor
                | Self::XForwardedHost
                | Self::XForwardedOther
                | Self::XForwardedPort
                | Self::XForwardedProto
                | Self::XRealIp
        )
    }

    /// Fields for one connection, which are never forwarded (RFC 9110 section 7.6.1). `TE` is one too, but
    /// `TE: trailers` is forwarded; see [`RequestHead::strip_hop_by_hop`](super::RequestHead::strip_hop_by_hop).
    #[must_use]
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::HeddleCaller
                | Self::Http2Settings
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthenticationInfo
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Upgrade
        )
    }

    /// Fields that `Connection` may not name: without them the message would have another meaning, end or sender.
    #[must_use]
    pub(crate) fn is_protected(self) -> bool {
        self.is_forwarding()
            || matches!(
                self,
                Self::Authorization
                    | Self::ContentLength
                    | Self::Cookie
                    | Self::Expect
                    | Self::FramingAlias
                    | Self::Host
                    | Self::SetCookie
                    | Self::TransferEncoding
            )
    }
}

#[cfg(test)]
mod tests;
