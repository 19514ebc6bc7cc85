//! HTTP/1.1 (RFC 9110 and RFC 9112), strictly.
//!
//! A proxy that reads a message differently from the server behind it can be made to forward a
//! request that it never saw (request smuggling). Everything that two readers could understand
//! in two ways is therefore refused here, with a status and a reason code, and the connection is
//! closed; see [`Reject`].
//!
//! ```text
//!             ┌───────────────────────── keep-alive ────────────────────────┐
//!             ▼                                                             │
//!   bytes ─▶ RequestHead::parse ─▶ Edits (cut, replace, append) ─▶ BodyTracker::forward
//!             │      │                   │                            │
//!             │      └─ path, authority  └─ write_to: verbatim copy   └─ bytes as they are, or a Line
//!             ▼                                                       ▼
//!           Reject ── answered once, connection closed ◀──────────────┘
//! ```
//!
//! * [`RequestHead`] and [`ResponseHead`] are tables of offsets into the caller's bytes, reused
//!   from message to message.
//! * [`Edits`] turns the received head into the head that is sent on.
//! * [`BodyTracker`] finds where the body ends, and what of its framing is to be written anew.
//! * [`path`] and [`authority`] bring what routes match on into one canonical form.
//!
//! ```
//! use heddle_wire::http1::{BodyTracker, Edits, Limits, RequestHead};
//!
//! let bytes = b"PUT /7 HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
//! let mut head = RequestHead::new();
//! let length = head.parse(bytes, &Limits::DEFAULT)?.expect("the head is whole");
//!
//! let mut edits = Edits::new();
//! head.strip_hop_by_hop(bytes, &mut edits);
//! edits.replace(head.path, b"/v2/7");
//! edits.append(b"X-Forwarded-For", b"10.0.0.1");
//! let mut sent = Vec::new();
//! edits.write_to(&bytes[..length], &mut sent);
//!
//! let mut body = BodyTracker::from_framing(head.framing);
//! let end = body.advance(&bytes[length..])?;
//! sent.extend_from_slice(&bytes[length..][..end.consumed]);
//! assert!(end.done);
//! assert_eq!(
//!     sent,
//!     b"PUT /v2/7 HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\nX-Forwarded-For: 10.0.0.1\r\n\r\nhi"
//! );
//! # Ok::<(), heddle_wire::http1::Reject>(())
//! ```

pub mod authority;
mod beginning;
mod body;
mod diagnose;
mod edits;
mod field;
mod framing;
mod parse;
pub mod path;
mod reject;
mod request;
mod response;
mod scan;
mod target;
mod trailer;
mod upgrade;

pub use beginning::{Beginning, beginning};
pub use body::{Advance, BodyTracker, Forward, Line, Piece};
pub use edits::Edits;
pub use field::{Field, FieldKind, Span, same_name};
pub use framing::Framing;
pub use reject::{REJECTS, Reject};
pub use request::{Method, RequestHead, Version};
pub use response::ResponseHead;
pub use target::TargetForm;
pub use trailer::{Nominated, may_be_trailer};
pub use upgrade::{may_be_offered, protocols};

/// Most fields that a head can have, whatever [`Limits::max_fields`] says.
pub const MAX_FIELDS: usize = 160;

/// Bounds on what is parsed. Beyond them a message is refused, never cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a head, request line and blank line included. At most 65,535 are used.
    pub max_head_bytes: usize,
    /// Fields in a head. At most [`MAX_FIELDS`] are used.
    pub max_fields: usize,
    /// Bytes in a request target.
    pub max_target_bytes: usize,
    /// Bytes in a chunk's size line: size and extensions, without its CRLF.
    pub max_chunk_line_bytes: u16,
    /// Bytes in a chunked body's trailer section.
    pub max_trailer_bytes: u16,
}

impl Limits {
    /// 32 KiB heads of 100 fields, targets and trailers of 8 KiB, chunk lines of 256 bytes.
    pub const DEFAULT: Self = Self {
        max_head_bytes: 32 * 1024,
        max_fields: 100,
        max_target_bytes: 8 * 1024,
        max_chunk_line_bytes: 256,
        max_trailer_bytes: 8 * 1024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
