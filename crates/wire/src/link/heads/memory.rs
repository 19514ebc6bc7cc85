//! The memory of slots.

use super::{date, digits};

/// Limit on the values that a slot remembers.
pub(super) const PLACES: usize = 8;
/// Limit on a remembered value, in bytes.
pub(super) const MAX_REMEMBERED: usize = 255;
/// Fixed cost of a place, in bytes, besides the longest value it has held.
const PLACE_COST: u32 = 32;

/// The state of a slot between uses.
#[derive(Debug)]
pub(super) enum Memory {
    None,
    /// The previous date.
    Date {
        seconds: u64,
        text: [u8; date::LENGTH],
    },
    /// The bytes of the previous UUID or trace; the first `length` are valid.
    Last {
        bytes: [u8; digits::TRACE_BYTES],
        length: u8,
    },
    /// Previous values.
    Places(Vec<Place>),
}

/// A remembered value.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) bytes: Vec<u8>,
    /// Length of the longest value it has held: this is its cost.
    pub(super) longest: u8,
    /// The number of the block that used it last; at the encoder only.
    pub(super) used: u32,
}

impl Memory {
    pub(super) fn epoch() -> Self {
        Self::Date {
            seconds: 0,
            text: date::EPOCH,
        }
    }

    /// The previous UUID or trace.
    pub(super) fn last(&self) -> Option<&[u8]> {
        match self {
            Self::Last { bytes, length } => bytes.get(..usize::from(*length)),
            _ => None,
        }
    }

    /// Remembers a UUID or trace.
    pub(super) fn keep(&mut self, packed: &[u8]) {
        let mut bytes = [0; digits::TRACE_BYTES];
        bytes[..packed.len()].copy_from_slice(packed);
        let length = packed.len() as u8;
        *self = Self::Last { bytes, length };
    }

    pub(super) fn places(&self) -> &[Place] {
        match self {
            Self::Places(places) => places,
            _ => &[],
        }
    }

    /// The additional cost of a value of `length` bytes in `place`.
    pub(super) fn cost_of(&self, place: usize, length: usize) -> u32 {
        match self.places().get(place) {
            None => PLACE_COST + length as u32,
            Some(place) => (length as u32).saturating_sub(u32::from(place.longest)),
        }
    }

    /// Stores a value of at most [`MAX_REMEMBERED`] bytes in an existing place or the next new one.
    pub(super) fn remember(&mut self, place: usize, value: &[u8], now: u32) {
        if !matches!(self, Self::Places(_)) {
            *self = Self::Places(Vec::new());
        }
        let Self::Places(places) = self else { return };
        if place == places.len() {
            places.reserve_exact(1);
            places.push(Place {
                bytes: Vec::new(),
                longest: 0,
                used: now,
            });
        }
        let place = &mut places[place];
        place.bytes.clear();
        place.bytes.reserve_exact(value.len());
        place.bytes.extend_from_slice(value);
        place.longest = place.longest.max(value.len() as u8);
        place.used = now;
    }
}
