//! Application protocols between nodes, and with stock proxies, and their names in ALPN (RFC 7301).

/// The application protocol of one connection between two nodes, or between a node and a stock proxy such as an Envoy.
/// An incompatible version gets another ALPN name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// The link protocol: many streams over one connection, which may be lost and replaced.
    #[default]
    Link,
    /// HTTP/1.1 or raw bytes: one exchange at a time.
    Http1,
    /// HTTP/2: many requests over one connection.
    Http2,
    /// HTTP/1.1 with a stock proxy, whose destination is in the server name.
    StockHttp,
    /// Opaque bytes with a stock proxy, whose destination is in the server name.
    StockBytes,
}

impl Protocol {
    /// All protocols that a node accepts, in its order of preference.
    pub const ALL: [Protocol; 5] = [
        Protocol::Link,
        Protocol::Http1,
        Protocol::Http2,
        Protocol::StockHttp,
        Protocol::StockBytes,
    ];

    /// Those between two nodes.
    pub const NODES: [Protocol; 3] = [Protocol::Link, Protocol::Http1, Protocol::Http2];

    /// Those with a stock proxy.
    pub const STOCK: [Protocol; 2] = [Protocol::StockHttp, Protocol::StockBytes];

    /// The ALPN name, which includes the version.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Link => b"heddle-link/1",
            Protocol::Http1 => b"heddle/1",
            Protocol::Http2 => b"heddle-h2/1",
            Protocol::StockHttp => b"http/1.1",
            Protocol::StockBytes => b"heddle-bytes/1",
        }
    }

    /// Whether the peer is a stock proxy with the certificate of its workload, not a node.
    pub fn is_stock(self) -> bool {
        matches!(self, Protocol::StockHttp | Protocol::StockBytes)
    }

    /// The protocol with this ALPN name.
    pub(crate) fn of(name: &[u8]) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|one| one.alpn() == name)
    }
}
