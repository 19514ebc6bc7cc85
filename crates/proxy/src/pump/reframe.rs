//! Converts bodies between sides that frame them differently.
//!
//! | the body ends with | to chunks in the bytes (HTTP/1.1, links) | to separate frames (HTTP/2) | to HTTP/1.0 |
//! |---|---|---|---|
//! | its length, or is empty | unchanged | unchanged | unchanged |
//! | its last chunk | unchanged | data and trailers, separated | data |
//! | the connection | unchanged | unchanged, and the end is sent | unchanged |
//! | its frames | in chunks | data and trailers | data |
//! | its frames, and has a length | unchanged, without trailers | data and trailers | unchanged |
//!
//! Trailers from any source are checked like those of HTTP/1.1.

use std::io::Write;

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::http1::{BodyTracker, Framing, Piece, Reject};

use super::{Keeps, Pump, PumpError, put};
use crate::io::{COPY_BYTES, Message};
use crate::side::Side;

/// Ends a chunk, and a chunked body (RFC 9112 section 7.1).
const CRLF: &[u8] = b"\r\n";
/// The size line of the last chunk.
const LAST_SIZE: &[u8] = b"0\r\n";

/// How a body's framing is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reframe {
    /// Unchanged, or there is none.
    Keep,
    /// Chunks become plain data.
    Apart,
    /// Frames become chunks.
    Chunks,
    /// Frames become plain data, whose end is the end of the frames.
    Frames,
}

impl Pump {
    /// Decides the conversion between two sides, before the first byte. `from` and `to` say whether the side has
    /// frames; otherwise its bytes say where bodies end.
    pub(crate) fn goes(&mut self, from: bool, to: bool) {
        self.reframe = match (from, to) {
            _ if self.tracker.is_done() => return,
            (false, true) if self.tracker.is_chunked() => Reframe::Apart,
            (true, false) if self.tracker.is_chunked() => Reframe::Chunks,
            (true, true) => Reframe::Frames,
            _ => Reframe::Keep,
        };
        self.ends_with_frames();
        self.owes_end = match self.reframe {
            Reframe::Keep => to && self.until_close,
            Reframe::Apart | Reframe::Chunks | Reframe::Frames => true,
        };
    }

    /// The same towards a client that does not support chunks.
    pub(crate) fn goes_plain(&mut self, from: bool) {
        if self.tracker.is_chunked() {
            self.reframe = match from {
                true => Reframe::Frames,
                false => Reframe::Apart,
            };
            self.ends_with_frames();
        }
    }

    fn ends_with_frames(&mut self) {
        if matches!(self.reframe, Reframe::Chunks | Reframe::Frames) {
            self.tracker = BodyTracker::from_framing(Framing::UntilClose);
            self.until_close = true;
        }
    }

    /// Parses the received bytes, unless their framing is converted before they are sent.
    ///
    /// # Errors
    /// When they are not a valid body.
    pub(crate) fn look(&mut self, inbox: &Chain) -> Result<(), Reject> {
        match self.reframe {
            Reframe::Keep | Reframe::Frames => self.approve(inbox).map(drop),
            Reframe::Apart | Reframe::Chunks => Ok(()),
        }
    }

    /// Sends the start of the body along with the head in `out`: adds it there, or returns how many bytes at the front
    /// of the source's inbox follow unchanged.
    ///
    /// # Errors
    /// When these bytes are not a valid body.
    pub(crate) fn begin(&mut self, source: &mut Side, out: &mut Message) -> Result<usize, Reject> {
        if self.owes_end {
            out.leave_open();
        }
        let is_whole = self.reframe == Reframe::Chunks && source.is_whole();
        let inbox = &mut source.inbox;
        match self.reframe {
            Reframe::Keep | Reframe::Frames => self.approve(inbox),
            Reframe::Apart => {
                // Only a check: trailers follow when the head was sent.
                let mut tracker = self.tracker.clone();
                for run in inbox.runs() {
                    tracker.advance(run)?;
                }
                Ok(0)
            }
            Reframe::Chunks if inbox.len() > COPY_BYTES => Ok(0),
            Reframe::Chunks => {
                let length = inbox.len();
                self.copy_frames(inbox, (0, length), is_whole, &mut out.bytes);
                inbox.consume(length);
                Ok(0)
            }
        }
    }

