//! Values of knobs.

use std::fmt;
use std::io;

use rustix::param::page_size;
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
    /// An amount of memory in bytes, rounded down to whole pages as the kernel does when it is written. Read back, any
    /// other amount would differ from what was written.
    pub fn whole_pages(bytes: u64) -> Self {
        Value::Amount(bytes - bytes % page_size() as u64)
    }

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

/// A number, as the kernel writes it.
pub(super) fn number(text: &str) -> io::Result<u64> {
    let wrong = || {
        let text = text.chars().take(40).collect::<String>();
        io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no number"))
    };
    text.trim().parse().map_err(|_| wrong())
}
