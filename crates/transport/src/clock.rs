//! A clock that never goes back below the time floor.
//!
//! A machine without a battery starts in 1970, and a clock can be set back. Both would make expired certificates valid
//! again. The *time floor* is the latest time that has certainly passed: it is kept on disk, and the clock never shows
//! an earlier time.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

#[cfg(test)]
mod tests;

/// Limit on the size of a floor file, in bytes.
const MAX_FLOOR_FILE: u64 = 64;
/// Limit on one rise of the floor, in seconds, by the word of a peer: a year and a day.
const MAX_LEAP_S: u64 = 366 * 86_400;

/// The clock that decides whether a certificate is valid, in seconds since 1970.
pub struct Clock {
    floor: AtomicU64,
    system: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Clock {
    /// The system clock, but never below `floor` (seconds since 1970).
    pub fn new(floor: u64) -> Self {
        Clock::with(floor, || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            // A system time before 1970 counts as 1970: both are wrong.
            since.map_or(0, |since| since.as_secs())
        })
    }

    /// Another source of time, never below `floor`: for simulations and tests.
    pub fn with(floor: u64, system: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Clock {
            floor: AtomicU64::new(floor),
            system: Box::new(system),
        }
    }

    /// The current time, in seconds since 1970.
    pub fn now(&self) -> u64 {
        (self.system)().max(self.floor())
    }

    /// The time floor, in seconds since 1970.
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Whether the system clock is below the floor: it is wrong, and [`Clock::now`] stands still until it is set right.
    pub fn is_degraded(&self) -> bool {
        (self.system)() < self.floor()
    }

    /// Raises the floor to `certain`, a time that has certainly passed. A rise of more than 366 days is ignored, unless
    /// the floor is still 0. Returns whether the floor rose.
    pub fn raise(&self, certain: u64) -> bool {
        let floor = self.floor();
        if floor > 0 && certain > floor.saturating_add(MAX_LEAP_S) {
            return false;
        }
        self.floor.fetch_max(certain, Ordering::Relaxed) < certain
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            self.now(),
        )))
    }
}

/// Keeps the time floor across restarts of the process.
#[derive(Debug)]
pub struct FloorFile {
    path: PathBuf,
}

impl FloorFile {
    /// Uses this file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        FloorFile { path }
    }

    /// The saved floor, in seconds since 1970; 0 when there is no file yet.
    ///
    /// # Errors
    /// When the file cannot be read, is no regular file, or is malformed: the loss of a floor must be reported, not
    /// ignored.
    pub fn read(&self) -> io::Result<u64> {
        // The open of a FIFO would otherwise last until a process writes to it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(0),
            // A link, and a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(no_file()),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(no_file());
        }
        let mut text = String::new();
        file.take(MAX_FLOOR_FILE).read_to_string(&mut text)?;
        let floor = text.trim().parse();
        floor.map_err(|_| {
            let what = "it holds no time in seconds since 1970: remove it if the clock is right";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    /// Replaces the floor atomically: a crash leaves the old or the new value.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, floor: u64) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        // A crash leaves one behind. It is not opened: the open of a FIFO would last until a process reads from it.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        writeln!(file, "{floor}")?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

fn no_file() -> io::Error {
    let what = "it is no plain file: remove it if the clock is right";
    io::Error::new(io::ErrorKind::InvalidData, what)
}
