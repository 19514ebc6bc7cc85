//! When what connections held is no longer needed, it is given back to the machine.
//!
//! All of it was freed when they ended; but what a heap has freed in its middle it keeps for its next use, up to all that
//! there ever was. [`Ebb`] says when so much is kept that it is worth asking for, which makes threads that allocate at
//! that moment wait for some milliseconds.
//!
//! It compares what the process has grown by with what explains it. The first includes floods that came and went between
//! two looks; the second says that one has gone whose memory was there at the last look as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// What a connection takes, about, in bytes.
const CONNECTION_BYTES: usize = 4 * 1024;
/// So much has to be kept, in bytes …
const ENOUGH: usize = 4 * 1024 * 1024;
/// … for so long, after which Workers have let go of what they keep for a while.
const SETTLED: Duration = Duration::from_secs(5);

/// Watches the memory of the process from one look to the next. It has no clock.
#[derive(Debug, Default)]
pub(super) struct Ebb {
    /// What was resident, and what connections held, when there was the least of the one beside the other since memory
    /// was given back.
    base: Option<MemoryUse>,
    /// For how long too much has been kept.
    over: Duration,
}

/// What there is, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryUse {
    /// Memory of the process that is no file's.
    pub(super) resident: usize,
    /// What connections hold, about.
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
    /// Takes in a look. Whether memory is to be given back now.
    pub(super) fn observe(&mut self, elapsed: Duration, now: MemoryUse) -> bool {
        let Some(base) = self.base else {
            self.base = Some(now);
            return false;
        };
        // Both sides have what the other would take away.
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
        // What is resident when it has been given back is seen at the next look.
        *self = Ebb::default();
        true
    }
}

/// Reads how much of the process's memory is resident and no file's.
#[derive(Debug)]
pub(super) struct Resident(Option<File>);

impl Resident {
    pub(super) fn open() -> Self {
        Resident(File::open("/proc/self/status").ok())
    }

    /// In bytes, without pages of files; `None` where it is not known.
    pub(super) fn read(&self) -> Option<usize> {
        let mut text = [0; 4096];
        let read = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        // In KiB (proc_pid_status(5)). The size of a page, which shorter files count in, is not asked for: that reads
        // the program's own headers, which an instrumented program does not survive.
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib = line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?;
        Some(kib.saturating_mul(1024))
    }
}

/// Gives what the heap has freed back to the machine.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "the C library's heap has no other way")]
        // SAFETY: it takes no pointer, keeps nothing of ours, and locks what it works on (malloc_trim(3): MT-safe).
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests;
