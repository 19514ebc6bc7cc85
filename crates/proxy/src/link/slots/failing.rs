//! What becomes of streams whose link is given up.

use heddle_wire::link::{Code, Opened, Serial, Streams};

use super::Slots;
use crate::failure::Reason;
use crate::link::failure::Failed;

/// Ends streams whose link is given up.
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
            Failed {
                reason: self.reason,
                was_sent,
            },
        );
    }

    fn reset(&mut self, serial: Serial, code: Code) {
        self.slots.failed(serial, Failed::by(code));
    }
}
