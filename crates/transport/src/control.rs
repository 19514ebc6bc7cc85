//! TLS between nodes and the control plane, over async sockets.
//!
//! Both sides speak TLS 1.3 (RFC 8446) and HTTP/2 over it. The control plane shows its chain followed by the root, so
//! that a joining node can compare the root with its token. A node shows the certificate of its own identity, or none
//! while it joins.

mod acceptor;
mod connector;
mod watched;

pub use acceptor::{AcceptError, Acceptor, Unaccepted};
pub use connector::{ConnectError, Connector};
pub use watched::WatchedStream;

/// The application protocol of the connection: its name in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"h2";
