//! Control groups of version 1 and 2 behind one interface: [`Groups`] reads and writes a [`Knob`] of a group, whatever
//! the kernel calls its files (`cgroups(7)`, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/).

mod below;
mod counters;
mod disks;
mod io_weight;
mod mounts;
pub(crate) mod pressure;
mod processes;
mod system;
#[cfg(test)]
pub(crate) mod testing;
mod value;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use heddle_model::ControlGroup;
use serde::{Deserialize, Serialize};

pub use below::Below;
pub use counters::CpuFiles;
pub use mounts::{Mounts, Version};
pub use system::System;
pub use value::Value;

/// A setting of a group, under one name for both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Share of the processors: `cpu.idle` with `cpu.shares` (v1) or `cpu.weight` (v2). [`Value::Idle`] or an amount.
    /// The kernel forgets the weight of a group that becomes idle, so the two are one setting.
    CpuShare,
    /// Processor time in microseconds for each period: `cpu.cfs_quota_us`, `cpu.max`.
    CpuQuota,
    /// Microseconds of quota that may be saved up: `cpu.cfs_burst_us`, `cpu.max.burst`.
    CpuBurst,
    /// Bytes of memory beyond which the group's own memory is reclaimed: `memory.limit_in_bytes`, `memory.high`.
    Memory,
    /// Share of a disk, for every disk without a weight of its own in the group: `blkio.weight` (v1, 10 to 1000, before
    /// Linux 5.0), `io.weight` (v2, 1 to 10000).
    IoWeight,
    /// The same where a disk's scheduler is bfq: `blkio.bfq.weight`, `io.bfq.weight` (1 to 1000;
    /// Documentation/block/bfq-iosched.rst). Another file, and so another setting: which one counts depends on the disk.
    BfqWeight,
}

impl Knob {
    /// As in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Knob::CpuShare => "cpu-share",
            Knob::CpuQuota => "cpu-quota",
            Knob::CpuBurst => "cpu-burst",
            Knob::Memory => "memory",
            Knob::IoWeight => "io-weight",
            Knob::BfqWeight => "bfq-weight",
        }
    }

    /// Unit of its amounts, as in output; empty for a weight.
    fn unit(self) -> &'static str {
        match self {
            Knob::CpuQuota | Knob::CpuBurst => "us",
            Knob::Memory => "B",
            Knob::CpuShare | Knob::IoWeight | Knob::BfqWeight => "",
        }
    }

    /// A value of it, with its unit.
    pub fn shown(self, value: Value) -> String {
        match value {
            Value::Amount(amount) => format!("{amount}{}", self.unit()),
            Value::Idle | Value::Max => value.to_string(),
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Counters of a group with a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Processor time used, in microseconds.
    pub used_us: u64,
    /// Periods in which the group was throttled.
    pub throttled: u64,
    /// Time for which its threads were throttled, in microseconds.
    pub throttled_us: u64,
}

/// Reads and writes settings of groups.
pub trait Groups {
    /// The value now.
    ///
    /// # Errors
    /// There is no such group (`NotFound`), this kernel has no such knob (`Unsupported`), or its text is not understood
    /// (`InvalidData`).
    fn read(&self, group: &ControlGroup, knob: Knob) -> io::Result<Value>;

    /// Writes a value.
    ///
    /// # Errors
    /// As for reading, and when the kernel refuses it, such as a quota above that of the parent.
    fn write(&mut self, group: &ControlGroup, knob: Knob, value: Value) -> io::Result<()>;

    /// What tells a group from a later one of the same path: the inode of its folder.
    ///
    /// # Errors
    /// When there is no such group.
    fn inode(&self, group: &ControlGroup, knob: Knob) -> io::Result<u64>;

    /// The weight that a group gets when it stops being idle, whatever it was before.
    fn weight_after_idle(&self) -> Value;

    /// Whether nothing is written, only said.
    fn is_rehearsal(&self) -> bool {
        false
    }
}

/// A period of a quota, in microseconds, where none was read: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// The folders below `at`, by name.
pub(crate) fn folders(at: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(at)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            all.push((
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            ));
        }
    }
    all.sort();
    Ok(all)
}
