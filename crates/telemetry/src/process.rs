//! What the process costs, from `/proc/self`, under the names that Prometheus' client libraries
//! use.

use std::fs;

use crate::text::{Encoder, Kind};

/// What `/proc/self` says now. A value that cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time of all threads, in microseconds.
    pub cpu_us: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Threads now.
    pub threads: u64,
    /// Open descriptors now.
    pub open_fds: u64,
    /// Open descriptors that there may be.
    pub max_fds: u64,
}

impl Usage {
    /// Reads it; a few system calls, so never on a data thread.
    pub fn read() -> Self {
        let mut usage = Usage::default();
        if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
            usage.cpu_us = cpu_us(&stat);
        }
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            usage.resident_bytes = field(&status, "VmRSS:") * 1024;
            usage.threads = field(&status, "Threads:");
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // The listing itself holds one.
            usage.open_fds = (entries.count() as u64).saturating_sub(1);
        }
        if let Ok(limits) = fs::read_to_string("/proc/self/limits") {
            usage.max_fds = field(&limits, "Max open files");
        }
        usage
    }

    /// Appends `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_threads`,
    /// `process_open_fds` and `process_max_fds`.
    pub fn render(self, encoder: &mut Encoder<'_>) {
        let name = "process_cpu_seconds_total";
        encoder.family(name, Kind::Counter, "User and system time.");
        encoder.seconds(name, &[], self.cpu_us);
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory.",
                self.resident_bytes,
            ),
            ("process_threads", "Threads.", self.threads),
            ("process_open_fds", "Open descriptors.", self.open_fds),
            (
                "process_max_fds",
                "Open descriptors that there may be.",
                self.max_fds,
            ),
        ] {
            encoder.family(name, Kind::Gauge, help);
            encoder.count(name, &[], value);
        }
    }
}

/// Fields 14 and 15 of `proc(5)` stat, in ticks of 10 ms (`USER_HZ` is 100 on every Linux that
/// user space sees). The command name before them may hold anything, so count from the last `)`.
fn cpu_us(stat: &str) -> u64 {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    let ticks = |index| {
        rest.split_ascii_whitespace()
            .nth(index)
            .and_then(|t| t.parse().ok())
    };
    let total: u64 = ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0);
    total * 10_000
}

fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_us};

    #[test]
    fn a_command_name_cannot_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 25 5 0 0 20 0 1 0 99 1 1";
        assert_eq!(cpu_us(stat), 300_000);
        assert_eq!(cpu_us("nothing"), 0);
    }

    #[test]
    fn this_process_has_memory_a_thread_and_descriptors() {
        let usage = Usage::read();
        assert!(usage.resident_bytes > 100_000, "{usage:?}");
        assert!(usage.threads >= 1 && usage.open_fds >= 3, "{usage:?}");
        assert!(usage.max_fds >= usage.open_fds, "{usage:?}");
    }
}
