//! A template as both ends hold it: the bytes that stay, and where the others go.

use super::HeadError;
use super::check;
use super::value::Memory;

/// What a template costs besides its bytes.
pub(super) const TEMPLATE_COST: u32 = 128;
/// What a slot costs.
pub(super) const SLOT_COST: u32 = 64;

/// What stands in a slot, and how it is written in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SlotKind {
    /// Any value; values may be remembered.
    Text = 0,
    /// Any value, never remembered.
    Secret = 1,
    /// A decimal number.
    Number = 2,
    /// A date as RFC 9110 section 5.6.7 wants it.
    Date = 3,
    /// A UUID in lower case.
    Uuid = 4,
    /// A `traceparent` of version 00.
    Trace = 5,
}

impl SlotKind {
    pub(super) fn from_number(number: u64) -> Result<Self, HeadError> {
        Ok(match number {
            0 => Self::Text,
            1 => Self::Secret,
            2 => Self::Number,
            3 => Self::Date,
            4 => Self::Uuid,
            5 => Self::Trace,
            _ => return Err(HeadError::Template("a slot of an unknown kind")),
        })
    }
}

/// A place in a template whose bytes come with every use.
#[derive(Debug)]
pub(super) struct Slot {
    /// Before which byte of the text.
    pub(super) at: u32,
    pub(super) kind: SlotKind,
    /// Within the request line, where there are no blanks.
    pub(super) in_target: bool,
    /// How much it was worth to remember values; at the encoder alone.
    pub(super) worth: i8,
    pub(super) memory: Memory,
}

impl Slot {
    pub(super) fn new(at: u32, kind: SlotKind) -> Self {
        let memory = match kind {
            SlotKind::Date => Memory::epoch(),
            _ => Memory::None,
        };
        Self {
            at,
            kind,
            in_target: false,
            worth: super::value::WORTH_AT_FIRST,
            memory,
        }
    }
}

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
