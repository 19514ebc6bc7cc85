//! Whether a proxy answers.
//!
//! ```text
//!           asked                missed 3               missed as many as there may be
//!   calm ──────────▶ waiting ──────────────▶ late ──────────────────────────────────▶ to be ended
//!     ▲                 │ answered            │ answered
//!     └─────────────────┴─────────────────────┘
//! ```
//!
//! It is looked at once a second, and each look at which a question is still open counts once, however long ago the
//! last one was: while the holder itself was kept from running, or the machine slept, nothing is held against the
//! proxy. A question that is open is asked again at each look, since it or the answer may have found no room.

use std::time::{Duration, Instant};

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// So many looks without an answer, and the proxy is said not to respond.
const LATE_AFTER: u32 = 3;

/// The answers of one proxy. Has no clock.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Looks without an answer after which it is ended; `None`: never.
    limit: Option<u32>,
    next: Instant,
    number: u64,
    /// Whether the question of that number is open.
    is_asked: bool,
    missed: u32,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beat {
    /// Nothing.
    None,
    /// Ask it this.
    Ask(u64),
    /// Say that it does not respond.
    Late,
    /// End it.
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

    /// When it is to be looked at.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Looks at it, if it is time. Whatever it has said should have been heard before.
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

    /// It has answered. Returns whether it was late.
    pub(super) fn answered(&mut self, number: u64) -> bool {
        if !self.is_asked || number != self.number {
            return false;
        }
        let was_late = self.is_late();
        self.is_asked = false;
        self.missed = 0;
        was_late
    }

    /// Whether it does not respond.
    pub(super) fn is_late(&self) -> bool {
        self.missed >= LATE_AFTER
    }
}

#[cfg(test)]
mod tests;
