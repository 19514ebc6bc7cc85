//! The eight bytes at the start of every frame.
//!
//! ```text
//!   0        1                                          2        3          6        8
//!   ┌────────┬───────┬────────┬──────┬──────┬───────────┬────────┬──────────┬────────┬─────────┐
//!   │ 0xB7   │ event │ wanted │ type │ more │ kind      │ code   │ serial   │ length │ payload │
//!   │        │ 1 bit │ 1      │ 1    │ 1    │ 4         │ 8      │ 24       │ 16     │         │
//!   └────────┴───────┴────────┴──────┴──────┴───────────┴────────┴──────────┴────────┴─────────┘
//! ```
//!
//! Numbers are big-endian. [`Head::parse`] checks what is wrong with a frame head at any time; the
//! [session](super::session) checks whether the frame is allowed at this moment.

use super::LinkError;

#[cfg(test)]
mod tests;

/// Length of a frame head, in bytes.
pub const HEAD_BYTES: usize = 8;

const MAGIC: u8 = 0xB7;
const EVENT: u8 = 1 << 7;
const WANTED: u8 = 1 << 6;
const RESPONSE: u8 = 1 << 5;
const MORE: u8 = 1 << 4;

/// The number of a stream: 1 to 2²⁴ − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(u32);

impl Serial {
    /// The first serial that a client uses.
    pub const FIRST: Serial = Serial(1);
    pub(super) const MAX: u32 = (1 << 24) - 1;

    /// The serial with this number; `None` when it is out of range.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The next serial; the first one follows the last.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 % Self::MAX + 1)
    }
}

/// The reason in heads, responses, resets and GOAWAY frames: one byte. Unknown codes are passed on unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// No error.
    pub const OK: Code = Code(0);
    /// The sender of the code does not want the rest.
    pub const CANCELLED: Code = Code(1);
    /// The limit on open streams is reached. Nothing was done, so a retry elsewhere is safe.
    pub const REFUSED: Code = Code(2);
    /// The link is going away. Nothing was done, so a retry elsewhere is safe.
    pub const GOING_AWAY: Code = Code(3);
    /// The content of the stream was cut off before its end.
    pub const CUT: Code = Code(4);
    /// The content of the stream is malformed.
    pub const MALFORMED: Code = Code(5);
    /// A timeout was reached.
    pub const TIMEOUT: Code = Code(6);
    /// A limit is reached.
    pub const OVERLOAD: Code = Code(7);
    /// An internal error of this end.
    pub const INTERNAL: Code = Code(8);
    /// The link is idle.
    pub const IDLE: Code = Code(9);
    /// The proof of the peer's identity is no longer valid: a certificate expires, or is no longer trusted.
    pub const EXPIRED: Code = Code(10);
    /// The response is from the called node itself, not from the endpoint.
    pub const LOCAL: Code = Code(11);
    /// The link carries more than its end can handle: it asks for a second link.
    pub const BUSY: Code = Code(12);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A header block, or its last part, and the first bytes of the body.
    Message = 0,
    /// Bytes of a stream.
    Data = 1,
    /// More room in a stream's window.
    Window = 2,
    /// A stream is aborted.
    Reset = 3,
    /// The start of an opaque flow: its destination and first bytes.
    Open = 4,
    /// A part of a header block, before its last one.
    Part = 5,
    /// The first frame of an end: session token, bytes received, limits.
    Hello = EVENT,
    /// A probe for whether the peer is alive, or the answer to one.
    Heartbeat = EVENT | 1,
    /// Acknowledges sequenced frames.
    Ack = EVENT | 2,
    /// The sender goes away, or asks for another link.
    GoAway = EVENT | 3,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        const KINDS: [FrameKind; 6] = [
            FrameKind::Message,
            FrameKind::Data,
            FrameKind::Window,
            FrameKind::Reset,
            FrameKind::Open,
            FrameKind::Part,
        ];
        const EVENTS: [FrameKind; 4] = [
            FrameKind::Hello,
            FrameKind::Heartbeat,
            FrameKind::Ack,
            FrameKind::GoAway,
        ];
        let number = usize::from(byte & 0xf);
        if byte & EVENT == 0 {
            KINDS.get(number).copied()
        } else {
            EVENTS.get(number).copied()
        }
    }

    /// Whether the frame belongs to the link instead of a stream. All others are sequenced.
    #[must_use]
    pub fn is_event(self) -> bool {
        self as u8 & EVENT != 0
    }
}

