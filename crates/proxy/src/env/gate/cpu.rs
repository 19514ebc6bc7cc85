//! The processor time of a Worker's thread.
//!
//! The gate charges each piece of work with the time by the clock, which costs nothing more. On a busy machine a piece may
//! include milliseconds in which the thread waited for a processor: if a piece was long, the thread's processor time is
//! read, and the piece is charged with no more than it can have used.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;

/// Pieces that take longer are checked: far longer than most, far shorter than the wait for a processor.
const LONG_NS: u64 = 300_000;

/// Reads a thread's processor time, in nanoseconds.
type CpuClock = fn() -> u64;

/// The processor time of the calling thread since the thread started, by the kernel's scheduler statistics
/// (`Documentation/scheduler/sched-stats.rst`), which may lack a few milliseconds of a thread that runs. 0 on a kernel
/// without them. Allocates nothing.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut text = [0; 64];
    let read = File::open("/proc/thread-self/schedstat").and_then(|mut file| file.read(&mut text));
    let text = read
        .ok()
        .and_then(|read| str::from_utf8(text.get(..read)?).ok());
    let ran = text.and_then(|text| text.split(' ').next()?.parse().ok());
    ran.unwrap_or(0)
}

/// What is known of the thread's processor time.
#[derive(Debug, Default)]
pub(super) struct CpuMeter {
    /// `None` until there is one: then pieces are charged by the clock.
    clock: Cell<Option<CpuClock>>,
    /// At the last reading.
    read_ns: Cell<u64>,
    /// Charges since then.
    charged_ns: Cell<u64>,
    /// At the last call of [`CpuMeter::since_settled`].
    settled_ns: Cell<u64>,
}

impl CpuMeter {
    pub(super) fn set_clock(&self, clock: CpuClock) {
        self.clock.set(Some(clock));
    }

    /// What to charge for a piece of work that took so long by the clock.
    #[inline]
    pub(super) fn charge(&self, wall_ns: u64) -> u64 {
        if wall_ns > LONG_NS {
            return self.at_most(wall_ns);
        }
        self.charged_ns.set(self.charged_ns.get() + wall_ns);
        wall_ns
    }

    #[cold]
    fn at_most(&self, wall_ns: u64) -> u64 {
        let Some(clock) = self.clock.get() else {
            return wall_ns;
        };
        let now = clock();
        let used = now.saturating_sub(self.read_ns.replace(now));
        let others = self.charged_ns.replace(0);
        wall_ns.min(used.saturating_sub(others))
    }

    /// The processor time since the last call; the first call returns all of it.
    pub(super) fn since_settled(&self) -> u64 {
        let now = self.clock.get().map_or(0, |clock| clock());
        self.read_ns.set(now);
        self.charged_ns.set(0);
        now.saturating_sub(self.settled_ns.replace(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn waiting_for_a_processor_is_not_charged() {
        let meter = CpuMeter::default();
        let long = 10 * LONG_NS;
        assert_eq!(meter.charge(long), long, "without a clock");
        meter.set_clock(|| NOW.get());
        assert_eq!(meter.since_settled(), 0);
        // Short pieces are charged as they are; the long one gets what they have left of the processor time.
        NOW.set(50_000);
        assert_eq!(
            (meter.charge(10_000), meter.charge(20_000)),
            (10_000, 20_000)
        );
        assert_eq!(meter.charge(long), 20_000);
        // One that was long by its own work.
        NOW.set(50_000 + long);
        assert_eq!(meter.charge(long), long);
        assert_eq!(meter.charge(long), 0, "the processor was not had at all");
        assert_eq!(meter.since_settled(), 50_000 + long);
        assert_eq!(meter.since_settled(), 0);
    }
}
