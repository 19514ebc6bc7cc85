//! A Worker's clock: read once for each piece of work, so that whatever happens within it costs
//! no further look.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the Worker started. Deadlines are kept in this unit.
pub(crate) type Millis = u64;

/// The time as of the current piece of work.
pub(crate) struct Clock {
    start: Instant,
    /// Wall-clock time at `start`, in milliseconds since 1970.
    unix_start_ms: u64,
    now: Cell<Instant>,
}

impl Clock {
    pub(crate) fn new(now: Instant, wall: SystemTime) -> Self {
        let since_1970 = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            start: now,
            unix_start_ms: millis(since_1970),
            now: Cell::new(now),
        }
    }

    pub(crate) fn set(&self, now: Instant) {
        self.now.set(now);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn now_ms(&self) -> Millis {
        millis(self.now.get().saturating_duration_since(self.start))
    }

    /// What an instant of this clock is called in wall-clock time, in milliseconds since 1970. A
    /// wall clock that is set while the Worker runs is not followed.
    pub(crate) fn unix_ms(&self, instant: Instant) -> u64 {
        self.unix_start_ms
            .saturating_add(millis(instant.saturating_duration_since(self.start)))
    }

    /// The instant at which `ms` is reached.
    pub(crate) fn instant(&self, ms: Millis) -> Instant {
        self.start + Duration::from_millis(ms)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
