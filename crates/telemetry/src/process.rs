//! Resource usage of the process, read from `/proc/self`, under the metric names that Prometheus'
//! client libraries use.

use std::fmt;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use rustix::fs::{RawDir, SeekFrom, seek};
use rustix::process::{Resource, getrlimit};

use crate::exposition::{DescriptorEncoder, counter, gauge};
use crate::families::process::{CPU, MAX_FDS, OPEN_FDS, RESIDENT_MEMORY, START_TIME, THREADS};

/// Limit for reading a file of `/proc/self`, in bytes: all needed fields are within it.
const MAX_FILE: usize = 8 * 1024;

/// The open files of `/proc/self`. They are opened once, so that they can still be read when the process has run out
/// of descriptors, which is when the numbers are needed most.
#[derive(Debug)]
pub struct Probe {
    stat: Option<File>,
    status: Option<File>,
    fds: Option<File>,
    /// Computed once: a change of the wall clock must not look like a restart of the process.
    started_ms: Option<u64>,
}

/// Current resource usage. `None` for a value that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time of all threads, in microseconds.
    pub cpu_us: Option<u64>,
    /// When the process started, in milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Number of open descriptors.
    pub open_fds: Option<u64>,
    /// Soft limit of open descriptors (`RLIMIT_NOFILE`); `None` also when there is no limit.
    pub max_fds: Option<u64>,
}

impl Probe {
    /// Opens those files that exist. Holds up to three descriptors.
    pub fn open() -> Self {
        let open = |path| File::open(path).ok();
        let stat = open("/proc/self/stat");
        // The kernel gives the start in time since boot, a clock that also runs while the machine is suspended.
        let uptime = open("/proc/uptime").as_ref().and_then(text);
        let booted_ms = uptime.and_then(|uptime| since_1970_ms().checked_sub(uptime_ms(&uptime)?));
        let after_ms = stat.as_ref().and_then(text).as_deref().and_then(started_ms);
        Probe {
            started_ms: booted_ms
                .zip(after_ms)
                .map(|(booted, after)| booted + after),
            stat,
            status: open("/proc/self/status"),
            fds: open("/proc/self/fd"),
        }
    }

    /// Reads the current usage. Takes a few system calls, so never call it on a data thread.
    pub fn read(&self) -> Usage {
        let status = self.status.as_ref().and_then(text);
        let field = |name| field(status.as_deref()?, name);
        Usage {
            cpu_us: self
                .stat
                .as_ref()
                .and_then(text)
                .as_deref()
                .and_then(cpu_us),
            started_ms: self.started_ms,
            resident_bytes: field("VmRSS:").map(|kib| kib * 1024),
            threads: field("Threads:"),
            open_fds: self.fds.as_ref().and_then(count),
            max_fds: getrlimit(Resource::Nofile).current,
        }
    }
}

impl Usage {
    /// Writes the known values as `process_cpu_seconds_total` and so on.
    ///
    /// # Errors
    /// When the output of the encoder fails.
    pub fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(us) = self.cpu_us {
            counter(encoder, &CPU, us as f64 / 1e6)?;
        }
        if let Some(ms) = self.started_ms {
            gauge(encoder, &START_TIME, ms as f64 / 1e3)?;
        }
        for (family, value) in [
            (&RESIDENT_MEMORY, self.resident_bytes),
            (&THREADS, self.threads),
            (&OPEN_FDS, self.open_fds),
            (&MAX_FDS, self.max_fds),
        ] {
            if let Some(value) = value {
                gauge(encoder, family, value)?;
            }
        }
        Ok(())
    }
}

/// The current text of a file, up to [`MAX_FILE`]. The kernel generates it anew when it is read from offset 0.
fn text(file: &File) -> Option<String> {
    let mut bytes = vec![0; MAX_FILE];
    let mut length = 0;
    while let n @ 1.. = file.read_at(&mut bytes[length..], length as u64).ok()? {
        length += n;
    }
    bytes.truncate(length);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of entries of a folder, without `.` and `..`.
fn count(folder: &File) -> Option<u64> {
    seek(folder, SeekFrom::Start(0)).ok()?;
    let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        count += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
    }
    Some(count)
}

fn since_1970_ms() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The first field of `proc_uptime(5)`, seconds with two decimals, as milliseconds.
fn uptime_ms(uptime: &str) -> Option<u64> {
    let (seconds, hundredths) = uptime.split_ascii_whitespace().next()?.split_once('.')?;
    let (seconds, hundredths): (u64, u8) = (seconds.parse().ok()?, hundredths.parse().ok()?);
    let ms = seconds.checked_mul(1_000)?;
    ms.checked_add(u64::from(hundredths) * 10)
}

/// Fields 14 and 15 of `proc(5)` stat (user and system time), in microseconds.
fn cpu_us(stat: &str) -> Option<u64> {
    Some((ticks(stat, 14)? + ticks(stat, 15)?) * 10_000)
}

/// Field 22 of `proc(5)` stat (start time), in milliseconds after boot.
fn started_ms(stat: &str) -> Option<u64> {
    Some(ticks(stat, 22)? * 10)
}

/// A field in ticks of 10 ms (`USER_HZ` is 100 for user space on every Linux).
/// Fields are counted from the last `)`, because the command name, field 2, may contain spaces and parentheses.
fn ticks(stat: &str, field: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field - 3)?.parse().ok()
}

fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_command_name_cannot_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 25 5 0 0 20 0 1 0 99 1 1";
        assert_eq!(cpu_us(stat), Some(300_000));
        assert_eq!(started_ms(stat), Some(990));
        assert_eq!((cpu_us("nothing"), started_ms("nothing")), (None, None));
    }

    #[test]
    fn the_time_since_the_machine_started_is_read() {
        assert_eq!(uptime_ms("350735.47 234388.90\n"), Some(350_735_470));
        for nonsense in ["", "1", "1.x", "1.999", "18446744073709551615.99 1"] {
            assert_eq!(uptime_ms(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn this_process_has_memory_a_thread_and_descriptors() {
        let probe = Probe::open();
        let usage = probe.read();
        assert!(usage.resident_bytes > Some(100_000), "{usage:?}");
        assert!(
            usage.threads >= Some(1) && usage.open_fds >= Some(6),
            "{usage:?}"
        );
        assert!(usage.max_fds >= usage.open_fds, "{usage:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after");
        let age_s = now
            .as_secs()
            .checked_sub(usage.started_ms.expect("a start") / 1_000);
        assert!(age_s < Some(3_600), "{usage:?}");
        // A second read shows the new number, not the old one.
        let before = usage.open_fds.unwrap_or_default();
        let more: Vec<File> = (0..500)
            .map_while(|_| File::open("/dev/null").ok())
            .collect();
        assert!(more.len() > 400, "room for a test");
        assert!(probe.read().open_fds > Some(before + 300));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let usage = Usage {
            threads: Some(3),
            ..Usage::default()
        };
        let out = crate::exposition::render(move |encoder| usage.encode(encoder));
        let help = "# HELP process_threads Threads.\n# TYPE process_threads gauge\n";
        assert_eq!(out, format!("{help}process_threads 3\n# EOF\n"));
    }
}