    /// Copies the whole body behind the head in `out`, if it is within the first `behind` bytes after `start` of the
    /// source's inbox and needs no rewriting. Returns its length there, which the caller has to consume; 0 if it is
    /// not, and nothing was done.
    ///
    /// # Errors
    /// When these bytes are not a valid body.
    pub(crate) fn load(
        &mut self,
        source: &Side,
        start: usize,
        behind: usize,
        out: &mut Message,
    ) -> Result<usize, Reject> {
        let (inbox, is_open) = (&source.inbox, self.owes_end);
        if self.until_close {
            if !source.is_whole() || inbox.len() != start + behind {
                return Ok(0);
            }
            if is_open {
                out.leave_open();
            }
            self.copy_frames(inbox, (start, behind), true, &mut out.bytes);
            return Ok(behind);
        }
        let left = self.tracker.remaining_hint();
        if left.is_some_and(|left| left > behind as u64) {
            return Ok(0);
        }
        let (mut tracker, before) = (self.tracker.clone(), out.bytes.len());
        let mut length = 0;
        for run in within(inbox, start, behind) {
            let step = match self.reframe {
                Reframe::Apart => {
                    let mut has_trailers = false;
                    let step = tracker.take_apart(run, &mut |piece| match piece {
                        Piece::Data(data) => out.bytes.extend_from_slice(data),
                        Piece::Trailer { .. } => has_trailers = true,
                    })?;
                    if has_trailers {
                        break;
                    }
                    step.consumed
                }
                _ => {
                    let step = tracker.forward(run)?;
                    out.bytes.extend_from_slice(&run[..step.pass]);
                    if step.skip > 0 {
                        break;
                    }
                    step.pass
                }
            };
            length += step;
            if tracker.is_done() {
                self.tracker = tracker;
                self.bytes += length as u64;
                if is_open {
                    out.leave_open();
                }
                return Ok(length);
            }
        }
        out.bytes.truncate(before);
        Ok(0)
    }

