//! A clock that never goes back behind what was once certain.
//!
//! A machine without a battery starts in 1970, and a clock can be set back. Both would make expired
//! certificates valid again. The *time floor* is the latest time that was ever certain: it is kept on
//! disk, and the clock never shows less.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

#[cfg(test)]
mod tests;

/// Longest file that can hold a floor, in bytes.
const MAX_FLOOR_FILE: u64 = 64;
/// How far ahead of the floor another's word may take it, in seconds: a year and a day.
const MAX_LEAP_S: u64 = 366 * 86_400;

/// The time by which certificates are judged, in seconds since 1970.
pub struct Clock {
    floor: AtomicU64,
    system: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Clock {
    /// The system's clock, never below `floor`.
    pub fn new(floor: u64) -> Self {
        Clock::with(floor, || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            // A clock before 1970 is as wrong as one at 1970.
            since.map_or(0, |since| since.as_secs())
        })
    }

    /// Another clock, never below `floor`: for simulations and tests.
    pub fn with(floor: u64, system: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Clock {
            floor: AtomicU64::new(floor),
            system: Box::new(system),
        }
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        (self.system)().max(self.floor())
    }

    /// The time floor, in seconds since 1970.
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Whether the system's clock shows less than what was once certain: it is wrong, and time stands
    /// still until it is right again.
    pub fn is_degraded(&self) -> bool {
        (self.system)() < self.floor()
    }

    /// It is certainly as late as this; a time more than a year ahead of the floor is believed only of
    /// a clock that has no floor yet. Returns whether the floor rose.
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

/// Where the time floor outlives the process.
#[derive(Debug)]
pub struct FloorFile {
    path: PathBuf,
}

impl FloorFile {
    /// A floor that is kept in this file.
    pub fn new(path: PathBuf) -> Self {
        FloorFile { path }
    }

    /// The floor; 0 when there is no file yet.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else: a floor that is lost is worth a word.
    pub fn read(&self) -> io::Result<u64> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(MAX_FLOOR_FILE).read_to_string(&mut text)?;
        let floor = text.trim().parse();
        floor.map_err(|_| {
            let what = "it holds no time in seconds since 1970: remove it if the clock is right";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    /// Replaces the floor: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, floor: u64) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        writeln!(file, "{floor}")?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}
