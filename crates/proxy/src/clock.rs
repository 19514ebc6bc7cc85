//! A Worker's clock: read once for each piece of work, so that whatever happens within it costs
//! no further look.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the Worker started. Deadlines are kept in this unit.
pub(crate) type Millis = u64;

/// When something must be over, by a Worker's clock. Where there may be no such time an `Option` takes no more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due(NonZeroU64);

impl Due {
    /// At so many milliseconds of the clock.
    pub(crate) fn at(ms: Millis) -> Self {
        Due(NonZeroU64::MIN.saturating_add(ms))
    }

    /// In milliseconds of the clock.
    pub(crate) fn ms(self) -> Millis {
        self.0.get() - 1
    }
}

/// The time as of the current piece of work.
pub(crate) struct Clock {
    start: Instant,
    /// Wall-clock time at `start`, in milliseconds since 1970.
    unix_start_ms: u64,
    now: Cell<Instant>,
    /// The same in milliseconds since the start, once it was asked for: that is done many times in each
    /// piece of work, and instants are costly to subtract.
    now_ms: Cell<Option<Millis>>,
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
            now_ms: Cell::new(None),
        }
    }

    pub(crate) fn set(&self, now: Instant) {
        self.now.set(now);
        self.now_ms.set(None);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn now_ms(&self) -> Millis {
        if let Some(ms) = self.now_ms.get() {
            return ms;
        }
        let ms = millis(self.now.get().saturating_duration_since(self.start));
        self.now_ms.set(Some(ms));
        ms
    }

    /// The same in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        let since = self.now.get().saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
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

/// Whole milliseconds, without the wide division of [`Duration::as_millis`].
pub(crate) fn millis(duration: Duration) -> Millis {
    let seconds = duration.as_secs().saturating_mul(1000);
    seconds.saturating_add(u64::from(duration.subsec_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_follow_the_clock() {
        let start = Instant::now();
        let clock = Clock::new(start, SystemTime::UNIX_EPOCH);
        for ms in [0, 1, 999, 1000, 86_400_123] {
            clock.set(start + Duration::from_millis(ms) + Duration::from_micros(999));
            assert_eq!((clock.now_ms(), clock.now_ms()), (ms, ms));
        }
    }

    #[test]
    fn milliseconds_are_whole_and_bounded() {
        for duration in [
            Duration::ZERO,
            Duration::from_micros(1_999),
            Duration::from_secs(7),
        ] {
            assert_eq!(u128::from(millis(duration)), duration.as_millis());
        }
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
