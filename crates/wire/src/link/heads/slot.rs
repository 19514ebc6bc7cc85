//! The places of a template whose bytes are sent with every use.

use super::HeadError;
use super::memory::Memory;

/// Initial [`worth`](Slot::worth) of a slot: the number of values that are remembered before one has to repeat.
pub(super) const WORTH_AT_FIRST: i8 = 12;

/// The kind of a slot's values, and their encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SlotKind {
    /// Any value; values may be remembered.
    Text = 0,
    /// Any value, never remembered.
    Secret = 1,
    /// A decimal number.
    Number = 2,
    /// A date in the form of RFC 9110 section 5.6.7.
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

/// A place in a template whose bytes are sent with every use.
#[derive(Debug)]
pub(super) struct Slot {
    /// Offset in the text before which the value goes.
    pub(super) at: u32,
    pub(super) kind: SlotKind,
    /// Whether it is in the request's target, where blanks are not allowed.
    pub(super) in_target: bool,
    /// How useful remembering values has been so far; at the encoder only.
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
            worth: WORTH_AT_FIRST,
            memory,
        }
    }
}
