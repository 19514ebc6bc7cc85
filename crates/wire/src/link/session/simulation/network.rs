//! One connection: bytes in flight up to the server and down to the client. It delivers them in order, in pieces of any
//! size, after any delay, or not at all.

use std::collections::VecDeque;

use super::choices::Choices;
use super::ledger::Side;

#[derive(Debug, Default)]
pub(super) struct Connection {
    ways: [VecDeque<u8>; 2],
    is_cut: bool,
    gave_up: [bool; 2],
    /// Bytes that arrived before the server knew the session.
    pub(super) accepted: Vec<u8>,
    pub(super) is_known: bool,
    silent_until_ms: u64,
}

impl Connection {
    /// Whether this side considers the connection open.
    pub(super) fn has(&self, side: Side) -> bool {
        !self.gave_up[side as usize] && (side == Side::Client || self.is_known)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether neither side considers the connection open.
    pub(super) fn is_gone(&self) -> bool {
        self.gave_up[0] && (self.gave_up[1] || !self.is_known)
    }

    pub(super) fn way_from(&mut self, side: Side) -> &mut VecDeque<u8> {
        &mut self.ways[side as usize]
    }

    pub(super) fn put(&mut self, from: Side, bytes: &[u8]) {
        if !self.is_cut {
            self.way_from(from).extend(bytes);
        }
    }

    /// Up to `most` bytes that arrive at this side now.
    pub(super) fn take(&mut self, to: Side, most: usize, now_ms: u64) -> Vec<u8> {
        if now_ms < self.silent_until_ms || self.gave_up[to as usize] {
            return Vec::new();
        }
        let way = self.way_from(to.other());
        way.drain(..most.min(way.len())).collect()
    }

    /// A random part of the bytes in flight still arrives; later bytes are lost.
    pub(super) fn cut(&mut self, choices: &mut Choices<'_>) {
        self.is_cut = true;
        for way in &mut self.ways {
            way.truncate(choices.below(way.len() + 1));
        }
    }

    /// This side closes the connection: only bytes already in flight still reach the other side.
    pub(super) fn give_up(&mut self, side: Side) {
        self.is_cut = true;
        self.gave_up[side as usize] = true;
    }

    pub(super) fn be_silent_until(&mut self, ms: u64) {
        self.silent_until_ms = ms;
    }
}
