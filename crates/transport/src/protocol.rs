//! What nodes speak to each other over TLS, as they name it in ALPN (RFC 7301).

/// What is spoken over one connection between two nodes. A version that others cannot read has another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// Many streams over one connection, which may be cut and made again.
    #[default]
    Link,
    /// HTTP/1.1, or bytes, one at a time.
    Http1,
    /// HTTP/2, many requests over one connection.
    Http2,
}

impl Protocol {
    /// All that a node takes.
    pub const ALL: [Protocol; 3] = [Protocol::Link, Protocol::Http1, Protocol::Http2];

    /// Its name in ALPN.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Link => b"heddle-link/1",
            Protocol::Http1 => b"heddle/1",
            Protocol::Http2 => b"heddle-h2/1",
        }
    }

    /// The one of this name.
    pub(crate) fn of(name: &[u8]) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|one| one.alpn() == name)
    }
}
