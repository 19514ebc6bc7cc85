//! Brings the simulation to a defined end.

use super::super::super::frame::Serial;
use super::super::Session;
use super::{PATIENCE, Side, World};

impl World<'_> {
    /// Delivers everything in flight. After that both ends agree on the open streams.
    pub(super) fn settle(&mut self) {
        let both = [Side::Client, Side::Server];
        let up = self.connection.as_ref().is_some_and(|connection| {
            !connection.is_cut() && both.iter().all(|&side| connection.has(side))
        });
        if !up {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.be_silent_until(0);
        }
        for round in 0.. {
            assert!(round < PATIENCE, "two ends talk without an end");
            let mut moved = false;
            for side in both {
                moved |= self.transmit(side);
                moved |= self.deliver(side.other());
            }
            if !moved {
                break;
            }
        }
        let serials = |session: &Session| {
            let mut serials: Vec<_> = session.streams.iter().map(|one| one.serial).collect();
            serials.sort_unstable();
            serials
        };
        if let Some(server) = &self.server {
            assert!(!self.client.wants_transmit() && !server.wants_transmit());
            assert_eq!(serials(&self.client), serials(server), "both ends agree");
            assert_eq!(server.refused, 0, "refused streams are gone");
            assert_eq!(self.client.received, server.out.end(), "all came");
            assert_eq!(server.received, self.client.out.end(), "all came");
        }
    }

    /// Heals the network and ends all streams.
    pub(super) fn finish(&mut self) {
        for round in 0.. {
            assert!(round < PATIENCE, "it hangs: {:?}", self.client);
            if self.is_finished() {
                break;
            }
            self.finish_round();
            self.check();
        }
        // Nothing may be kept for streams that are over.
        for _ in 0..4 {
            self.finish_round();
            self.settle();
            self.pass(5000);
        }
        assert_eq!(self.client.heap_bytes(), 0, "{:?}", self.client);
        if let Some(server) = &self.server {
            assert_eq!(server.heap_bytes(), 0, "{server:?}");
        }
        // A message that wants no answer may be lost without a report.
        let kept = self.tokens == 1 && self.tally.given_up + self.tally.restarts == 0;
        let kept = kept && self.limits[1].max_streams > 3;
        let leaving = |session: &Session| session.leaving.is_some();
        let left = leaving(&self.client) || self.server.as_ref().is_none_or(leaving);
        self.ledger.check_all(kept && !left);
    }

    pub(super) fn is_finished(&self) -> bool {
        let idle = |session: &Session| session.is_idle();
        let open = [Side::Client, Side::Server].map(|side| self.ledger.open_streams(side));
        open == [0, 0] && self.client.is_idle() && self.server.as_ref().is_none_or(idle)
    }

    pub(super) fn finish_round(&mut self) {
        let both = [Side::Client, Side::Server];
        if let Some(connection) = &mut self.connection {
            connection.be_silent_until(0);
        }
        for side in both {
            self.notice(side);
        }
        self.connect();
        let mut moved = false;
        for side in both {
            while self.transmit(side) {
                moved = true;
            }
            while self.deliver(side.other()) {
                moved = true;
            }
            for (serial, id) in self.ledger.all(side) {
                moved |= self.finish_stream(side, serial, id);
            }
        }
        if !moved {
            let next = self.next_deadline();
            let ms = next.map_or(1, |at| at.saturating_sub(self.now_ms).max(1));
            self.pass(ms);
        }
    }

    /// Advances a stream towards its end. Returns whether anything changed.
    pub(super) fn finish_stream(&mut self, side: Side, serial: Serial, id: usize) -> bool {
        let unread = self.ledger.unread(side, id);
        if unread > 0 {
            self.consume_one(side, serial, id, unread);
        }
        if side == Side::Server && self.ledger.may_answer(id) && !self.ledger.is_blocked(side, id) {
            self.answer_one(serial, id, false, false);
        }
        // One more piece of data that must arrive.
        if self.ledger.may_send(side, id) && self.ledger.owes_last_bytes(side, id) {
            if self.ledger.is_blocked(side, id) {
                return unread > 0;
            }
            let taken = self.send_bytes(side, serial, id, 1000);
            return unread > 0 || taken > 0;
        }
        if self.ledger.may_end(side, id) {
            self.end_one(side, serial, id);
            return true;
        }
        unread > 0
    }
}
