//! The open streams, by serial.
//!
//! A hash table with linear probing and at least twice as many slots as streams. The peer chooses serials and must not
//! be able to cause collisions, so the hash is a folded multiplication with random seeds. A removal moves later entries
//! back into the gap.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::super::frame::Serial;
use super::replay::NO_FRAME;

#[cfg(test)]
mod tests;

/// Why a stream is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nothing,
    /// It needs room in its own window.
    Window,
    /// It needs room in the link window for bytes, and is in the session's queue.
    Link,
    /// It needs room in the link window for a head, and is in the session's queue.
    LinkForHead,
}

impl Waiting {
    pub(super) fn is_for_link(self) -> bool {
        matches!(self, Waiting::Link | Waiting::LinkForHead)
    }
}

/// State of one stream at one end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// 0: this slot is free.
    pub(super) serial: u32,
    /// Send window: bytes that this end may still send.
    pub(super) credit: u32,
    /// Receive window: bytes that the peer may send before this end gives it more room; it can grow.
    pub(super) window: u32,
    /// The part of the receive window that is left.
    pub(super) room: u32,
    /// Bytes received and not yet consumed by the owner.
    pub(super) unread: u32,
    /// Bytes consumed for which the peer was not given room yet.
    pub(super) read: u32,
    /// Offset of its first frame sent by this end.
    pub(super) first: u64,
    /// Offset of its last frame with content, or [`NO_FRAME`].
    pub(super) last: u64,
    pub(super) waiting: Waiting,
    /// Number of response heads received or sent.
    pub(super) heads: u8,
    /// This end may still send.
    pub(super) sending: bool,
    /// The other end may still send.
    pub(super) receiving: bool,
    /// This end must send a head before anything else.
    pub(super) owes_head: bool,
    /// An opaque flow: no heads.
    pub(super) is_flow: bool,
    /// Body bytes have arrived: no more heads may come.
    pub(super) in_body: bool,
    /// This end has reset it: incoming frames are dropped until the peer has ended it too.
    pub(super) dropped: bool,
    /// It was refused, so the owner never saw it.
    pub(super) refused: bool,
}

impl Stream {
    pub(super) fn new(serial: Serial) -> Self {
        Self {
            serial: serial.number(),
            credit: 0,
            window: 0,
            room: 0,
            unread: 0,
            read: 0,
            first: 0,
            last: NO_FRAME,
            waiting: Waiting::Nothing,
            heads: 0,
            sending: true,
            receiving: true,
            owes_head: false,
            is_flow: false,
            in_body: false,
            dropped: false,
            refused: false,
        }
    }

    pub(super) fn serial(&self) -> Option<Serial> {
        Serial::new(self.serial)
    }
}

/// The serial of a free slot.
const EMPTY: u32 = 0;
const FEWEST_SLOTS: usize = 8;

/// The hash table of open streams.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    /// Length: a power of two, at least twice `len`; or 0.
    slots: Vec<Stream>,
    len: usize,
    /// How many of the streams are flows.
    flows: usize,
    /// Random for each process, so that a peer cannot predict them.
    seeds: [u64; 2],
}

impl StreamTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn flows(&self) -> usize {
        self.flows
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The preferred slot of a serial.
    fn home(&self, serial: u32) -> usize {
        let [salt, factor] = self.seeds;
        let product = u128::from(u64::from(serial) ^ salt) * u128::from(factor);
        ((product >> 64) as u64 ^ product as u64) as usize & self.mask()
    }

    fn find(&self, serial: Serial) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.mask();
        let mut at = self.home(serial.number());
        loop {
            match self.slots[at].serial {
                found if found == serial.number() => return Some(at),
                EMPTY => return None,
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub(super) fn contains(&self, serial: Serial) -> bool {
        self.find(serial).is_some()
    }

    pub(super) fn get(&self, serial: Serial) -> Option<&Stream> {
        self.find(serial).map(|at| &self.slots[at])
    }

    pub(super) fn get_mut(&mut self, serial: Serial) -> Option<&mut Stream> {
        self.find(serial).map(|at| &mut self.slots[at])
    }

    /// Inserts a stream whose serial is not in the table.
    pub(super) fn insert(&mut self, stream: Stream) -> &mut Stream {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.len += 1;
        self.flows += usize::from(stream.is_flow);
        let at = self.place(&stream);
        self.slots[at] = stream;
        &mut self.slots[at]
    }

    fn place(&self, stream: &Stream) -> usize {
        let mask = self.mask();
        let mut at = self.home(stream.serial);
        while self.slots[at].serial != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        if self.slots.is_empty() {
            let random = RandomState::new();
            self.seeds = [random.hash_one(0), random.hash_one(1)];
        }
        let slots = (self.slots.len() * 2).max(FEWEST_SLOTS);
        let empty = Stream {
            serial: EMPTY,
            ..Stream::new(Serial::FIRST)
        };
        let old = std::mem::replace(&mut self.slots, vec![empty; slots]);
        for stream in old.iter().filter(|stream| stream.serial != EMPTY) {
            let at = self.place(stream);
            self.slots[at] = *stream;
        }
    }

    pub(super) fn remove(&mut self, serial: Serial) {
        let Some(mut hole) = self.find(serial) else {
            return;
        };
        self.len -= 1;
        self.flows -= usize::from(self.slots[hole].is_flow);
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let found = self.slots[at].serial;
            if found == EMPTY {
                break;
            }
            // An entry may move back into the gap, but not before its preferred slot.
            let distance = at.wrapping_sub(self.home(found)) & mask;
            if distance >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole].serial = EMPTY;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().filter(|stream| stream.serial != EMPTY)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        let slots = self.slots.iter_mut();
        slots.filter(|stream| stream.serial != EMPTY)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
    }
}
