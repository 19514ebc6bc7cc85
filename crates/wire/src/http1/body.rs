//! Where a body ends, and what of it passes as it is.

mod chunked;

use self::chunked::Chunked;
use super::{Framing, Limits, Reject};

/// Follows one body through however many reads it arrives in.
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
/// [`forward`](Self::forward) says what may be sent on as it is. When it refuses, nothing of
/// that input may be: the receiver then has an incomplete message, which it cannot take for
/// another, as long as its connection is closed.
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

/// How far a call to [`BodyTracker::advance`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that belong to the body; the next message begins after them.
    pub consumed: usize,
    /// Whether the body ends there.
    pub done: bool,
}

/// How far a call to [`BodyTracker::forward`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Bytes of the input that go on as they are.
    pub pass: usize,
    /// Bytes behind them that do not. What follows those has not been looked at.
    pub skip: usize,
    /// Whether a [`Line`](BodyTracker::line) takes the place of what was skipped, now or before.
    pub write: bool,
    /// Whether the body ends there.
    pub done: bool,
}

/// A line of a chunked body's framing that does not go on as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A chunk's size that was not plain hexadecimal digits, or came in pieces: it goes on without
    /// extensions and zeros in front.
    Size(u64),
    /// A trailer, of which the sender decides whether it goes on.
    Trailer {
        /// Its name.
        name: &'a [u8],
        /// The line, with its CRLF.
        line: &'a [u8],
    },
}

/// A piece of a body without its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Some of its data.
    Data(&'a [u8]),
    /// A trailer.
    Trailer {
        /// Its name.
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

    /// Takes the next bytes of the connection. Data is skipped by length, never looked at.
    ///
    /// # Errors
    /// A chunked body that does not follow RFC 9112 section 7.1 to the letter or exceeds the
    /// limits. From then on every call returns an error.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, Reject> {
        self.take_apart(input, &mut |_| ())
    }

    /// Like [`advance`](Self::advance), and calls `take` with each run of the body's data and each trailer, without
    /// any chunk framing: for a receiver that knows no chunks.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance); `take` may have been called before.
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

    /// Takes the next bytes of the connection on their way to another one, up to the first line that
    /// does not pass as it came. Data is skipped by length, never looked at.
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

    /// The line to be written when [`forward`](Self::forward) has just said so.
    #[must_use]
    pub fn line(&self) -> Option<Line<'_>> {
        match &self.state {
            BodyState::Chunked(chunked) => Some(chunked.line()),
            BodyState::Done | BodyState::Length(_) | BodyState::UntilClose => None,
        }
    }

    /// Whether it follows chunks.
    #[must_use]
    pub fn is_chunked(&self) -> bool {
        matches!(self.state, BodyState::Chunked(_))
    }

    /// Whether the body has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, BodyState::Done)
    }

    /// Whether the body is whole if the connection closes now.
    #[must_use]
    pub fn is_whole_at_close(&self) -> bool {
        matches!(self.state, BodyState::Done | BodyState::UntilClose)
    }

    /// Bytes that are known to come: the rest of the body, or of the chunk. Zero when done, `None`
    /// when the next size is not known yet.
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
