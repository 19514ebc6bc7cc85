//! How many Workers there may be, and when they come and go.

use std::time::Duration;

/// When Workers come and go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elasticity {
    /// Workers that are always there; at least 1.
    pub min: usize,
    /// Workers that there may be; at least `min`.
    pub max: usize,
    /// A Worker is added while their mean busy ratio is above this.
    pub grow_above: f64,
    /// A Worker is retired while the others would have a mean busy ratio below this; at most nine
    /// tenths of `grow_above`.
    pub retire_below: f64,
    /// For how long it must have been above.
    pub grow_after: Duration,
    /// For how long it must have been below.
    pub retire_after: Duration,
    /// Whether Workers that have little to do take connections of busier ones.
    pub steal: bool,
}

impl Elasticity {
    /// Workers that there may be, as it is in force.
    pub fn most(&self) -> usize {
        self.max.max(self.min).max(1)
    }
}

impl Default for Elasticity {
    /// One Worker, always.
    fn default() -> Self {
        Elasticity {
            min: 1,
            max: 1,
            grow_above: 0.8,
            retire_below: 0.5,
            grow_after: Duration::from_millis(400),
            retire_after: Duration::from_millis(1500),
            steal: true,
        }
    }
}
