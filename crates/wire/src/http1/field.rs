//! Fields as offsets, and the few of them that a proxy acts on.

/// A part of a head, as offsets from the first byte of the buffer that was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u16,
    /// Offset after the last byte.
    pub end: u16,
}

impl Span {
    /// A span of a head. Heads are at most `u16::MAX` bytes long, so nothing is lost here.
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

    /// The bytes of `buf` that the span covers; none when `buf` is not what was parsed.
    #[must_use]
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(usize::from(self.start)..usize::from(self.end))
            .unwrap_or_default()
    }

    /// Bytes in the span.
    #[must_use]
    pub fn len(self) -> usize {
        usize::from(self.end.saturating_sub(self.start))
    }

    /// Whether the span has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// A field line of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The whole line with its CRLF: what to cut to remove the field.
    pub line: Span,
    /// The name as it was sent.
    pub name: Span,
    /// The value without the whitespace around it.
    pub value: Span,
    /// What the field is to a proxy.
    pub kind: FieldKind,
}

/// The fields that a proxy acts on; everything else is [`Other`](Self::Other) and just passes.
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
    /// By which a node says why it answered itself.
    HeddleReason,
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
    /// Content-Length or Transfer-Encoding in another [spelling](same_name): heads with such a field
    /// are refused.
    FramingAlias,
}

const X_FORWARDED: &[u8] = b"x-forwarded-";

/// What each byte of a name is to a server that turns names into variables: a letter in lower case, a
/// digit, or a hyphen.
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

/// Whether some server takes two names for the same field: equal but for case, and for what stands
/// between letters and digits. Servers that make variables of names (CGI, WSGI, PHP) take
/// `X_Role` for `X-Role`, and some of them `X.Role` and `X~Role` as well.
#[must_use]
pub fn same_name(one: &[u8], other: &[u8]) -> bool {
    let fold = |&byte: &u8| FOLDED[usize::from(byte)];
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

impl FieldKind {
    /// The kind of the field called `name`, which is a token, in any case.
    ///
    /// Length and first byte leave one candidate or two, so an unknown name costs one comparison
    /// of two bytes. In another [spelling](same_name) a name is of the same kind, but for those
    /// of framing: see [`FramingAlias`](Self::FramingAlias).
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let Some(&first) = name.first() else {
            return Self::Other;
        };
        match (name.len(), first | 0x20) {
            (2, b't') => Self::Te.if_named(name, b"te"),
            (4, b'h') => Self::Host.if_named(name, b"host"),
            (6, b'c') => Self::Cookie.if_named(name, b"cookie"),
            (6, b'e') => Self::Expect.if_named(name, b"expect"),
            (7, b't') => Self::Trailer.if_named(name, b"trailer"),
            (7, b'u') => Self::Upgrade.if_named(name, b"upgrade"),
            (9, b'f') => Self::Forwarded.if_named(name, b"forwarded"),
            (9, b'x') => Self::XRealIp.if_named(name, b"x-real-ip"),
            (10, b'c') => Self::Connection.if_named(name, b"connection"),
            (10, b'k') => Self::KeepAlive.if_named(name, b"keep-alive"),
            (10, b's') => Self::SetCookie.if_named(name, b"set-cookie"),
            (13, b'a') => Self::Authorization.if_named(name, b"authorization"),
            (13, b'h') => Self::HeddleReason.if_named(name, b"heddle-reason"),
            (14, b'c') => Self::ContentLength.if_named(name, b"content-length"),
            (14, b'h') => Self::Http2Settings.if_named(name, b"http2-settings"),
            (16, b'p') => Self::ProxyConnection.if_named(name, b"proxy-connection"),
            (17, b't') => Self::TransferEncoding.if_named(name, b"transfer-encoding"),
            (18, b'p') => Self::ProxyAuthenticate.if_named(name, b"proxy-authenticate"),
            (19, b'p') => Self::ProxyAuthorization.if_named(name, b"proxy-authorization"),
            (25, b'p') => {
                Self::ProxyAuthenticationInfo.if_named(name, b"proxy-authentication-info")
            }
            (13.., b'x') => Self::x_forwarded(name),
            _ => Self::Other,
        }
    }

    /// This kind if `name` is `full`, which has the same length.
    ///
    /// Lengths known to the compiler make this a comparison of one or two machine words. Setting
    /// bit 5 makes upper case lower and leaves hyphens and digits; no other byte of a token
    /// becomes one of them.
    #[inline]
    fn if_named<const N: usize>(self, name: &[u8], full: &[u8; N]) -> Self {
        let Some(name) = name.first_chunk::<N>() else {
            return Self::Other;
        };
        let difference = (0..N).fold(0, |sum, at| sum | ((name[at] | 0x20) ^ full[at]));
        if difference == 0 {
            self
        } else {
            self.if_alias(name, full)
        }
    }

    /// What this kind becomes if `name` is another spelling of `full`.
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
            return Self::Other;
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

    /// Fields that say who sent the request and through which proxies. A client's own are removed unless
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

    /// Fields about one connection, which are never passed on (RFC 9110 section 7.6.1). `TE` is
    /// one too, but `TE: trailers` is passed on; see
    /// [`RequestHead::strip_hop_by_hop`](super::RequestHead::strip_hop_by_hop).
    #[must_use]
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Http2Settings
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthenticationInfo
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Upgrade
        )
    }

    /// Fields that `Connection` may not name: removing them would change what the message says,
    /// where it ends, or who sent it.
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
