//! Returns freed heap memory to the machine when connections no longer need it.
//!
//! Ended connections free all of their memory, but the heap keeps what is freed in its middle for reuse, up to its
//! highest use ever. [`Ebb`] decides when so much is kept that returning it is worthwhile: threads that allocate at
//! that moment wait some milliseconds.
//!
//! Two differences are compared: the growth of the process since the base reading, and the growth that connections
//! explain. The first shows floods of connections that came and went between two readings; the second shows that
//! connections have ended whose memory was already there at the base reading.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Approximate size of a connection, in bytes.
const CONNECTION_BYTES: usize = 4 * 1024;
/// Memory is returned when at least this many unexplained bytes are kept …
const ENOUGH: usize = 4 * 1024 * 1024;
/// … for this long. By then, Workers have released what they keep for a while.
const SETTLED: Duration = Duration::from_secs(5);

/// Watches the memory of the process from one reading to the next. It has no clock.
#[derive(Debug, Default)]
pub(super) struct Ebb {
    /// The reading with the least resident memory relative to the needed memory, since memory was last returned.
    base: Option<MemoryUse>,
    /// How long too much has been kept.
    over: Duration,
}

/// One reading of the memory of the process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryUse {
    /// Resident anonymous memory of the process.
    pub(super) resident: usize,
    /// Approximate memory that connections hold.
    pub(super) needed: usize,
}

impl MemoryUse {
    pub(super) fn new(resident: usize, connections: usize, blocks: usize) -> Self {
        let needed = connections.saturating_mul(CONNECTION_BYTES);
        MemoryUse {
            resident,
            needed: needed.saturating_add(blocks),
        }
    }
}

impl Ebb {
    /// Takes in a reading. Returns whether memory is to be returned now.
    pub(super) fn observe(&mut self, elapsed: Duration, now: MemoryUse) -> bool {
        let Some(base) = self.base else {
            self.base = Some(now);
            return false;
        };
        // Each side of the difference is increased by what the other would subtract.
        let grown = now.resident.saturating_add(base.needed);
        let explained = base.resident.saturating_add(now.needed);
        if grown < explained {
            self.base = Some(now);
        }
        if grown.saturating_sub(explained) < ENOUGH {
            self.over = Duration::ZERO;
            return false;
        }
        self.over = self.over.saturating_add(elapsed);
        if self.over < SETTLED {
            return false;
        }
        // The next reading shows what is resident after memory was returned.
        *self = Ebb::default();
        true
    }
}

/// Reads the resident anonymous memory of the process.
#[derive(Debug)]
pub(super) struct Resident(Option<File>);

impl Resident {
    pub(super) fn open() -> Self {
        Resident(File::open("/proc/self/status").ok())
    }

    /// In bytes; `None` if it is not known.
    pub(super) fn read(&self) -> Option<usize> {
        let mut text = [0; 4096];
        let read = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        // In KiB (proc_pid_status(5)). The shorter files count in pages, but asking for the page size reads the
        // program's own headers, which crashes an instrumented program.
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib = line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?;
        Some(kib.saturating_mul(1024))
    }
}

#[cfg(test)]
mod tests;
