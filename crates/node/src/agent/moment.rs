//! A moment, by both of a node's clocks.

use std::time::Duration;

/// Certificates are checked against `unix_s`, which can be set and can stand still; waits are measured by `elapsed`,
/// which cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970, by the clock that never falls below its floor.
    pub(crate) unix_s: u64,
    /// Since the process started.
    pub(crate) elapsed: Duration,
}
