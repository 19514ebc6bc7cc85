//! The link between two nodes: many streams over one connection at a time, in a session that outlives connections.
//! `docs/link-protocol.md` specifies the protocol for other implementations.
//!
//! ```text
//!   owner of the streams ──open, send, end…──▶ ┌─────────┐ ──transmit──▶ TLS ──▶ the other node
//!                        ◀─opened, data, over─ │ Session │ ◀──receive─── TLS ◀──
//!                                              └─────────┘
//!                                  heads by templates · frames · replay
//! ```
//!
//! * [`frame`]: the eight bytes at the start of every frame.
//! * [`hello`]: the first frame of each end: session token, bytes received, limits.
//! * [`heads`]: header blocks; most are a template's id and the values that differ.
//! * [`session`]: the state machine, without sockets and clocks.

pub mod frame;
pub mod heads;
pub mod hello;
pub mod session;

use std::fmt;

pub use frame::{Code, Serial};
pub use heads::HeadError;
pub use hello::{Hello, LinkLimits, Token};
pub use session::{Another, NoStream, Opened, Session, Streams, Verdict};

/// The peer broke the protocol: close the connection and drop the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// A rule for frames, streams, windows or offsets; the text says which one.
    Rule(&'static str),
    /// A malformed header block.
    Head(HeadError),
}

impl From<HeadError> for LinkError {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end breaks the link protocol: ")?;
        match self {
            Self::Rule(why) => f.write_str(why),
            Self::Head(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LinkError {}
