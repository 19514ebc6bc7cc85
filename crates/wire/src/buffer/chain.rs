//! The chain: a queue of segments, each of which covers a part of a block.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use super::{BlockRef, Full, Pool};

/// The bytes `start..end` of one block.
struct Segment {
    block: BlockRef,
    start: u32,
    end: u32,
}

impl Segment {
    fn empty(block: BlockRef) -> Self {
        Self {
            block,
            start: 0,
            end: 0,
        }
    }

    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn bytes(&self) -> &[u8] {
        &self.block[self.start as usize..self.end as usize]
    }

    /// Bytes that can still be written after `end`; 0 while another chain shares the block.
    fn room(&self) -> usize {
        if self.block.is_exclusive() {
            self.block.len() - self.end as usize
        } else {
            0
        }
    }

    fn spare(&mut self) -> &mut [u8] {
        let end = self.end as usize;
        self.block
            .exclusive()
            .map_or(&mut [], |bytes| &mut bytes[end..])
    }
}

/// A first-in, first-out queue of bytes over pooled blocks.
///
/// ```text
///   front                                     spare
///     │                                         │
///   ┌─▼──────────┐   ┌────────────┐   ┌─────────▼──┐   ┌────────────┐
///   │  ████████ ─┼──▶│███████████─┼──▶│██████       ─┼──▶│            │
///   └────────────┘   └────────────┘   └────────────┘   └────────────┘
///    consume(n)                         commit(n)        reserve(n)
/// ```
///
/// A write has two steps, so that `readv` can fill the blocks directly: ask for spare room ([`spare`](Self::spare), or
/// [`reserve`](Self::reserve) with [`spare_slices`](Self::spare_slices)), write, then [`commit`](Self::commit) the
/// number of bytes written. No other call may come in between.
#[derive(Default)]
pub struct Chain {
    /// Segments with bytes come first, followed by `segments.len() - filled` empty ones.
    segments: VecDeque<Segment>,
    filled: usize,
    len: usize,
}

