//! The link between two nodes: many streams over one connection at a time, and a session that outlives
//! connections. `docs/link-protocol.md` has it for those who write the other end.
//!
//! ```text
//!   owner of the streams ──open, send, end…──▶ ┌─────────┐ ──transmit──▶ TLS ──▶ the other node
//!                        ◀─opened, data, over─ │ Session │ ◀──receive─── TLS ◀──
//!                                              └─────────┘
//!                                  heads by templates · frames · replay
//! ```
//!
//! * [`frame`]: the eight bytes that every frame begins with.
//! * [`hello`]: what each end says first: its token, how far it has come, its limits.
//! * [`heads`]: header blocks, most of which are a template and what differs.
//! * [`session`]: the state machine. It knows no socket and no clock.

pub mod frame;
pub mod heads;
pub mod hello;
pub mod session;

use std::fmt;

pub use frame::{Code, Serial};
pub use heads::HeadError;
pub use hello::{Hello, LinkLimits, Token};
pub use session::{Another, NoStream, Opened, Session, Streams, Verdict};

/// The other end breaks the protocol: its connection and its session are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// Of frames, streams, windows or offsets.
    Rule(&'static str),
    /// Of header blocks.
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