    /// Copies bytes that arrived in frames, and their end if it is known.
    fn copy_frames(
        &mut self,
        inbox: &Chain,
        (start, length): (usize, usize),
        is_whole: bool,
        out: &mut Vec<u8>,
    ) {
        let is_chunk = self.reframe == Reframe::Chunks;
        if length > 0 {
            if is_chunk {
                let Ok(()) = put_size(length as u64, &mut |line| {
                    out.extend_from_slice(line);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
            within(inbox, start, length).for_each(|run| out.extend_from_slice(run));
            if is_chunk {
                out.extend_from_slice(CRLF);
            }
            self.bytes += length as u64;
        }
        if is_whole {
            self.ended = true;
            if is_chunk {
                out.extend_from_slice(LAST_SIZE);
                out.extend_from_slice(CRLF);
                self.owes_end = false;
            }
        }
    }

    /// Converts the bytes in the inbox into the sink's outbox. False if there were none.
    pub(super) fn reframes(
        &mut self,
        pool: &Pool,
        source: &mut Side,
        sink: &mut Side,
        keeps: &Keeps<'_>,
    ) -> Result<bool, PumpError> {
        if std::mem::take(&mut self.chunk_is_open) {
            put(pool, &mut sink.outbox, CRLF)?;
            return Ok(true);
        }
        if source.inbox.is_empty() || self.is_read() {
            return Ok(false);
        }
        match self.reframe {
            Reframe::Keep | Reframe::Frames => Ok(false),
            Reframe::Apart => {
                self.take_apart(pool, &mut source.inbox, sink, keeps)?;
                Ok(true)
            }
            Reframe::Chunks => {
                self.chunk(pool, &mut source.inbox, &mut sink.outbox)?;
                Ok(true)
            }
        }
    }

    /// Converts the chunks in the inbox to data and trailers.
    fn take_apart(
        &mut self,
        pool: &Pool,
        inbox: &mut Chain,
        sink: &mut Side,
        keeps: &Keeps<'_>,
    ) -> Result<(), PumpError> {
        while !inbox.is_empty() && !self.is_read() {
            let mut full = false;
            let advance = self.tracker.take_apart(inbox.front(), &mut |piece| {
                match piece {
                    Piece::Data(data) => full |= put(pool, &mut sink.outbox, data).is_err(),
                    Piece::Trailer { name, line } => add_trailer(sink, name, line, keeps),
                };
            });
            let advance = advance.map_err(PumpError::Framing)?;
            if full {
                return Err(PumpError::Memory);
            }
            self.bytes += advance.consumed as u64;
            inbox.consume(advance.consumed);
        }
        Ok(())
    }

    /// Makes a chunk of the bytes in the inbox: writes a short one completely, and of a long one only the size line.
    fn chunk(
        &mut self,
        pool: &Pool,
        inbox: &mut Chain,
        outbox: &mut Chain,
    ) -> Result<(), PumpError> {
        let length = self.approve(inbox).map_err(PumpError::Framing)?;
        put_size(length as u64, &mut |line| put(pool, outbox, line))?;
        if length > COPY_BYTES {
            self.chunk_is_open = true;
            return Ok(());
        }
        for run in within(inbox, 0, length) {
            put(pool, outbox, run)?;
        }
        self.sent(inbox, length);
        put(pool, outbox, CRLF)
    }

    /// Passes the end of the body and its trailers to the sink.
    #[cold]
    pub(super) fn finish(
        &mut self,
        pool: &Pool,
        source: &mut Side,
        sink: &mut Side,
        keeps: &Keeps<'_>,
    ) -> Result<(), PumpError> {
        self.owes_end = false;
        // Trailers of a chunked body were added when they arrived.
        let mut section = LAST_SIZE.to_vec();
        source.write_trailers(&mut section);
        section.extend_from_slice(CRLF);
        let in_chunks = self.reframe == Reframe::Chunks;
        if in_chunks {
            put(pool, &mut sink.outbox, LAST_SIZE)?;
        }
        let mut full = false;
        let mut tracker = BodyTracker::from_framing(Framing::Chunked);
        let checked = tracker.take_apart(&section, &mut |piece| {
            if let Piece::Trailer { name, line } = piece {
                match in_chunks {
                    true if keeps(name) => {
                        full |= put(pool, &mut sink.outbox, line).is_err();
                    }
                    true => {}
                    false => add_trailer(sink, name, line, keeps),
                }
            }
        });
        checked.map_err(PumpError::Framing)?;
        if full {
            return Err(PumpError::Memory);
        }
        if in_chunks {
            return put(pool, &mut sink.outbox, CRLF);
        }
        sink.end_body().map_err(|_| PumpError::Sink)
    }
}

/// Passes a trailer on to a sink with frames.
fn add_trailer(sink: &mut Side, name: &[u8], line: &[u8], keeps: &Keeps<'_>) {
    let value = line.get(name.len() + 1..).unwrap_or_default();
    if keeps(name) {
        sink.add_trailer(name, value.trim_ascii());
    }
}

/// Writes the size line of a chunk.
pub(super) fn put_size<E>(size: u64, put: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut text = [0; "ffffffffffffffff\r\n".len()];
    let mut rest = &mut text[..];
    // The buffer has room for the longest line.
    let _ = write!(rest, "{size:x}\r\n");
    let left = rest.len();
    put(&text[..text.len() - left])
}

/// `length` bytes of a chain after the first `start`.
fn within(chain: &Chain, start: usize, length: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skip, mut left) = (start, length);
    chain.runs().filter_map(move |run| {
        let skipped = skip.min(run.len());
        skip -= skipped;
        let run = &run[skipped..];
        let run = &run[..run.len().min(left)];
        left -= run.len();
        (!run.is_empty()).then_some(run)
    })
}
