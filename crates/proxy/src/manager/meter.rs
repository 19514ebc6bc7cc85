//! Measures how much of the time a Worker has work.
//!
//! A thread that does not sleep has work. The kernel reports how long each thread ran, and how long it was ready to run
//! but had to wait for a CPU (`Documentation/scheduler/sched-stats.rst`). The sum of both, divided by the elapsed time,
//! is the busy ratio. It includes what the kernel does on behalf of the thread, and on a busy machine it does not count
//! waiting for a CPU as idle time, as CPU time alone would.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use heddle_telemetry::WorkerStats;

/// Reads the kernel's scheduler statistics of one thread.
#[derive(Debug, Default)]
pub(super) struct Meter {
    file: Option<File>,
    /// Nanoseconds of work at the last reading.
    before: Option<u64>,
}

impl Meter {
    /// Nanoseconds of work since the last reading; 0 at the first.
    pub(super) fn since_last(&mut self, thread: &AtomicI32, stats: &WorkerStats) -> u64 {
        let thread = thread.load(Ordering::Relaxed);
        if self.file.is_none() && thread != 0 {
            self.file = File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
        }
        // Without the kernel's statistics, the Worker's own counter is used, which misses some of the kernel's share.
        let now = self.file.as_ref().and_then(read);
        let now = now.unwrap_or_else(|| stats.busy_ns.get());
        let before = self.before.replace(now).unwrap_or(now);
        now.saturating_sub(before)
    }
}

/// Time on a CPU plus time waiting in its run queue, in nanoseconds.
fn read(file: &File) -> Option<u64> {
    let mut text = [0; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..length]).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    ran.checked_add(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_and_waiting_are_work() {
        assert_eq!(parse("120 30 7\n"), Some(150));
        for nonsense in ["", "120", "a b c", "18446744073709551615 1 0"] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }
}
