//! What each end says first on every connection.
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

/// The version that this is, and the oldest one that is spoken.
pub const VERSION: u8 = 1;
/// Longest payload of a HELLO, in bytes.
pub const MAX_HELLO_BYTES: usize = 4096;
/// Of the flags: the client opens a link beside this one when it is asked for one.
const BESIDE: u8 = 1;
/// Bytes of a payload before what the reserved field holds.
const FIXED_BYTES: usize = 4 + 16 + 8 + 28 + 2;

/// What a session is found by. The client that shows it still has to prove that it began the session: a
/// token found under another identity is one that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// What a client shows that begins a session.
    pub const NONE: Token = Token([0; 16]);
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NONE {
            "Token(none)"
        } else {
            // Logs are read by more people than may resume sessions.
            "Token(…)"
        })
    }
}

/// What one end takes from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLimits {
    /// Bytes of a stream that may come before it gives room for more.
    pub stream_window: u32,
    /// Bytes of sequenced frames that may come before it acknowledges. The smaller one of both ends holds in
    /// both directions. At most 8 MiB count.
    pub link_window: u32,
    /// Longest payload of a frame, in bytes. At most 65,535 count.
    pub max_frame: u32,
    /// Streams that may be open at once.
    pub max_streams: u16,
    /// Templates of header blocks that may be defined at once.
    pub max_templates: u16,
    /// Bytes of all templates together.
    pub template_bytes: u32,
    /// Longest head, in bytes.
    pub max_head: u32,
    /// How long it keeps a session without a connection.
    pub retention_ms: u32,
    /// How far it lets the window of a stream grow whose reader keeps up. It is not said to the other end.
    pub grown_window: u32,
}

impl LinkLimits {
    /// What a client may take for granted until it has heard the server, and what is said unless the
    /// owner wants otherwise.
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

    /// Less than this is of no use.
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

    /// An offset is told by its low 24 bits, so that far fewer may be on their way.
    const MOST_LINK_WINDOW: u32 = 8 * 1024 * 1024;
    /// So that sums of windows are numbers.
    const MOST_STREAM_WINDOW: u32 = 1 << 30;

    /// What a server says: never less than a client takes for granted, but for how many streams there are
    /// (it refuses those beyond) and how long it keeps a session.
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

    /// What is made of what the other end says: it may take more than is of use to an end with limits of its
    /// own, and must not decide how much that keeps.
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

    /// Whether one end may say this.
    fn check(&self, server: bool) -> Result<(), LinkError> {
        let least = if server {
            // Of streams a server may allow fewer: what comes before it was heard is refused.
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

/// The first frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Whether the called end says it.
    pub server: bool,
    /// Newest version that its sender speaks.
    pub version: u8,
    /// Oldest one.
    pub oldest: u8,
    /// The session.
    pub token: Token,
    /// Bytes of sequenced frames that its sender has received in that session.
    pub received: u64,
    /// What its sender takes.
    pub limits: LinkLimits,
    /// A client's: it opens a link beside this one when it is asked for one, and keeps both.
    pub beside: bool,
}

impl Hello {
    /// Takes a HELLO from the front of `bytes`. Returns it with the length of its frame, or `None` when more
    /// bytes are needed.
    ///
    /// # Errors
    /// [`LinkError`] as soon as it is certain that this is none, or one that no end may say.
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
        // Of others that there may be, their sender knows that they are not known here.
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
        };
        let reserved = usize::from(fields.u16()?);
        if fields.0.len() != reserved {
            return Err(LinkError::Rule(
                "a HELLO's reserved field does not end with it",
            ));
        }
        if oldest > version || !(oldest..=version).contains(&VERSION) {
            return Err(LinkError::Rule("no version is spoken by both ends"));
        }
        hello.limits.check(server)?;
        if server && hello.token == Token::NONE {
            return Err(LinkError::Rule("a server gives no token"));
        }
        if hello.token == Token::NONE && hello.received != 0 {
            return Err(LinkError::Rule("a new session has an offset"));
        }
        Ok(hello)
    }

    /// Adds its frame to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let head = Head {
            response: self.server,
            length: FIXED_BYTES as u16,
            ..Head::new(FrameKind::Hello, 0)
        };
        let limits = &self.limits;
        out.extend_from_slice(&head.bytes());
        let flags = if self.beside { BESIDE } else { 0 };
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

/// What is left to be read.
struct HelloReader<'a>(&'a [u8]);

impl HelloReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], LinkError> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(LinkError::Rule("a HELLO is cut"))?;
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