impl Chain {
    /// An empty chain; it allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            filled: 0,
            len: 0,
        }
    }

    /// A chain with a copy of `bytes` in a block outside of any shared pool, freed once consumed. For data that must
    /// not be lost when the pool is full, and whose size is limited elsewhere.
    #[must_use]
    pub fn detached(bytes: &[u8]) -> Self {
        let mut chain = Self::new();
        if !bytes.is_empty() {
            // The block keeps this private pool alive, and no other chain takes blocks from it.
            let own = Pool::new(bytes.len(), usize::MAX);
            let written = chain.extend_from_slice(&own, bytes);
            debug_assert!(written.is_ok(), "a pool without a bound has room");
        }
        chain
    }

    /// Bytes in the chain.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the chain has no bytes. It may still hold spare blocks.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Blocks in the chain, spare ones included.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.segments.len()
    }

    /// The first contiguous run of bytes; empty only when the chain is.
    #[must_use]
    #[inline]
    pub fn front(&self) -> &[u8] {
        // In an empty chain the front segment, if there is one, is a spare without bytes.
        self.segments.front().map_or(&[], Segment::bytes)
    }

    /// Writable room at the end; takes a block when there is none. `None` when the pool has reached its limit.
    #[inline]
    pub fn spare(&mut self, pool: &Pool) -> Option<&mut [u8]> {
        if self.reserve(pool, 1) == 0 {
            return None;
        }
        let at = self.first_with_room();
        self.segments.get_mut(at).map(Segment::spare)
    }

    /// Takes blocks until at least `want` bytes can be written, or the pool has reached its limit. Returns how many
    /// bytes can be written.
    #[inline]
    pub fn reserve(&mut self, pool: &Pool, want: usize) -> usize {
        let mut room = self.room();
        while room < want {
            let Some(block) = pool.take() else { break };
            room += block.len();
            self.segments.push_back(Segment::empty(block));
        }
        room
    }

    /// Bytes that can be written before another block is needed.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.segments
            .range(self.first_with_room()..)
            .map(Segment::room)
            .sum()
    }

    /// Fills `out` with the writable room, for a vectored read. Returns how many entries were set; the rest of `out` is
    /// unchanged.
    pub fn spare_slices<'a>(&'a mut self, out: &mut [IoSliceMut<'a>]) -> usize {
        let at = self.first_with_room();
        let mut count = 0;
        for (slot, segment) in out.iter_mut().zip(self.segments.range_mut(at..)) {
            *slot = IoSliceMut::new(segment.spare());
            count += 1;
        }
        count
    }

    /// Adds `n` bytes, just written into the spare room, to the chain. An `n` beyond the room is cut to the room: more
    /// cannot have been written.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        let mut left = n;
        let mut at = self.first_with_room();
        while left > 0 {
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            let take = left.min(segment.room());
            if take == 0 {
                break;
            }
            // At most a block's size, which fits 32 bits.
            segment.end += take as u32;
            self.len += take;
            left -= take;
            at += 1;
            self.filled = self.filled.max(at);
        }
        debug_assert_eq!(left, 0, "committed more than was reserved");
    }

    /// Returns the spare blocks to the pool.
    #[inline]
    pub fn release_spare(&mut self) {
        while self.segments.len() > self.filled {
            self.segments.pop_back();
        }
    }

    /// Drops `n` bytes from the front, or all if there are fewer. Blocks return to the pool as they become empty.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        let mut left = n.min(self.len);
        self.len -= left;
        while left > 0 {
            let Some(first) = self.segments.front_mut() else {
                break;
            };
            let have = first.len();
            if left < have {
                first.start += left as u32;
                break;
            }
            left -= have;
            self.segments.pop_front();
            self.filled -= 1;
        }
    }

    /// Drops all bytes and returns all blocks.
    #[inline]
    pub fn clear(&mut self) {
        self.segments.clear();
        self.filled = 0;
        self.len = 0;
    }

    /// Fills `out` with the chain's bytes, for a vectored write. Returns how many entries were
    /// set; when `out` is too short, the rest follows after a [`consume`](Self::consume).
    #[inline]
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, segment) in out.iter_mut().zip(self.segments.range(..self.filled)) {
            *slot = IoSlice::new(segment.bytes());
            count += 1;
        }
        count
    }

    /// The chain's contiguous runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.range(..self.filled).map(Segment::bytes)
    }

    /// Copies `bytes` to the end.
    ///
    /// # Errors
    /// [`Full`] when the pool cannot hold them all; then nothing was written.
    pub fn extend_from_slice(&mut self, pool: &Pool, bytes: &[u8]) -> Result<(), Full> {
        if self.reserve(pool, bytes.len()) < bytes.len() {
            self.release_spare();
            return Err(Full);
        }
        let mut rest = bytes;
        for segment in self.segments.range_mut(self.first_with_room()..) {
            let spare = segment.spare();
            let take = rest.len().min(spare.len());
            let (now, later) = rest.split_at(take);
            spare[..take].copy_from_slice(now);
            rest = later;
        }
        self.commit(bytes.len());
        Ok(())
    }

    /// Moves the first `n` bytes (or all, if fewer) into a new chain, without a copy. If the cut is within a block,
    /// both chains share it, and neither writes to it from then on.
    #[must_use]
    pub fn split_to(&mut self, n: usize) -> Chain {
        let mut head = Chain::new();
        self.move_to(n, &mut head);
        head
    }

    /// Like [`split_to`](Self::split_to), but appends the bytes to `other`, which first returns its spare blocks.
    pub fn move_to(&mut self, n: usize, other: &mut Chain) {
        other.release_spare();
        let mut left = n.min(self.len);
        self.len -= left;
        other.len += left;
        while left > 0 {
            let Some(first) = self.segments.front_mut() else {
                break;
            };
            let have = first.len();
            if left < have {
                let cut = first.start + left as u32;
                let block = first.block.clone();
                other.segments.push_back(Segment {
                    block,
                    start: first.start,
                    end: cut,
                });
                first.start = cut;
                break;
            }
            left -= have;
            if let Some(whole) = self.segments.pop_front() {
                other.segments.push_back(whole);
            }
            self.filled -= 1;
        }
        other.filled = other.segments.len();
    }

    /// The first `n` bytes (or all, if fewer) as one slice: in place when they are contiguous,
    /// otherwise copied into `scratch`.
    #[inline]
    pub fn contiguous<'a>(&'a self, n: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let n = n.min(self.len);
        match self.front().get(..n) {
            Some(run) => run,
            None => self.gathered(n, scratch),
        }
    }

    #[cold]
    fn gathered<'a>(&'a self, n: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        scratch.clear();
        for run in self.runs() {
            let take = run.len().min(n - scratch.len());
            scratch.extend_from_slice(&run[..take]);
            if scratch.len() == n {
                break;
            }
        }
        scratch
    }

    /// Index of the segment for the next byte: the last one with bytes if it has room, else the first empty one.
    fn first_with_room(&self) -> usize {
        match self.filled.checked_sub(1) {
            Some(last) if self.segments[last].room() > 0 => last,
            _ => self.filled,
        }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain")
            .field("len", &self.len)
            .field("blocks", &self.blocks())
            .finish()
    }
}
