//! A template as both ends hold it: the bytes that stay, and where the others go.

use super::HeadError;
use super::check;
use super::slot::Slot;

/// What a template costs besides its bytes.
pub(super) const TEMPLATE_COST: u32 = 128;
/// What a slot costs.
pub(super) const SLOT_COST: u32 = 64;

/// A destination, a head's text, and slots in it.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) destination: Box<[u8]>,
    /// The head without what stands in slots. It has the lines of the head: slots lie within them.
    pub(super) text: Box<[u8]>,
    pub(super) slots: Box<[Slot]>,
    /// What it costs now, remembered values included.
    pub(super) cost: u32,
}

impl Template {
    /// A template after its form was looked at: the one place where this happens, at both ends.
    ///
    /// # Errors
    /// [`HeadError::Template`] when not every use of it makes a head, or when it would hold what is
    /// secret.
    pub(super) fn new(
        destination: Box<[u8]>,
        text: Box<[u8]>,
        mut slots: Box<[Slot]>,
    ) -> Result<Self, HeadError> {
        check::template(&text, &mut slots)?;
        let cost = Self::cost(destination.len(), text.len(), slots.len());
        Ok(Self {
            destination,
            text,
            slots,
            cost: u32::try_from(cost).unwrap_or(u32::MAX),
        })
    }

    /// What a template costs before it remembers anything, in bytes.
    pub(super) fn cost(destination: usize, text: usize, slots: usize) -> usize {
        TEMPLATE_COST as usize + destination + text + SLOT_COST as usize * slots
    }
}
