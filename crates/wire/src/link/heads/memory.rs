//! What slots remember.

use super::{date, digits};

/// Values that a slot remembers at most.
pub(super) const PLACES: usize = 8;
/// Longest value that is remembered, in bytes.
pub(super) const MAX_REMEMBERED: usize = 255;
/// What a place costs besides the longest value that it has had.
const PLACE_COST: u32 = 32;

/// What a slot keeps from one use to the next.
#[derive(Debug)]
pub(super) enum Memory {
    None,
    /// The date that it had last.
    Date {
        seconds: u64,
        text: [u8; date::LENGTH],
    },
    /// The bytes of the UUID or trace that it had last, the first so many.
    Last {
        bytes: [u8; digits::TRACE_BYTES],
        length: u8,
    },
    /// Values that it had.
    Places(Vec<Place>),
}

/// A value that is remembered.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) bytes: Vec<u8>,
    /// Longest value that it has had, which is what it costs.
    pub(super) longest: u8,
    /// When it was used last; at the encoder alone.
    pub(super) used: u32,
}

impl Memory {
    pub(super) fn epoch() -> Self {
        Self::Date {
            seconds: 0,
            text: date::EPOCH,
        }
    }

    /// The UUID or trace that was there last.
    pub(super) fn last(&self) -> Option<&[u8]> {
        match self {
            Self::Last { bytes, length } => bytes.get(..usize::from(*length)),
            _ => None,
        }
    }

    /// Remembers one, which is no longer than a trace.
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

    /// What it would cost more to have a value of `length` in `place`.
    pub(super) fn cost_of(&self, place: usize, length: usize) -> u32 {
        match self.places().get(place) {
            None => PLACE_COST + length as u32,
            Some(place) => (length as u32).saturating_sub(u32::from(place.longest)),
        }
    }

    /// Puts a value of at most [`MAX_REMEMBERED`] into a place that exists or is the next one.
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
