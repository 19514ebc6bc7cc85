//! The limits of the number of Workers, and the thresholds at which one is added or retired.

use std::time::Duration;

/// Limits and thresholds of the number of Workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elasticity {
    /// Number of Workers that always run; at least 1.
    pub min: usize,
    /// Limit of the number of Workers; at least `min`.
    pub max: usize,
    /// A Worker is added while the mean busy ratio (0 to 1) of all Workers is above this.
    pub grow_above: f64,
    /// A Worker is retired while the remaining Workers would have a mean busy ratio below this; at most nine tenths of
    /// `grow_above`.
    pub retire_below: f64,
    /// How long the mean must have been above `grow_above`.
    pub grow_after: Duration,
    /// How long the mean must have been below `retire_below`.
    pub retire_after: Duration,
    /// Whether Workers with little load take connections from busier ones.
    pub steal: bool,
}

impl Elasticity {
    /// The limit of the number of Workers, corrected if `max` is below `min` or both are 0.
    pub fn most(&self) -> usize {
        self.max.max(self.min).max(1)
    }
}

impl Default for Elasticity {
    /// Exactly one Worker.
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
