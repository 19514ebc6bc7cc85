//! Application protocols between nodes, and their names in ALPN (RFC 7301).

/// The application protocol of one connection between two nodes. An incompatible version gets another ALPN name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// The link protocol: many streams over one connection, which may be lost and replaced.
    #[default]
    Link,
    /// HTTP/1.1 or raw bytes: one exchange at a time.
    Http1,
    /// HTTP/2: many requests over one connection.
    Http2,
}

impl Protocol {
    /// All protocols that a node accepts, in its order of preference.
    pub const ALL: [Protocol; 3] = [Protocol::Link, Protocol::Http1, Protocol::Http2];

    /// The ALPN name, which includes the version.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Link => b"heddle-link/1",
            Protocol::Http1 => b"heddle/1",
            Protocol::Http2 => b"heddle-h2/1",
        }
    }

    /// The protocol with this ALPN name.
    pub(crate) fn of(name: &[u8]) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|one| one.alpn() == name)
    }
}