/// The decoded first eight bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub kind: FrameKind,
    /// Whether an answer is wanted: on a new stream, or to a heartbeat.
    pub wanted: bool,
    /// Whether the frame comes from the server end; in a heartbeat, whether it is the answer.
    pub response: bool,
    /// Whether more frames follow from the sender on this stream.
    pub more: bool,
    /// The reason code; [`Code::OK`] where none applies.
    pub code: Code,
    /// The stream's serial, or the number of an event.
    pub number: u32,
    /// Length of the payload, in bytes.
    pub length: u16,
}

impl Head {
    /// A head of this kind with no flags, no code and no payload.
    #[must_use]
    pub fn new(kind: FrameKind, number: u32) -> Self {
        Self {
            kind,
            wanted: false,
            response: false,
            more: false,
            code: Code::OK,
            number,
            length: 0,
        }
    }

    /// The encoded head. Only the low 24 bits of `number` are used.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let kind = self.kind as u8;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let second =
            kind | bit(self.wanted, WANTED) | bit(self.response, RESPONSE) | bit(self.more, MORE);
        let number = self.number.to_be_bytes();
        let length = self.length.to_be_bytes();
        [
            MAGIC,
            second,
            self.code.0,
            number[1],
            number[2],
            number[3],
            length[0],
            length[1],
        ]
    }

    /// Decodes a frame head.
    ///
    /// # Errors
    /// [`LinkError`] when no frame can have this head.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, LinkError> {
        if bytes[0] != MAGIC {
            return Err(LinkError::Rule(
                "a frame does not begin with the magic number",
            ));
        }
        let kind =
            FrameKind::from_byte(bytes[1]).ok_or(LinkError::Rule("a kind of frame is unknown"))?;
        let head = Self {
            kind,
            wanted: bytes[1] & WANTED != 0,
            response: bytes[1] & RESPONSE != 0,
            more: bytes[1] & MORE != 0,
            code: Code(bytes[2]),
            number: u32::from_be_bytes([0, bytes[3], bytes[4], bytes[5]]),
            length: u16::from_be_bytes([bytes[6], bytes[7]]),
        };
        head.check()?;
        Ok(head)
    }

    /// The rules for each kind that hold at any time.
    fn check(&self) -> Result<(), LinkError> {
        let Self { wanted, more, .. } = *self;
        let flags_are_right = match self.kind {
            FrameKind::Message => !(wanted && self.response),
            FrameKind::Part => more && !(wanted && self.response),
            FrameKind::Open => wanted && !self.response,
            FrameKind::Data => !wanted,
            FrameKind::Window => more && !wanted,
            FrameKind::Reset => !more && !wanted,
            FrameKind::Hello => !more && !wanted,
            FrameKind::Heartbeat => !more && wanted != self.response,
            FrameKind::Ack | FrameKind::GoAway => !more && !wanted && !self.response,
        };
        if !flags_are_right {
            return Err(LinkError::Rule("a frame's flags do not suit its kind"));
        }
        let length_is_right = match self.kind {
            FrameKind::Message | FrameKind::Part => self.length >= 1,
            FrameKind::Open => self.length >= 2,
            FrameKind::Data => self.length >= 1 || !more,
            FrameKind::Window => self.length == 4,
            FrameKind::Hello => true,
            FrameKind::Reset | FrameKind::Heartbeat | FrameKind::Ack | FrameKind::GoAway => {
                self.length == 0
            }
        };
        if !length_is_right {
            return Err(LinkError::Rule("a frame's length does not suit its kind"));
        }
        let has_code = matches!(
            self.kind,
            FrameKind::Message | FrameKind::Reset | FrameKind::GoAway
        );
        if !has_code && self.code != Code::OK {
            return Err(LinkError::Rule(
                "a frame has a code that its kind does not have",
            ));
        }
        if self.number == 0 && !self.kind.is_event()
            || self.number != 0 && self.kind == FrameKind::Hello
        {
            return Err(LinkError::Rule("a frame's serial does not suit its kind"));
        }
        Ok(())
    }
}
