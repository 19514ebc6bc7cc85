//! Finds the end of a body, and the parts that can be forwarded unchanged.

mod chunked;

use self::chunked::Chunked;
use super::{Framing, Limits, Reject};

/// Tracks one body through any number of reads.
///
/// ```text
///   None ─────────────────────────────────────────▶ done
///   Length(n) ── n bytes ─────────────────────────▶ done
///   Chunked ── size line, data, CRLF ─┐
///      ▲──────────────────────────────┘
///      └── size 0, trailers, empty line ──────────▶ done
///   UntilClose ── everything, never done: the caller sees the connection close
/// ```
///
/// [`forward`](Self::forward) returns how much may be forwarded unchanged. After an error nothing of that input may be
/// forwarded: the receiver then has an incomplete message, and cannot mistake it for a whole one as long as its
/// connection is closed.
#[derive(Debug, Clone)]
pub struct BodyTracker {
    state: BodyState,
}

#[derive(Debug, Clone)]
enum BodyState {
    Done,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// Result of [`BodyTracker::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that belong to the body; the next message begins after them.
    pub consumed: usize,
    /// Whether the body ends there.
    pub done: bool,
}

/// Result of [`BodyTracker::forward`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Bytes at the front of the input that go on unchanged.
    pub pass: usize,
    /// Bytes after them that are not forwarded. The input behind those was not processed yet.
    pub skip: usize,
    /// Whether to write a [`Line`](BodyTracker::line) in place of the bytes skipped by this call and those before it.
    pub write: bool,
    /// Whether the body ends there.
    pub done: bool,
}

/// A line of chunked framing that cannot be forwarded unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A chunk size that was not plain hexadecimal digits, or was split between reads. It is rewritten without
    /// extensions and leading zeros.
    Size(u64),
    /// A trailer; the sender decides whether it is forwarded.
    Trailer {
        /// The field name.
        name: &'a [u8],
        /// The line, with its CRLF.
        line: &'a [u8],
    },
}

/// A part of a body without its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Body data.
    Data(&'a [u8]),
    Trailer {
        /// The field name.
        name: &'a [u8],
        /// The line, with its CRLF.
        line: &'a [u8],
    },
}

impl BodyTracker {
    /// A tracker for a body with this framing, within [`Limits::DEFAULT`].
    #[must_use]
    pub fn from_framing(framing: Framing) -> Self {
        Self::with_limits(framing, &Limits::DEFAULT)
    }

    /// A tracker for a body with this framing, within `limits`.
    #[must_use]
    pub fn with_limits(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Done,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::Chunked(Chunked::new(limits)),
            Framing::UntilClose => BodyState::UntilClose,
        };
        Self { state }
    }

    /// Processes the next bytes of the connection. Data is skipped by length, never inspected.
    ///
    /// # Errors
    /// [`Reject`] for a chunked body that does not follow RFC 9112 section 7.1 to the letter or exceeds the limits.
    /// From then on every call returns an error.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, Reject> {
        self.take_apart(input, &mut |_| ())
    }

    /// Like [`advance`](Self::advance), but also calls `take` with each run of body data and each trailer, without
    /// chunk framing: for a receiver that does not use chunks.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance); `take` may already have been called.
    pub fn take_apart(
        &mut self,
        input: &[u8],
        take: &mut impl FnMut(Piece<'_>),
    ) -> Result<Advance, Reject> {
        let consumed = match &mut self.state {
            BodyState::Done => 0,
            BodyState::Length(left) => {
                let length = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                take(Piece::Data(&input[..length]));
                *left -= length as u64;
                if *left == 0 {
                    self.state = BodyState::Done;
                }
                length
            }
            BodyState::Chunked(chunked) => {
                let consumed = chunked.advance(input, take)?;
                if chunked.is_done() {
                    self.state = BodyState::Done;
                }
                consumed
            }
            BodyState::UntilClose => {
                take(Piece::Data(input));
                input.len()
            }
        };
        Ok(Advance {
            consumed,
            done: self.is_done(),
        })
    }

    /// Processes the next bytes of the connection for forwarding, up to the first line that cannot be forwarded
    /// unchanged. Data is skipped by length, never inspected.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    #[inline]
    pub fn forward(&mut self, input: &[u8]) -> Result<Forward, Reject> {
        let plain = |pass, done| Forward {
            pass,
            skip: 0,
            write: false,
            done,
        };
        let chunked = match &mut self.state {
            BodyState::Chunked(chunked) => chunked,
            BodyState::Done => return Ok(plain(0, true)),
            BodyState::UntilClose => return Ok(plain(input.len(), false)),
            BodyState::Length(left) => {
                let rest = usize::try_from(*left).unwrap_or(usize::MAX);
                let take = rest.min(input.len());
                *left -= take as u64;
                let done = *left == 0;
                if done {
                    self.state = BodyState::Done;
                }
                return Ok(plain(take, done));
            }
        };
        let reach = chunked.forward(input, &mut |_| ())?;
        let done = chunked.is_done();
        if done {
            self.state = BodyState::Done;
        }
        Ok(Forward {
            pass: reach.passed,
            skip: reach.skipped,
            write: reach.rewritten,
            done,
        })
    }

    /// The line to write, after [`forward`](Self::forward) has returned `write`.
    #[must_use]
    pub fn line(&self) -> Option<Line<'_>> {
        match &self.state {
            BodyState::Chunked(chunked) => Some(chunked.line()),
            BodyState::Done | BodyState::Length(_) | BodyState::UntilClose => None,
        }
    }

    /// Whether the body has chunked framing.
    #[must_use]
    pub fn is_chunked(&self) -> bool {
        matches!(self.state, BodyState::Chunked(_))
    }

    /// Whether the body has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, BodyState::Done)
    }

    /// Whether the body is complete if the connection closes now.
    #[must_use]
    pub fn is_whole_at_close(&self) -> bool {
        matches!(self.state, BodyState::Done | BodyState::UntilClose)
    }

    /// Bytes that are certain to follow: the rest of the body, or of the chunk. 0 when done, `None` when the next size
    /// is not known yet.
    #[must_use]
    pub fn remaining_hint(&self) -> Option<u64> {
        match &self.state {
            BodyState::Done => Some(0),
            BodyState::Length(left) => Some(*left),
            BodyState::Chunked(chunked) => chunked.remaining_hint(),
            BodyState::UntilClose => None,
        }
    }
}

#[cfg(test)]
mod tests;
