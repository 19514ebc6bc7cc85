//! Values of knobs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value of a [`Knob`](super::Knob).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// Runs only when nothing else wants to: `cpu.idle` is 1.
    Idle,
    /// An amount, in the knob's unit.
    Amount(u64),
    /// No limit.
    Max,
}

impl Value {
    /// The amount, if it is one.
    pub fn amount(self) -> Option<u64> {
        match self {
            Value::Amount(amount) => Some(amount),
            Value::Idle | Value::Max => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Idle => f.write_str("idle"),
            Value::Amount(amount) => amount.fmt(f),
            Value::Max => f.write_str("max"),
        }
    }
}
