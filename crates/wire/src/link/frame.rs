//! The eight bytes that every frame begins with.
//!
//! ```text
//!   0        1                                          2        3          6        8
//!   ┌────────┬───────┬────────┬──────┬──────┬───────────┬────────┬──────────┬────────┬─────────┐
//!   │ 0xB7   │ event │ wanted │ type │ more │ kind      │ code   │ serial   │ length │ payload │
//!   │        │ 1 bit │ 1      │ 1    │ 1    │ 4         │ 8      │ 24       │ 16     │         │
//!   └────────┴───────┴────────┴──────┴──────┴───────────┴────────┴──────────┴────────┴─────────┘
//! ```
//!
//! Numbers are big-endian. A head says by itself whether it can be right at all ([`Head::parse`]); whether
//! it is right at this moment the [session](super::session) knows.

use super::LinkError;

#[cfg(test)]
mod tests;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 8;

const MAGIC: u8 = 0xB7;
const EVENT: u8 = 1 << 7;
const WANTED: u8 = 1 << 6;
const RESPONSE: u8 = 1 << 5;
const MORE: u8 = 1 << 4;

/// Which stream a frame belongs to: 1 to 2²⁴ − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(u32);

impl Serial {
    /// The first one that a client gives.
    pub const FIRST: Serial = Serial(1);
    pub(super) const MAX: u32 = (1 << 24) - 1;

    /// A serial of this number, unless there is none.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The one after it; after the last comes the first.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 % Self::MAX + 1)
    }
}

/// Why: the third byte of heads, responses, resets and farewells. Ones that are not known here are passed on
/// as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// Nothing is wrong.
    pub const OK: Code = Code(0);
    /// The rest is not wanted.
    pub const CANCELLED: Code = Code(1);
    /// As many streams are open as may be; nothing was done, and it is safe to try elsewhere.
    pub const REFUSED: Code = Code(2);
    /// The link is ending; nothing was done, and it is safe to try elsewhere.
    pub const GOING_AWAY: Code = Code(3);
    /// What the stream carries was cut before its end.
    pub const CUT: Code = Code(4);
    /// What the stream carries is not what it must be.
    pub const MALFORMED: Code = Code(5);
    /// It took too long.
    pub const TIMEOUT: Code = Code(6);
    /// A bound is reached.
    pub const OVERLOAD: Code = Code(7);
    /// A fault of this end.
    pub const INTERNAL: Code = Code(8);
    /// Nothing used the link.
    pub const IDLE: Code = Code(9);
    /// What was proven about the other end holds no longer: a certificate ends, or is not trusted any more.
    pub const EXPIRED: Code = Code(10);
    /// The called node answers by itself: the endpoint did not.
    pub const LOCAL: Code = Code(11);
    /// More comes over the link than its end has time for: a link beside it is asked for.
    pub const BUSY: Code = Code(12);
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A header block, or its last piece, and first bytes of the body.
    Message = 0,
    /// Bytes of a stream.
    Data = 1,
    /// Room for more of them.
    Window = 2,
    /// A stream ends before its time.
    Reset = 3,
    /// An opaque flow begins: its destination, and its first bytes.
    Open = 4,
    /// A piece of a header block.
    Part = 5,
    /// Who speaks, how far it has come, what its limits are.
    Hello = EVENT,
    /// Is the other end there?
    Heartbeat = EVENT | 1,
    /// How far the sequenced frames have come.
    Ack = EVENT | 2,
    /// No more streams.
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

    /// Whether it is about the link instead of a stream. All others are sequenced.
    #[must_use]
    pub fn is_event(self) -> bool {
        self as u8 & EVENT != 0
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: FrameKind,
    /// Whether an answer is wanted: to the stream that begins here, to a heartbeat.
    pub wanted: bool,
    /// Whether it comes from the called end; of a heartbeat, whether it is the answer.
    pub response: bool,
    /// Whether the sender's side of the stream goes on.
    pub more: bool,
    /// Why.
    pub code: Code,
    /// The stream, or what an event counts.
    pub number: u32,
    /// Bytes that follow.
    pub length: u16,
}

impl Head {
    /// A head of this kind with nothing else in it.
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

    /// Its bytes. Of its number the low 24 bits count.
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

    /// What a head says.
    ///
    /// # Errors
    /// [`LinkError`] when no frame can have it.
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

    /// What holds of each kind whenever it comes.
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
