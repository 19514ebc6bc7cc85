//! The first frame of each end on every connection.
//!
//! ```text
//!   0     8         9        10      12      28         36        …                       64         66
//!   ┌─────┬─────────┬────────┬───────┬───────┬──────────┬─────────┬──────────────────────┬──────────┬───────┐
//!   │head │ version │ oldest │ flags │ token │ received │ limits: windows, frame, …      │ length   │ later │
//!   │     │ 1       │ 1      │ 2     │ 16    │ 8        │ 4+4+4+2+2+4+4+4                │ 2        │       │
//!   └─────┴─────────┴────────┴───────┴───────┴──────────┴─────────┴──────────────────────┴──────────┴───────┘
//! ```

use std::fmt;

use super::LinkError;
use super::frame::{FrameKind, HEAD_BYTES, Head};

#[cfg(test)]
mod tests;

/// The protocol version of this implementation, the only one it speaks.
pub const VERSION: u8 = 1;
/// Limit on the payload of a HELLO, in bytes.
pub const MAX_HELLO_BYTES: usize = 4096;
/// Flag: all streams of the client are for offline callers.
const OFFLINE: u8 = 0b10;
/// Flag: the client can keep a second link beside this one.
const BESIDE: u8 = 1;
/// Length of the payload without the reserved field's content, in bytes.
const FIXED_BYTES: usize = 4 + 16 + 8 + 28 + 2;

/// Identifies a session. The client that shows it must also prove the identity that began the session: under another
/// identity the token is treated as unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// The token in the HELLO of a client that begins a session.
    pub const NONE: Token = Token([0; 16]);
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NONE {
            "Token(none)"
        } else {
            // Logs are read by people who must not be able to resume sessions.
            "Token(…)"
        })
    }
}

/// The limits of one end for what its peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLimits {
    /// Initial window of a stream, in bytes: the peer may send this much before it gets more room.
    pub stream_window: u32,
    /// Bytes of sequenced frames that the peer may send before an acknowledgement. The smaller value of both ends
    /// applies in both directions. Values above 8 MiB count as 8 MiB.
    pub link_window: u32,
    /// Limit on the payload of a frame, in bytes. Values above 65,535 count as 65,535.
    pub max_frame: u32,
    /// Limit on open streams.
    pub max_streams: u16,
    /// Limit on header templates.
    pub max_templates: u16,
    /// Limit on the cost of all templates together, in bytes.
    pub template_bytes: u32,
    /// Limit on a head, in bytes.
    pub max_head: u32,
    /// How long this end keeps a session without a connection, in milliseconds.
    pub retention_ms: u32,
    /// Limit up to which a stream's window grows while its reader keeps up, in bytes. It is not sent to the peer.
    pub grown_window: u32,
}

impl LinkLimits {
    /// The limits that a client assumes until it has received the server's, and the defaults of both ends.
    pub const INITIAL: LinkLimits = LinkLimits {
        stream_window: 64 * 1024,
        link_window: 1024 * 1024,
        max_frame: 16 * 1024,
        max_streams: 1024,
        max_templates: 256,
        template_bytes: 1024 * 1024,
        max_head: 64 * 1024,
        retention_ms: 30_000,
        grown_window: 256 * 1024,
    };

    /// The lowest limits that are of use.
    const LEAST: LinkLimits = LinkLimits {
        stream_window: 1024,
        link_window: 8 * 1024,
        max_frame: 1024,
        max_streams: 1,
        max_templates: 0,
        template_bytes: 0,
        max_head: 1024,
        retention_ms: 0,
        grown_window: 0,
    };

    /// An ACK has only the low 24 bits of an offset, so far fewer bytes may be in flight.
    const MOST_LINK_WINDOW: u32 = 8 * 1024 * 1024;
    /// Keeps sums of windows within 32 bits.
    const MOST_STREAM_WINDOW: u32 = 1 << 30;

    /// The limits that a server announces: never below those that a client assumes. The number of streams (it refuses
    /// those beyond) and the retention may be lower.
    pub(super) fn for_server(self) -> Self {
        let initial = Self::INITIAL;
        Self {
            stream_window: self.stream_window.max(initial.stream_window),
            link_window: self.link_window.max(initial.link_window),
            max_frame: self.max_frame.max(initial.max_frame),
            max_templates: self.max_templates.max(initial.max_templates),
            template_bytes: self.template_bytes.max(initial.template_bytes),
            max_head: self.max_head.max(initial.max_head),
            ..self
        }
        .in_bounds()
    }

    pub(super) fn for_client(self) -> Self {
        self.in_bounds()
    }

    fn in_bounds(self) -> Self {
        let least = Self::LEAST;
        let stream_window = self
            .stream_window
            .clamp(least.stream_window, Self::MOST_STREAM_WINDOW);
        Self {
            stream_window,
            link_window: self
                .link_window
                .clamp(least.link_window, Self::MOST_LINK_WINDOW),
            max_frame: self.max_frame.clamp(least.max_frame, u16::MAX.into()),
            max_streams: self.max_streams.max(least.max_streams),
            max_head: self.max_head.max(least.max_head),
            grown_window: self
                .grown_window
                .clamp(stream_window, Self::MOST_STREAM_WINDOW),
            ..self
        }
    }

