//! Moves a body from one side to the other, unchanged, in constant memory.
//!
//! A pump reads only when everything that it has read before is written: a slow receiver stops the sender through the
//! kernel's own flow control, and one direction of one message never holds more than its window. The window starts at
//! one block and doubles while reads fill it, first into a wide block, so that short bodies stay cheap and long ones
//! take few system calls.
//!
//! Plain bytes go from the source's inbox unchanged. A chunk size that is not plain, and the lines after the last
//! chunk, are rewritten into the sink's outbox, together with the bytes between two such lines. If the two sides frame
//! bodies differently, [`reframe`] converts the framing.

mod reframe;

use std::task::{Context, Poll, ready};

use heddle_wire::buffer::{Chain, Pool};
use heddle_wire::http1::{BodyTracker, Framing, Line, Nominated, Reject};

use crate::env::Blocks;
use crate::failure::Reason;
use crate::io::SideError;
use crate::side::Side;
use reframe::{Reframe, put_size};

/// Bytes moved before other tasks get their turn.
const TURN_BYTES: u64 = 512 * 1024;

/// Moves one direction of one message.
#[derive(Debug)]
pub(crate) struct Pump {
    tracker: BodyTracker,
    /// Bytes at the front of the source's inbox that belong to the body.
    approved: usize,
    /// Bytes after those in the inbox that are not passed on unchanged. A `u32` keeps the pump small: every connection
    /// has two.
    cut: u32,
    /// Whether the tracker has a line to write in their place.
    cut_writes: bool,
    /// Bytes read at a time.
    window: usize,
    /// Bytes of the body seen so far, framing included.
    bytes: u64,
    /// The body ends with the connection, or with the source's frames.
    until_close: bool,
    ended: bool,
    reframe: Reframe,
    /// The sink has yet to be told that the body is complete.
    owes_end: bool,
    /// The approved bytes are the data of a chunk made here, whose end is still to be written.
    chunk_is_open: bool,
    /// Trailers that concern only the source's connection, as the head says.
    nominated: Option<Box<Nominated>>,
}

/// Returns whether a trailer with this name is passed on.
pub(crate) type Keeps<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// Why a pump failed.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// The source closed its connection, or failed, in the middle of the body. With the reason if a stream between nodes
    /// has failed.
    Source(Option<Reason>),
    /// The source's framing is malformed.
    Framing(Reject),
    /// The sink receives nothing more.
    Sink,
    /// No block was left to read into.
    Memory,
}

impl Pump {
    pub(crate) fn new(framing: Framing) -> Self {
        Pump {
            tracker: BodyTracker::from_framing(framing),
            approved: 0,
            cut: 0,
            cut_writes: false,
            window: 0,
            bytes: 0,
            until_close: framing == Framing::UntilClose,
            ended: false,
            reframe: Reframe::Keep,
            owes_end: false,
            chunk_is_open: false,
            nominated: None,
        }
    }

    /// Sets the names of trailers that are not passed on.
    pub(crate) fn drops(&mut self, nominated: Option<Box<Nominated>>) {
        self.nominated = nominated;
    }

    /// Whether the body's last byte has been read and written, as far as the pump knows; an outbox is flushed by
    /// [`Pump::poll`].
    pub(crate) fn is_done(&self) -> bool {
        self.is_read() && self.approved == 0 && !self.owes_end
    }

    /// Whether the whole body was read from the source.
    pub(crate) fn is_read(&self) -> bool {
        self.tracker.is_done() || self.ended
    }

    /// Whether `sink` has not taken everything yet. If so the pump waits for the sink, otherwise for the source.
    pub(super) fn waits_for(&self, sink: &Side) -> bool {
        self.approved > 0 || !sink.outbox.is_empty()
    }

    /// Bytes of the body seen so far, with the framing of chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parses the bytes in the inbox, and approves those that belong to the body and can be passed on unchanged.
    /// Returns how many bytes may be sent from the front.
    pub(crate) fn approve(&mut self, inbox: &Chain) -> Result<usize, Reject> {
        debug_assert_eq!(self.approved, 0, "everything approved was written");
        for run in inbox.runs() {
            if self.is_read() {
                break;
            }
            let step = self.tracker.forward(run)?;
            self.approved += step.pass;
            self.bytes += (step.pass + step.skip) as u64;
            if step.skip > 0 {
                // It is within one block.
                self.cut = u32::try_from(step.skip).unwrap_or(u32::MAX);
                self.cut_writes = step.write;
            }
            if step.pass < run.len() {
                break;
            }
        }
        Ok(self.approved)
    }

    /// All bytes in the inbox already belong to a body without framing.
    pub(crate) fn take_over(&mut self, inbox: &Chain) {
        debug_assert!(self.until_close);
        self.approved = inbox.len();
        self.bytes += inbox.len() as u64;
    }

