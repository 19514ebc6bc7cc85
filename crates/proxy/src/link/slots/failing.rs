//! How streams fail: each by itself, or together with their link.

use heddle_wire::link::{Code, Opened, Serial, Streams};

use super::Slots;
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::link::failure::said;

impl Slots {
    /// The other end has reset the stream. At the calling end, what it answered before is still read.
    pub(in crate::link) fn reset(&mut self, serial: Serial, failure: StreamFailure) {
        self.broke(serial, failure, true);
    }

    /// The stream broke here, or with its link.
    pub(in crate::link) fn failed(&mut self, serial: Serial, failure: StreamFailure) {
        self.broke(serial, failure, false);
    }

    fn broke(&mut self, serial: Serial, failure: StreamFailure, is_heard: bool) {
        let Some(index) = self.by_serial.remove(&serial) else {
            return;
        };
        if self.all[index].detached {
            self.all.remove(index);
            return;
        }
        let slot = &mut self.all[index];
        slot.wake();
        slot.serial = None;
        if slot.has_come && slot.destination.is_none() {
            // What arrived before is still read.
            slot.deaf = Some(failure);
        } else {
            slot.failure = Some(failure);
            if !is_heard || slot.destination.is_some() {
                slot.clear();
            }
        }
    }

    /// Records that the slot's stream cannot be opened.
    pub(in crate::link) fn refuse(&mut self, slot: usize, failure: StreamFailure) {
        self.all[slot].failure = Some(failure);
    }

    /// Fails all streams that are not open yet: the link is over.
    pub(in crate::link) fn refuse_unopened(&mut self, failure: StreamFailure) {
        for (_, slot) in self.all.iter_mut().filter(|(_, slot)| slot.is_unopened()) {
            slot.failure = Some(failure);
            slot.wake();
        }
    }

    /// Records whether an unopened stream waits until the link is up.
    pub(in crate::link) fn is_linking(&mut self, slot: usize, waits: bool) {
        self.all[slot].is_linking = waits;
    }

    /// The link is up, or with a `failure`, will not be for now: streams that wait for it continue, or use another
    /// endpoint.
    pub(in crate::link) fn linked(&mut self, failure: Option<StreamFailure>) {
        let waiting = self.all.iter_mut().filter(|(_, slot)| slot.is_linking);
        for (_, slot) in waiting {
            slot.failure = slot.failure.or(failure);
            slot.wake();
        }
    }

    /// Breaks all open streams. Returns their serials.
    pub(in crate::link) fn fail_all(&mut self, failure: StreamFailure) -> Vec<Serial> {
        let open: Vec<Serial> = self.by_serial.keys().copied().collect();
        for serial in &open {
            self.failed(*serial, failure);
        }
        open
    }
}

/// Fails the streams of a link that is given up.
pub(in crate::link) struct Failing<'a> {
    pub(super) slots: &'a mut Slots,
    pub(super) reason: Reason,
}

impl Streams for Failing<'_> {
    fn opened(&mut self, _: Serial, _: Opened, _: &[u8], _: Option<u32>) {}
    fn head(&mut self, _: Serial, _: Code, _: &[u8]) {}
    fn data(&mut self, _: Serial, _: &[u8]) {}
    fn ended(&mut self, _: Serial) {}
    fn writable(&mut self, _: Serial) {}
    fn over(&mut self, _: Serial) {}
    fn going_away(&mut self, _: Code, _: Option<Serial>) {}

    fn lost(&mut self, serial: Serial, was_sent: bool) {
        self.slots.failed(
            serial,
            StreamFailure {
                reason: self.reason,
                was_sent,
            },
        );
    }

    fn reset(&mut self, serial: Serial, code: Code) {
        self.slots.failed(serial, said(code));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use heddle_wire::buffer::{Chain, Pool};

    use super::*;
    use crate::failure::Reason;
    use crate::link::hold::Holds;
    use crate::link::{Key, LinkEnd};

    const ANSWER: &[u8] = b"HTTP/1.1 405 No\r\n\r\n";

    /// How many bytes the calling end can read from a stream that had an answer before it failed in this way.
    fn found(fails: impl FnOnce(&mut Slots, Serial, StreamFailure)) -> usize {
        let pool = Pool::new(64, 16);
        let end = LinkEnd::Caller(Key {
            caller: None,
            called: heddle_model::ServiceAccountName::new("test", "echo").unwrap(),
            node: ([127, 0, 0, 1], 1).into(),
        });
        let mut slots = Slots::new(Holds::new().of(&end, &pool));
        let serial = Serial::FIRST;
        let slot = slots.vacant();
        slots.opened(slot, serial);
        slots.head(serial, &pool, ANSWER).unwrap();
        let failed = StreamFailure {
            reason: Reason::UpstreamReset,
            was_sent: true,
        };
        fails(&mut slots, serial, failed);
        let cx = &std::task::Context::from_waker(Waker::noop());
        let mut inbox = Chain::new();
        while let std::task::Poll::Ready(Ok(_)) = slots.take(slot, &mut inbox, usize::MAX, cx) {}
        inbox.len()
    }

    #[test]
    fn what_was_answered_before_a_reset_is_heard_and_before_a_revocation_is_not() {
        assert_eq!(found(Slots::reset), ANSWER.len());
        assert_eq!(found(Slots::failed), 0);
    }
}
