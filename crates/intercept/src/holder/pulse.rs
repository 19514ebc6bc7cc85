//! Health check of the proxy by pings.
//!
//! ```text
//!           asked                missed 3               missed as many as there may be
//!   calm ──────────▶ waiting ──────────────▶ late ──────────────────────────────────▶ to be ended
//!     ▲                 │ answered            │ answered
//!     └─────────────────┴─────────────────────┘
//! ```
//!
//! A check runs once a second. Each check that finds the last ping unanswered counts as one miss, however long ago
//! the previous check was. So time in which the holder itself did not run, or the machine was suspended, does not
//! count against the proxy. An unanswered ping is sent again at each check, since the ping or its answer may not have
//! fitted into a socket buffer.

use std::time::{Duration, Instant};

/// Interval of checks.
const EVERY: Duration = Duration::from_secs(1);
/// Number of misses after which the proxy counts as unresponsive.
const LATE_AFTER: u32 = 3;

/// State of the health check of one proxy. The caller passes the time.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Number of misses after which the proxy is killed; `None`: never.
    limit: Option<u32>,
    next: Instant,
    number: u64,
    /// Whether ping `number` is unanswered.
    is_asked: bool,
    missed: u32,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    /// Nothing to do.
    None,
    /// Send a ping with this number.
    Ask(u64),
    /// Log that the proxy does not respond.
    Late,
    /// Kill the proxy.
    End,
}

impl Pulse {
    pub(super) fn new(limit: Option<u32>, now: Instant) -> Self {
        Pulse {
            limit,
            next: now + EVERY,
            number: 0,
            is_asked: false,
            missed: 0,
        }
    }

    /// When the next check is due.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Runs a check if it is due. Messages of the proxy must have been read before.
    pub(super) fn look(&mut self, now: Instant) -> Beat {
        if now < self.next {
            return Beat::None;
        }
        self.next = now + EVERY;
        if !self.is_asked {
            self.is_asked = true;
            self.number += 1;
            return Beat::Ask(self.number);
        }
        self.missed = self.missed.saturating_add(1);
        match self.missed {
            missed if Some(missed) == self.limit => Beat::End,
            LATE_AFTER => Beat::Late,
            _ => Beat::Ask(self.number),
        }
    }

    /// Records the answer to ping `number`. Returns whether the proxy was unresponsive before.
    pub(super) fn answered(&mut self, number: u64) -> bool {
        if !self.is_asked || number != self.number {
            return false;
        }
        let was_late = self.is_late();
        self.is_asked = false;
        self.missed = 0;
        was_late
    }

    /// Whether the proxy is unresponsive.
    pub(super) fn is_late(&self) -> bool {
        self.missed >= LATE_AFTER
    }
}

#[cfg(test)]
mod tests;