    /// Caps the limits announced by the peer: its generous values must not decide how much memory this end uses.
    pub(super) fn heard_by(self, own: &LinkLimits) -> Self {
        Self {
            max_head: self.max_head.min(own.max_head.max(Self::INITIAL.max_head)),
            max_templates: self
                .max_templates
                .min(own.max_templates.max(Self::INITIAL.max_templates)),
            template_bytes: self
                .template_bytes
                .min(own.template_bytes.max(Self::INITIAL.template_bytes)),
            ..self
        }
    }

    /// Whether an end may announce these limits.
    fn check(&self, server: bool) -> Result<(), LinkError> {
        let least = if server {
            // A server may allow fewer streams: those opened before its HELLO arrives are refused.
            Self {
                max_streams: 1,
                retention_ms: 0,
                ..Self::INITIAL
            }
        } else {
            Self::LEAST
        };
        let enough = self.stream_window >= least.stream_window
            && self.stream_window <= Self::MOST_STREAM_WINDOW
            && self.link_window >= least.link_window
            && self.max_frame >= least.max_frame
            && self.max_streams >= least.max_streams
            && self.max_templates >= least.max_templates
            && self.template_bytes >= least.template_bytes
            && self.max_head >= least.max_head;
        if enough {
            Ok(())
        } else {
            Err(LinkError::Rule("a limit in the HELLO is out of bounds"))
        }
    }
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self::INITIAL
    }
}

/// The first frame of a connection, from each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Whether the server end sent it.
    pub server: bool,
    /// The newest version that the sender speaks.
    pub version: u8,
    /// The oldest version that the sender speaks.
    pub oldest: u8,
    /// The session to resume or to begin.
    pub token: Token,
    /// Bytes of sequenced frames that the sender has received in that session.
    pub received: u64,
    /// The sender's limits.
    pub limits: LinkLimits,
    /// Set by a client that opens a second link when asked for one, and keeps both.
    pub beside: bool,
    /// Set by a client all of whose streams are for offline callers: what is done for them may wait for others.
    pub offline: bool,
}

impl Hello {
    /// Parses a HELLO at the front of `bytes`. Returns it with the length of its frame, or `None` when more bytes are
    /// needed.
    ///
    /// # Errors
    /// [`LinkError`], as soon as the bytes cannot be a valid HELLO.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, LinkError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = Head::parse(head)?;
        let length = usize::from(head.length);
        if head.kind != FrameKind::Hello {
            return Err(LinkError::Rule("a connection does not begin with a HELLO"));
        }
        if !(FIXED_BYTES..=MAX_HELLO_BYTES).contains(&length) {
            return Err(LinkError::Rule("a HELLO's length is out of bounds"));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let hello = Self::parse_payload(payload, head.response)?;
        Ok(Some((hello, HEAD_BYTES + length)))
    }

    pub(super) fn parse_payload(payload: &[u8], server: bool) -> Result<Self, LinkError> {
        let mut fields = HelloReader(payload);
        let [version, oldest] = fields.take()?;
        // Unknown flags are ignored: the sender sees from our version that we do not know them.
        let [_, flags] = fields.take()?;
        let hello = Self {
            server,
            version,
            oldest,
            token: Token(fields.take()?),
            received: u64::from_be_bytes(fields.take()?),
            limits: LinkLimits {
                stream_window: fields.u32()?,
                link_window: fields.u32()?,
                max_frame: fields.u32()?,
                max_streams: fields.u16()?,
                max_templates: fields.u16()?,
                template_bytes: fields.u32()?,
                max_head: fields.u32()?,
                retention_ms: fields.u32()?,
                grown_window: 0,
            },
            beside: !server && flags & BESIDE != 0,
            offline: !server && flags & OFFLINE != 0,
        };
        let reserved = usize::from(fields.u16()?);
        if fields.0.len() != reserved {
            return Err(LinkError::Rule(
                "a HELLO's reserved field has a wrong length",
            ));
        }
        if oldest > version || !(oldest..=version).contains(&VERSION) {
            return Err(LinkError::Rule("no version is spoken by both ends"));
        }
        hello.limits.check(server)?;
        if server && hello.token == Token::NONE {
            return Err(LinkError::Rule("a server's HELLO has no token"));
        }
        if hello.token == Token::NONE && hello.received != 0 {
            return Err(LinkError::Rule("a new session has an offset other than 0"));
        }
        Ok(hello)
    }

    /// Appends the encoded frame to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let head = Head {
            response: self.server,
            length: FIXED_BYTES as u16,
            ..Head::new(FrameKind::Hello, 0)
        };
        let limits = &self.limits;
        out.extend_from_slice(&head.bytes());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.beside, BESIDE) | flag(self.offline, OFFLINE);
        out.extend_from_slice(&[self.version, self.oldest, 0, flags]);
        out.extend_from_slice(&self.token.0);
        out.extend_from_slice(&self.received.to_be_bytes());
        for number in [limits.stream_window, limits.link_window, limits.max_frame] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [limits.max_streams, limits.max_templates] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [limits.template_bytes, limits.max_head, limits.retention_ms] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&[0, 0]);
    }
}

/// The part of the payload that is not read yet.
struct HelloReader<'a>(&'a [u8]);

impl HelloReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], LinkError> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(LinkError::Rule("a HELLO is too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, LinkError> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, LinkError> {
        Ok(u32::from_be_bytes(self.take()?))
    }
}
