//! A moment, by both of a node's clocks.

use std::time::Duration;

/// When something happens: what certificates are judged by can be set and stand still, what waits are
/// measured by cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970, by the clock that never goes back behind its floor.
    pub(crate) unix_s: u64,
    /// Since the process started.
    pub(crate) elapsed: Duration,
}