    /// `sent` of the approved bytes were sent in another way.
    pub(crate) fn sent(&mut self, inbox: &mut Chain, sent: usize) {
        inbox.consume(sent);
        self.approved -= sent.min(self.approved);
    }

    /// Moves bytes as far as possible now. Sets `progress` when a byte moved.
    ///
    /// Ready when the body is complete and the sink's outbox is flushed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        blocks: &Blocks<'_>,
        source: &mut Side,
        sink: &mut Side,
        keeps: &Keeps<'_>,
        progress: &mut bool,
    ) -> Poll<Result<(), PumpError>> {
        let Some(nominated) = self.nominated.take() else {
            return self.poll_moving(cx, blocks, source, sink, keeps, progress);
        };
        let keeps = |name: &[u8]| keeps(name) && !nominated.names(name);
        let polled = self.poll_moving(cx, blocks, source, sink, &keeps, progress);
        self.nominated = Some(nominated);
        polled
    }

    fn poll_moving(
        &mut self,
        cx: &mut Context<'_>,
        blocks: &Blocks<'_>,
        source: &mut Side,
        sink: &mut Side,
        keeps: &Keeps<'_>,
        progress: &mut bool,
    ) -> Poll<Result<(), PumpError>> {
        let start = self.bytes;
        loop {
            if !sink.outbox.is_empty() {
                ready!(sink.poll_flush(cx)).map_err(|_| PumpError::Sink)?;
                *progress = true;
            }
            while self.approved > 0 {
                let write = sink.poll_write(cx, &source.inbox, self.approved);
                let n = ready!(write).map_err(|_| PumpError::Sink)?;
                *progress = true;
                self.sent(&mut source.inbox, n);
            }
            if self.cut > 0 {
                let (inbox, outbox) = (&mut source.inbox, &mut sink.outbox);
                self.rewrite(blocks.usual, inbox, outbox, keeps)?;
                continue;
            }
            if self.reframe != Reframe::Keep && self.reframes(blocks.usual, source, sink, keeps)? {
                continue;
            }
            if self.is_read() {
                if !self.owes_end {
                    return Poll::Ready(Ok(()));
                }
                self.finish(blocks.usual, source, sink, keeps)?;
                continue;
            }
            if self.bytes - start > TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let pool = self.size_up(blocks);
            let n = match ready!(source.poll_fill(cx, pool, self.window)) {
                Ok(0) if self.until_close => {
                    self.ended = true;
                    continue;
                }
                Ok(0) => return Poll::Ready(Err(PumpError::Source(None))),
                Ok(n) => n,
                Err(SideError::Memory) => {
                    return Poll::Ready(Err(PumpError::Memory));
                }
                Err(SideError::Stream(failure)) => {
                    let reason = Some(failure.of_request());
                    return Poll::Ready(Err(PumpError::Source(reason)));
                }
                Err(_) => return Poll::Ready(Err(PumpError::Source(None))),
            };
            *progress = true;
            if n >= self.window {
                self.window *= 2;
            }
            self.look(&source.inbox).map_err(PumpError::Framing)?;
        }
    }

    /// Skips bytes that are not passed on, and writes their replacement, for all such lines that are in the inbox. The
    /// bytes between them are copied: there may be many such lines, and a system call for each would cost more.
    #[cold]
    fn rewrite(
        &mut self,
        pool: &Pool,
        inbox: &mut Chain,
        outbox: &mut Chain,
        keeps: &Keeps<'_>,
    ) -> Result<(), PumpError> {
        while self.cut > 0 {
            let cut = std::mem::take(&mut self.cut) as usize;
            while self.approved > 0 {
                let front = inbox.front();
                let n = front.len().min(self.approved);
                put(pool, outbox, &front[..n])?;
                self.sent(inbox, n);
            }
            inbox.consume(cut);
            match self.tracker.line().filter(|_| self.cut_writes) {
                Some(Line::Size(size)) => {
                    put_size(size, &mut |line| put(pool, outbox, line))?;
                }
                Some(Line::Trailer { name, line }) if keeps(name) => put(pool, outbox, line)?,
                Some(Line::Trailer { .. }) | None => {}
            }
            self.approve(inbox).map_err(PumpError::Framing)?;
        }
        Ok(())
    }

    /// Decides how many bytes to read at a time, and into which pool's blocks.
    fn size_up<'a>(&mut self, blocks: &Blocks<'a>) -> &'a Pool {
        let usual = blocks.usual.block_size();
        let max = blocks.max_window.max(usual);
        if self.window <= usual || max < blocks.wide.block_size() || blocks.wide.headroom() == 0 {
            self.window = usual;
            return blocks.usual;
        }
        self.window = self.window.clamp(blocks.wide.block_size(), max);
        blocks.wide
    }
}

/// Appends bytes to those that wait to be written.
fn put(pool: &Pool, outbox: &mut Chain, bytes: &[u8]) -> Result<(), PumpError> {
    let put = outbox.extend_from_slice(pool, bytes);
    put.map_err(|_| PumpError::Memory)
}
