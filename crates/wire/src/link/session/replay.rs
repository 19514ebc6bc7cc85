//! The sequenced frames of one direction that the peer has not acknowledged.
//!
//! ```text
//!        base                   sent           end
//!          │                      │             │
//!    ──────▼──────────────────────▼─────────────▼
//!    gone  │ handed to the        │ to be       │
//!          │ transport            │ handed out  │
//!    ──────┴──────────────────────┴─────────────┴
//!    acknowledge(offset) ──▶ base       push ──▶ end
//!    resume(offset): a new connection begins there
//! ```
//!
//! Offsets count bytes since the start of the session. All of these boundaries are between two frames.

use super::super::LinkError;
use super::super::frame::{HEAD_BYTES, Head};

#[cfg(test)]
mod tests;

/// Positions in a frame head: its last two bytes are the payload's length; the second byte has the flags.
const LENGTH_AT: usize = 6;
const SECOND: usize = 1;
const MORE: u8 = 1 << 4;

/// The offset that stands for no frame.
pub(super) const NO_FRAME: u64 = u64::MAX;

/// Bytes that may have to be sent again.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// `bytes[start..]` are the bytes from offset `base` on.
    bytes: Vec<u8>,
    start: usize,
    /// Everything before this offset was acknowledged.
    base: u64,
    /// Everything before this offset was handed to the current connection.
    sent: u64,
    /// Everything before this offset was handed to some connection: the peer may have it, so it must not change.
    handed: u64,
}

impl Replay {
    /// Offset of the next frame.
    pub(super) fn end(&self) -> u64 {
        self.base + self.unacknowledged() as u64
    }

    /// Number of bytes that are kept.
    pub(super) fn unacknowledged(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether there are bytes to hand out.
    pub(super) fn has_more(&self) -> bool {
        self.sent < self.end()
    }

    /// Whether any byte of the frame at `offset` was ever handed to a connection.
    pub(super) fn was_handed(&self, offset: u64) -> bool {
        offset < self.handed
    }

    /// Appends a frame. Returns its offset.
    pub(super) fn push(&mut self, mut head: Head, payload: &[&[u8]]) -> u64 {
        let length: usize = payload.iter().map(|piece| piece.len()).sum();
        debug_assert!(length <= usize::from(u16::MAX), "frames are cut to size");
        head.length = length as u16;
        self.reserve(HEAD_BYTES + length);
        let offset = self.end();
        self.bytes.extend_from_slice(&head.bytes());
        for piece in payload {
            self.bytes.extend_from_slice(piece);
        }
        offset
    }

    /// Appends as much of `bytes` to the frame at `offset` as fits a payload of `longest` bytes. Returns the number of
    /// bytes; 0 unless it is the very last frame and was never handed out.
    pub(super) fn extend(&mut self, offset: u64, bytes: &[u8], longest: usize) -> usize {
        if offset == NO_FRAME || self.was_handed(offset) {
            return 0;
        }
        let at = self.index(offset);
        let length = self.bytes.len() - at - HEAD_BYTES;
        if self.length_at(at) != length || length >= longest {
            return 0;
        }
        let taken = bytes.len().min(longest - length);
        self.reserve(taken);
        // `reserve` may have moved the bytes.
        let at = self.index(offset);
        self.bytes.extend_from_slice(&bytes[..taken]);
        let length = ((length + taken) as u16).to_be_bytes();
        self.bytes[at + LENGTH_AT..at + HEAD_BYTES].copy_from_slice(&length);
        taken
    }

    /// Marks the frame at `offset` as the last one of its stream. `false` when the peer may already have it, or there
    /// is none.
    pub(super) fn finish(&mut self, offset: u64) -> bool {
        if offset == NO_FRAME || self.was_handed(offset) {
            return false;
        }
        let at = self.index(offset);
        self.bytes[at + SECOND] &= !MORE;
        true
    }

    /// The peer has everything before `offset`.
    ///
    /// # Errors
    /// [`LinkError`] when `offset` goes back, is beyond what was sent, or is inside a frame.
    pub(super) fn acknowledge(&mut self, offset: u64) -> Result<(), LinkError> {
        if offset < self.base {
            return Err(LinkError::Rule("an offset goes back"));
        }
        if offset > self.sent.max(self.handed) {
            return Err(LinkError::Rule("an offset is beyond what was sent"));
        }
        let end = self.start + (offset - self.base) as usize;
        let mut at = self.start;
        while at < end {
            at += HEAD_BYTES + self.length_at(at);
        }
        if at != end {
            return Err(LinkError::Rule("an offset is inside a frame"));
        }
        self.base = offset;
        self.start = end;
        self.sent = self.sent.max(offset);
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        Ok(())
    }

    /// The same for the low 24 bits of an offset. Returns whether it acknowledges anything new.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub(super) fn acknowledge_low(&mut self, low: u32) -> Result<bool, LinkError> {
        // Far fewer than 2²⁴ bytes are kept, so the low bits are unambiguous.
        let distance = low.wrapping_sub(self.base as u32) & 0xff_ffff;
        if self.base + u64::from(distance) > self.sent {
            return Err(LinkError::Rule("an offset is beyond what was sent"));
        }
        self.acknowledge(self.base + u64::from(distance))?;
        Ok(distance > 0)
    }

    /// On a new connection, the peer has everything before `offset` and nothing after it.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub(super) fn resume(&mut self, offset: u64) -> Result<(), LinkError> {
        self.acknowledge(offset)?;
        self.sent = self.base;
        Ok(())
    }

    /// Appends bytes to send to `out`: whole frames, at most `max` bytes except for the first frame.
    pub(super) fn hand_out(&mut self, out: &mut Vec<u8>, max: usize) {
        let from = self.index(self.sent);
        let mut to = self.bytes.len();
        if to - from > max {
            to = from;
            loop {
                let next = to + HEAD_BYTES + self.length_at(to);
                if next - from > max && to > from || next > self.bytes.len() {
                    break;
                }
                to = next;
                if to == self.bytes.len() {
                    break;
                }
            }
        }
        out.extend_from_slice(&self.bytes[from..to]);
        self.sent += (to - from) as u64;
        self.handed = self.handed.max(self.sent);
    }

    /// Resets to the state of a new session.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Frees an empty buffer.
    pub(super) fn tidy(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn index(&self, offset: u64) -> usize {
        self.start + (offset - self.base) as usize
    }

    /// Payload length of the frame at this index. The buffer holds only complete frames.
    fn length_at(&self, at: usize) -> usize {
        usize::from(u16::from_be_bytes([
            self.bytes[at + LENGTH_AT],
            self.bytes[at + LENGTH_AT + 1],
        ]))
    }

    /// Makes room for `n` bytes. It reuses the space of acknowledged bytes only if that is at least as large as the
    /// rest, so that each byte is moved at most once.
    fn reserve(&mut self, n: usize) {
        if self.bytes.capacity() - self.bytes.len() >= n {
            return;
        }
        if self.start >= self.unacknowledged() && self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve(n);
    }
}
