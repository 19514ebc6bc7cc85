//! A template, as both ends hold it: the constant bytes and the positions of the slots.

use super::HeadError;
use super::check;
use super::slot::Slot;

/// Fixed cost of a template, in bytes.
pub(super) const TEMPLATE_COST: u32 = 128;
/// Cost of a slot, in bytes.
pub(super) const SLOT_COST: u32 = 64;

/// A destination, and the text of a head with slots in it.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) destination: Box<[u8]>,
    /// The head without its slots' values. It has all lines of the head: slots are within lines.
    pub(super) text: Box<[u8]>,
    pub(super) slots: Box<[Slot]>,
    /// The current cost in bytes, with remembered values.
    pub(super) cost: u32,
}

impl Template {
    /// Checks the form of a template and builds it: both ends use this one function.
    ///
    /// # Errors
    /// [`HeadError::Template`] when some use of it would not be a valid head, or it would hold a secret.
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

    /// Cost of a template without remembered values, in bytes.
    pub(super) fn cost(destination: usize, text: usize, slots: usize) -> usize {
        TEMPLATE_COST as usize + destination + text + SLOT_COST as usize * slots
    }
}
