//! The streams that are open, by serial.
//!
//! A table of twice as many slots as streams, probed one by one from where a serial belongs. The other end
//! chooses serials, and must not be able to choose ones that all belong to the same place: where that is
//! depends on chance, by a folded multiplication. An entry that goes is closed up behind.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::super::frame::Serial;
use super::replay::NO_FRAME;

#[cfg(test)]
mod tests;

/// What a stream that could not send everything waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nothing,
    /// The peer has to give it room.
    Window,
    /// The peer has to acknowledge. A stream that waits for that stands in the session's queue.
    Link,
    /// The same, with a head.
    LinkForHead,
}

impl Waiting {
    pub(super) fn is_for_link(self) -> bool {
        matches!(self, Waiting::Link | Waiting::LinkForHead)
    }
}

/// One stream, as one end sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// 0: no stream is here.
    pub(super) serial: u32,
    /// Bytes that may still be sent on it.
    pub(super) credit: u32,
    /// How many bytes may come at most before this end gives room for more; grows.
    pub(super) window: u32,
    /// How many of them may still come.
    pub(super) room: u32,
    /// Bytes that came and were not consumed by the owner.
    pub(super) unread: u32,
    /// Bytes that were consumed, and for which no room was given yet.
    pub(super) read: u32,
    /// Offset of its first frame among those of this end.
    pub(super) first: u64,
    /// Offset of its last frame with content, or [`NO_FRAME`].
    pub(super) last: u64,
    pub(super) waiting: Waiting,
    /// Heads of responses that came on it, or were sent.
    pub(super) heads: u8,
    /// This end may still send.
    pub(super) sending: bool,
    /// The other end may still send.
    pub(super) receiving: bool,
    /// This end sends a head before anything else, and has not done so.
    pub(super) owes_head: bool,
    /// An opaque flow: no heads.
    pub(super) is_flow: bool,
    /// Bytes of a body have come: no more heads.
    pub(super) in_body: bool,
    /// This end has reset it: what comes is dropped until the other end has ended it, too.
    pub(super) dropped: bool,
    /// The owner was never told of it.
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

/// The serial of a slot without a stream.
const EMPTY: u32 = 0;
const FEWEST_SLOTS: usize = 8;

/// The streams that are open.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    /// A power of two, at least twice as many as are taken; or none at all.
    slots: Vec<Stream>,
    len: usize,
    /// How many of them are flows.
    flows: usize,
    /// No other process knows them.
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

    /// Where a serial belongs.
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

    /// Adds a stream whose serial is not there.
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
            // It may move up unless that is before where it belongs.
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
