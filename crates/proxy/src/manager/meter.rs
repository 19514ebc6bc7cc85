//! How much of the time a Worker has something to do.
//!
//! A thread that does not sleep has work. The kernel knows how long each thread ran, and how long it
//! was ready to run and had to wait for a processor (`Documentation/scheduler/sched-stats.rst`); the sum
//! of both, in the time that has passed, is the ratio. It counts what the kernel does on behalf of the
//! thread, and on a busy machine it does not mistake waiting for idling, which CPU time alone would.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use heddle_telemetry::WorkerStats;

/// Reads one thread's account.
#[derive(Debug, Default)]
pub(super) struct Meter {
    file: Option<File>,
    /// Nanoseconds of work at the last look.
    before: Option<u64>,
}

impl Meter {
    /// Nanoseconds of work since the last look; none at the first.
    pub(super) fn since_last(&mut self, thread: &AtomicI32, stats: &WorkerStats) -> u64 {
        let thread = thread.load(Ordering::Relaxed);
        if self.file.is_none() && thread != 0 {
            self.file = File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
        }
        // Without the kernel's account there is the Worker's own, which leaves out some of the kernel's
        // share.
        let now = self.file.as_ref().and_then(read);
        let now = now.unwrap_or_else(|| stats.busy_ns.get());
        let before = self.before.replace(now).unwrap_or(now);
        now.saturating_sub(before)
    }
}

/// Time on a processor and time in its queue, in nanoseconds.
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
