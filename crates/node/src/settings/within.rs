//! Whole numbers with a range.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

/// A number between `MIN` and `MAX`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Within<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Within<MIN, MAX> {
    /// A default value. One that is out of range fails to compile when evaluated in a constant, and panics otherwise.
    pub const fn new(value: u64) -> Self {
        assert!(
            MIN <= value && value <= MAX,
            "the default is within the range"
        );
        Within(value)
    }

    /// A default from another crate; one out of range becomes the nearest bound.
    pub fn nearest(value: u64) -> Self {
        Within(value.clamp(MIN, MAX))
    }

    /// The value itself.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as a size or a count of things in memory.
    pub fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The number as milliseconds.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer).map_err(|_| {
            de::Error::custom(format!("this is no whole number, expected {MIN} to {MAX}"))
        })?;
        if (MIN..=MAX).contains(&value) {
            Ok(Within(value))
        } else {
            Err(de::Error::custom(format!(
                "{value} is out of range, expected {MIN} to {MAX}"
            )))
        }
    }
}
