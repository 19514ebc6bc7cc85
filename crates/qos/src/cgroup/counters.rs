//! Counters of a group, from files that stay open.
//!
//! Turbo reads them ten times a second for each of its groups. To find and open the files each time costs several times
//! what reading them does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::mounts::Version;
use super::{ControlGroup, CpuCounters, System};

/// Most bytes that are read of a file. The kernel's are a few hundred.
pub(super) const MAX_FILE: usize = 4 * 1024;

/// The files with a group's counters.
#[derive(Debug)]
pub struct CpuFiles {
    version: Version,
    /// `cpu.stat`.
    stat: File,
    /// `cpuacct.usage`, which only version 1 has.
    usage: Option<File>,
}

impl System {
    /// Opens the files with a group's counters. They are the files of this group even when another one gets its path.
    ///
    /// # Errors
    /// There is no such group, or the kernel does not count its processor time.
    pub fn cpu_files(&self, group: &ControlGroup) -> io::Result<CpuFiles> {
        let cpu = self.cpu()?;
        Ok(CpuFiles {
            version: cpu.version,
            stat: self.open(cpu, group, "cpu.stat")?,
            usage: match cpu.version {
                Version::V1 => Some(self.open(self.cpuacct()?, group, "cpuacct.usage")?),
                Version::V2 => None,
            },
        })
    }
}

impl CpuFiles {
    /// The counters now. A group without a quota has no throttling.
    ///
    /// # Errors
    /// The group is gone, or its files are not understood.
    pub fn read(&self) -> io::Result<CpuCounters> {
        let mut space = [0; MAX_FILE];
        let stat = text(&self.stat, &mut space)?;
        let field = |name: &str| {
            let mut lines = stat.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            value.parse::<u64>().ok()
        };
        let counters = match self.version {
            Version::V1 => (|| {
                Some(CpuCounters {
                    used_us: 0,
                    throttled: field("nr_throttled")?,
                    throttled_us: field("throttled_time")? / 1_000,
                })
            })(),
            Version::V2 => field("usage_usec").map(|used_us| CpuCounters {
                used_us,
                // Absent at a group without the controller.
                throttled: field("nr_throttled").unwrap_or_default(),
                throttled_us: field("throttled_usec").unwrap_or_default(),
            }),
        };
        let counters = counters.ok_or_else(|| wrong("cpu.stat is not understood"))?;
        let Some(usage) = &self.usage else {
            return Ok(counters);
        };
        let ns = text(usage, &mut space)?.trim().parse::<u64>();
        let ns = ns.map_err(|_| wrong("cpuacct.usage is not understood"))?;
        Ok(CpuCounters {
            used_us: ns / 1_000,
            ..counters
        })
    }
}

/// The text of a file, as much of it as fits.
pub(super) fn text<'s>(file: &File, space: &'s mut [u8]) -> io::Result<&'s str> {
    let read = file.read_at(space, 0)?;
    let bytes = space.get(..read).unwrap_or_default();
    str::from_utf8(bytes).map_err(|_| wrong("a file of a control group is no UTF-8"))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
