//! TLS between nodes and the control plane, over sockets of a runtime.
//!
//! Both sides speak TLS 1.3 (RFC 8446) and HTTP/2 on it. The control plane shows its leaf with the root
//! behind it, so that a node that joins can compare the root with its token; a node shows the certificate
//! of its own identity, or none when it has yet to join.

mod acceptor;
mod connector;

pub use acceptor::{AcceptError, Acceptor};
pub use connector::{ConnectError, Connector};

/// What is spoken over the connection, in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"h2";
