//! The actions of both owners.

use super::super::super::frame::{Code, Serial};
use super::super::NoStream;
use super::{MOST_SENT, Side, World};

impl World<'_> {
    pub(super) fn open(&mut self) {
        let stream = self.ledger.draw(&mut self.choices);
        let (destination, head) = (stream.destination(), stream.head());
        let (scope, wants) = (stream.scope(), stream.wants_answer);
        let may = self.client.may_open();
        let opened = if stream.is_flow {
            self.client.open_flow(&destination)
        } else {
            self.client.open(scope, &destination, &head, wants)
        };
        match opened {
            Ok(serial) => {
                assert!(may, "it was said that none could be opened");
                self.ledger.open(serial, stream);
            }
            Err(NoStream::TooLong) => {
                assert!(may && head.len() > self.client.theirs.max_head as usize);
            }
            Err(_) => assert!(!may, "it was said that one could be opened"),
        }
    }

    pub(super) fn send(&mut self, side: Side) {
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let most = self.choices.of(&[10, 300, 5000, MOST_SENT]);
        let length = self.choices.below(most) + 1;
        self.send_bytes(side, serial, id, length);
    }

    /// Returns how many bytes were taken.
    pub(super) fn send_bytes(
        &mut self,
        side: Side,
        serial: Serial,
        id: usize,
        length: usize,
    ) -> usize {
        let may = self.ledger.may_send(side, id);
        let bytes = self.ledger.next_bytes(side, id, length);
        let Some(session) = self.session(side) else {
            return 0;
        };
        let room = session.room(serial);
        let taken = session.send(serial, &bytes);
        assert!(taken <= room, "more is taken than there is room");
        assert!(
            may || taken == 0,
            "bytes are taken on a stream that is ended"
        );
        assert!(
            !may || taken >= room.min(length).min(1),
            "room is for something"
        );
        if taken < length && may {
            self.tally.waits += 1;
        }
        self.ledger.sent(side, id, taken, may && taken < length);
        taken
    }

    pub(super) fn answer(&mut self) {
        let Some((serial, id)) = self.ledger.any(Side::Server, &mut self.choices) else {
            return;
        };
        let interim = self.choices.one_in(3);
        let long = self.choices.one_in(8);
        self.answer_one(serial, id, interim, long);
    }

    pub(super) fn answer_one(&mut self, serial: Serial, id: usize, interim: bool, long: bool) {
        let may = self.ledger.may_answer(id);
        let Some(session) = self.server.as_mut().filter(|_| may) else {
            return;
        };
        let (code, head) = self.ledger.next_answer(id, interim, long);
        match session.answer(serial, 0, code, &head) {
            Ok(()) => self.ledger.answered(id, interim, code, head),
            Err(NoStream::Full) => self.ledger.head_waits(id),
            Err(NoStream::TooLong) => assert!(head.len() > session.theirs.max_head as usize),
            Err(error) => panic!("an answer is not taken: {error:?}"),
        }
    }

    pub(super) fn end(&mut self, side: Side) {
        if let Some((serial, id)) = self.ledger.any(side, &mut self.choices) {
            self.end_one(side, serial, id);
        }
    }

    pub(super) fn end_one(&mut self, side: Side, serial: Serial, id: usize) {
        if !self.ledger.may_end(side, id) {
            return;
        }
        let Some(session) = self.session(side) else {
            return;
        };
        let over = session.end(serial);
        self.ledger.end(side, serial, over);
    }

    pub(super) fn reset(&mut self, side: Side) {
        if !self.choices.one_in(3) {
            return;
        }
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let code = Code(self.choices.below(256) as u8);
        let first = !self.ledger.is_reset(side, id);
        let Some(session) = self.session(side) else {
            return;
        };
        let over = session.reset(serial, code);
        assert!(first || !over, "a stream is over twice");
        if first {
            self.tally.reset += 1;
            self.ledger.reset(side, serial, code, over);
        }
    }

    pub(super) fn consume(&mut self, side: Side) {
        let Some((serial, id)) = self.ledger.any(side, &mut self.choices) else {
            return;
        };
        let unread = self.ledger.unread(side, id);
        let bytes = if self.choices.one_in(3) {
            self.choices.below(unread + 1)
        } else {
            unread
        };
        self.consume_one(side, serial, id, bytes);
    }

    pub(super) fn consume_one(&mut self, side: Side, serial: Serial, id: usize, bytes: usize) {
        self.ledger.consumed(side, id, bytes);
        if let Some(session) = self.session(side) {
            session.consumed(serial, bytes);
        }
    }
}
