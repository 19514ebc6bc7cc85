//! A Worker's clock: read once for each piece of work, so that code within it gets the time for free.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the Worker started. Deadlines are kept in this unit.
pub(crate) type Millis = u64;

/// A deadline by a Worker's clock. An `Option` of it takes no more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due(NonZeroU64);

impl Due {
    /// The deadline at `ms` milliseconds of the clock.
    pub(crate) fn at(ms: Millis) -> Self {
        Due(NonZeroU64::MIN.saturating_add(ms))
    }

    /// The deadline in milliseconds of the clock.
    pub(crate) fn ms(self) -> Millis {
        self.0.get() - 1
    }
}

/// The time at the start of the current piece of work.
pub(crate) struct Clock {
    start: Instant,
    /// Wall-clock time at `start`, in milliseconds since 1970.
    unix_start_ms: u64,
    now: Cell<Instant>,
    /// The same time in nanoseconds since `start`: it is read many times in each piece of work, and subtracting
    /// instants is costly.
    now_ns: Cell<u64>,
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
            now_ns: Cell::new(0),
        }
    }

    pub(crate) fn set(&self, now: Instant) {
        self.now.set(now);
        self.now_ns.set(self.since_start_ns(now));
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Nanoseconds since the Worker started.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Microseconds since the Worker started.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns.get() / 1_000
    }

    pub(crate) fn now_ms(&self) -> Millis {
        self.now_ns.get() / 1_000_000
    }

    /// Microseconds from the Worker's start to an instant, which mostly is now.
    pub(crate) fn us(&self, instant: Instant) -> u64 {
        match instant == self.now.get() {
            true => self.now_us(),
            false => self.since_start_ns(instant) / 1_000,
        }
    }

    /// Converts microseconds of this clock to wall-clock time, in milliseconds since 1970. If the wall clock is set
    /// while the Worker runs, the result does not follow it.
    pub(crate) fn unix_ms(&self, us: u64) -> u64 {
        self.unix_start_ms.saturating_add(us / 1_000)
    }

    fn since_start_ns(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.start);
        // No overflow: it would take 584 years.
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
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
