//! How busy the node is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// More bytes than the first line of `/proc/stat` has: a name and ten numbers of up to 20 digits.
const FIRST_LINE: usize = 256;

/// Reads `/proc`.
#[derive(Debug)]
pub(super) struct Node {
    /// `/proc/stat`, which stays open: it is read ten times a second.
    stat: File,
    /// Time of all processors, in ticks: busy and all, at the last sample.
    last: Times,
    processors: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    busy: u64,
    all: u64,
}

/// Memory of the machine, or of the group that all pods are in, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) free: u64,
}

impl Memory {
    /// That of a group with a limit, where it is scarcer.
    pub(super) fn within(self, limit: u64, used: u64) -> Memory {
        Memory {
            total: self.total.min(limit),
            free: self.free.min(limit.saturating_sub(used)),
        }
    }
}

impl Node {
    pub(super) fn open() -> io::Result<Self> {
        let processors = std::thread::available_parallelism()?;
        let stat = File::open("/proc/stat")?;
        Ok(Node {
            last: sampled(&stat)?,
            stat,
            processors: processors.get() as f64,
        })
    }

    pub(super) fn processors(&self) -> f64 {
        self.processors
    }

    /// Use of all processors since the last call, in percent.
    pub(super) fn used(&mut self) -> io::Result<f64> {
        let now = sampled(&self.stat)?;
        let all = now.all.saturating_sub(self.last.all);
        let busy = now.busy.saturating_sub(self.last.busy);
        self.last = now;
        Ok(match all {
            0 => 0.0,
            all => busy as f64 * 100.0 / all as f64,
        })
    }

    pub(super) fn memory(&self) -> io::Result<Memory> {
        memory(&fs::read_to_string("/proc/meminfo")?, "MemFree")
    }

    /// As [`Node::memory`], with what could be used at once in place of what is free: file pages that are not in use, too.
    pub(super) fn available(&self) -> io::Result<Memory> {
        memory(&fs::read_to_string("/proc/meminfo")?, "MemAvailable")
    }
}

fn sampled(stat: &File) -> io::Result<Times> {
    let mut space = [0; FIRST_LINE];
    let read = stat.read_at(&mut space, 0)?;
    let text = space.get(..read).unwrap_or_default();
    times(&String::from_utf8_lossy(text))
}

/// The first line of `/proc/stat` (`proc_stat(5)`): user, nice, system, idle, iowait, irq, softirq, steal, and the time of
/// guests, which is in user and nice already.
fn times(stat: &str) -> io::Result<Times> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "/proc/stat is not understood");
    let line = stat
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "));
    let numbers = line.ok_or_else(wrong)?.split_ascii_whitespace().take(8);
    let numbers: Vec<u64> = numbers.map_while(|number| number.parse().ok()).collect();
    let [_, _, _, idle, wait, ..] = numbers[..] else {
        return Err(wrong());
    };
    let all = numbers
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(*one));
    Ok(Times {
        busy: all.saturating_sub(idle).saturating_sub(wait),
        all,
    })
}

/// `MemTotal` and another field of `/proc/meminfo` (`proc_meminfo(5)`).
fn memory(meminfo: &str, free: &str) -> io::Result<Memory> {
    let field = |name: &str| {
        let mut lines = meminfo.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kib.checked_mul(1_024)
    };
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "/proc/meminfo is not understood",
        )
    };
    Ok(Memory {
        total: field("MemTotal").ok_or_else(wrong)?,
        free: field(free).ok_or_else(wrong)?,
    })
}

/// A time in which the use of the processors can be measured: ticks of `/proc/stat` have 10 ms.
pub(super) const SHORTEST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::{Memory, Times, memory, times};

    #[test]
    fn proc_is_read() {
        let stat = "cpu  10 1 5 80 4 1 2 3 9 9\ncpu0 1 2\n";
        let wanted = Times { busy: 22, all: 106 };
        assert_eq!(times(stat).expect("read"), wanted);
        let text = "MemTotal:       24000000 kB\nMemFree:  1000 kB\nMemFreed: 7 kB\n";
        let wanted = Memory {
            total: 24_576_000_000,
            free: 1_024_000,
        };
        assert_eq!(memory(text, "MemFree").expect("read"), wanted);
        let scarcer = wanted.within(12_000, 11_000);
        assert_eq!((scarcer.total, scarcer.free), (12_000, 1_000));
        assert_eq!(wanted.within(u64::MAX, 5), wanted);
        for wrong in ["", "cpu", "cpu 1 2 3\n", "cpuX 1 2 3 4 5"] {
            assert!(
                times(wrong).is_err() && memory(wrong, "MemFree").is_err(),
                "{wrong}"
            );
        }
    }
}
