//! The time, as the owner of an agent tells it.

use std::time::Duration;

/// Now, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Time since any fixed moment, which never goes back.
    pub since: Duration,
    /// Seconds since 1970, for people.
    pub unix_s: u64,
}
