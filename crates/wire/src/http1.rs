//! HTTP/1.1 (RFC 9110 and RFC 9112), strictly.
//!
//! If a proxy reads a message differently from the server behind it, an attacker can make it forward a request that it
//! never checked (request smuggling). A message that two readers could interpret differently is therefore refused with
//! a status and a reason code, and the connection is closed; see [`Reject`].
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
//! * [`RequestHead`] and [`ResponseHead`] are tables of offsets into the caller's bytes, reused from message to
//!   message.
//! * [`Edits`] turns the received head into the head to send.
//! * [`BodyTracker`] finds the end of the body, and the parts of its framing that must be rewritten.
//! * [`path`] and [`authority`] convert the values that routes match on into one canonical form.
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

/// Hard limit on the fields of a head, above [`Limits::max_fields`].
pub const MAX_FIELDS: usize = 160;

/// Limits of the parser. A message beyond a limit is refused, never truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a head, with request line and blank line. Values above 65,535 count as 65,535.
    pub max_head_bytes: usize,
    /// Fields in a head. Values above [`MAX_FIELDS`] count as [`MAX_FIELDS`].
    pub max_fields: usize,
    /// Bytes in a request target.
    pub max_target_bytes: usize,
    /// Bytes in a chunk's size line: size and extensions, without CRLF.
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
