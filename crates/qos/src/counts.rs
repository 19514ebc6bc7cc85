//! What was changed and what was refused, counted where it is done.

use std::ops::Add;

/// Changes since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Values that the kernel took, those that were put back among them.
    pub writes: u64,
    /// How often another program's value was there, and stayed.
    pub foreign: u64,
    /// How often the kernel or the journal refused.
    pub failed: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            writes: self.writes + other.writes,
            foreign: self.foreign + other.foreign,
            failed: self.failed + other.failed,
        }
    }
}
