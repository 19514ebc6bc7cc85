//! The groups of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::counters::{MAX_FILE, text};
use super::mounts::{Hierarchy, Mounts, Version};
use super::value::number;
use super::{ControlGroup, Groups, Knob, PERIOD_US, Value, io_weight};

#[cfg(test)]
mod tests;

/// The groups of this machine, in the hierarchies that are mounted.
#[derive(Debug)]
pub struct System {
    mounts: Mounts,
    /// In a rehearsal: what would be there. Nothing is written then.
    rehearsed: Option<BTreeMap<(ControlGroup, Knob), Value>>,
}

/// Limits of this value and above mean "no limit" in version 1, which rounds the largest number down to pages.
const NO_LIMIT: u64 = 1 << 62;

impl System {
    /// Uses these hierarchies.
    pub fn new(mounts: Mounts) -> Self {
        System {
            mounts,
            rehearsed: None,
        }
    }

    /// Uses these hierarchies, and writes nothing: it remembers what would be there.
    pub fn rehearsing(mounts: Mounts) -> Self {
        System {
            mounts,
            rehearsed: Some(BTreeMap::new()),
        }
    }

    /// Version of the hierarchy with the `cpu` controller.
    pub fn cpu_version(&self) -> Option<Version> {
        self.mounts.cpu_version()
    }

    /// Period of the group's quota, in microseconds.
    ///
    /// # Errors
    /// There is no such group, or its files are not understood.
    pub fn cpu_period_us(&self, group: &ControlGroup) -> io::Result<u64> {
        let cpu = self.cpu()?;
        match cpu.version {
            Version::V1 => number(&self.text(cpu, group, "cpu.cfs_period_us")?),
            Version::V2 => Ok(period(&self.text(cpu, group, "cpu.max")?)),
        }
    }

    /// Memory of a group and all below it: the most that it may have, and what it has, in bytes, file pages included.
    ///
    /// # Errors
    /// There is no such group, or its files are not understood.
    pub fn memory(&self, group: &ControlGroup) -> io::Result<(Value, u64)> {
        let mount = self.mount(Knob::Memory)?;
        let text = |file: &str| self.text(mount, group, file);
        Ok(match mount.version {
            Version::V1 => (
                limit_v1(&text("memory.limit_in_bytes")?)?,
                number(&text("memory.usage_in_bytes")?)?,
            ),
            Version::V2 => (
                limited(&text("memory.max")?)?,
                number(&text("memory.current")?)?,
            ),
        })
    }

    /// What tells a group from a later one of the same path, in the hierarchy of the processors.
    ///
    /// # Errors
    /// There is no such group.
    pub fn inode_of(&self, group: &ControlGroup) -> io::Result<u64> {
        self.inode(group, Knob::CpuShare)
    }

    /// The network namespace of a group's processes: that of the first one, in the group or in one below it. None if
    /// there is no process.
    ///
    /// # Errors
    /// There is no such group, or the process may not be looked at.
    pub fn network_of(&self, group: &ControlGroup) -> io::Result<Option<fs::File>> {
        for pid in self.processes(group)? {
            let namespace = fs::File::open(format!("/proc/{pid}/ns/net"));
            // A process that has ended meanwhile may have given its number to another one.
            match namespace {
                Ok(namespace) if self.processes(group)?.contains(&pid) => {
                    return Ok(Some(namespace));
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        for below in self.children(group)? {
            match self.network_of(&below) {
                Ok(Some(found)) => return Ok(Some(found)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn processes(&self, group: &ControlGroup) -> io::Result<Vec<u32>> {
        let processes = self.whole_text(self.cpu()?, group, "cgroup.procs")?;
        // 0 is a process of another namespace of processes.
        let numbers = processes.lines().filter_map(|line| line.parse().ok());
        Ok(numbers.filter(|pid| *pid > 0).collect())
    }

    pub(super) fn cpu(&self) -> io::Result<&Hierarchy> {
        let missing = || io::Error::other("no hierarchy has the cpu controller");
        self.mounts.cpu.as_ref().ok_or_else(missing)
    }

    pub(super) fn cpuacct(&self) -> io::Result<&Hierarchy> {
        let missing = || io::Error::other("no hierarchy has the cpuacct controller");
        self.mounts.cpuacct.as_ref().ok_or_else(missing)
    }

    pub(super) fn memory_mount(&self) -> io::Result<&Hierarchy> {
        let missing = || io::Error::other("no hierarchy has the memory controller");
        self.mounts.memory.as_ref().ok_or_else(missing)
    }

    pub(super) fn io(&self) -> io::Result<&Hierarchy> {
        let missing = || {
            let what = "no hierarchy of control groups has the io controller";
            io::Error::new(io::ErrorKind::Unsupported, what)
        };
        self.mounts.io.as_ref().ok_or_else(missing)
    }

    /// The hierarchy that has a knob.
    fn mount(&self, knob: Knob) -> io::Result<&Hierarchy> {
        match knob {
            Knob::CpuShare | Knob::CpuQuota | Knob::CpuBurst => self.cpu(),
            Knob::Memory => self.memory_mount(),
            Knob::IoWeight | Knob::BfqWeight => self.io(),
        }
    }

    /// Opens a file of a group to read it.
    pub(super) fn open(
        &self,
        mount: &Hierarchy,
        group: &ControlGroup,
        file: &str,
    ) -> io::Result<fs::File> {
        self.with_file(mount, group, file, |path| fs::File::open(path))
    }

    /// The text of a file with a single value, which the kernel returns in one piece.
    pub(super) fn text(
        &self,
        mount: &Hierarchy,
        group: &ControlGroup,
        file: &str,
    ) -> io::Result<String> {
        self.with_file(mount, group, file, |path| {
            let mut space = [0; MAX_FILE];
            Ok(text(&fs::File::open(path)?, &mut space)?.to_owned())
        })
    }

    /// The text of a file of any length.
    pub(super) fn whole_text(
        &self,
        mount: &Hierarchy,
        group: &ControlGroup,
        file: &str,
    ) -> io::Result<String> {
        self.with_file(mount, group, file, |path| fs::read_to_string(path))
    }

    pub(super) fn put(
        &self,
        mount: &Hierarchy,
        group: &ControlGroup,
        file: &str,
        text: &str,
    ) -> io::Result<()> {
        self.with_file(mount, group, file, |path| {
            // Never creates a file: what has the path may be no control group.
            let mut file = fs::OpenOptions::new().write(true).open(path)?;
            io::Write::write_all(&mut file, text.as_bytes())
        })
    }

    /// Does something with a file of a group. To an error it adds the path, and it tells a missing file of an existing
    /// group from a missing group.
    fn with_file<T>(
        &self,
        mount: &Hierarchy,
        group: &ControlGroup,
        file: &str,
        act: impl FnOnce(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let folder = mount.at.join(group.as_str());
        let path = folder.join(file);
        act(&path).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::NotFound if folder.is_dir() => io::ErrorKind::Unsupported,
                kind => kind,
            };
            io::Error::new(kind, format!("{}: {error}", path.display()))
        })
    }
}

impl Groups for System {
    fn read(&self, group: &ControlGroup, knob: Knob) -> io::Result<Value> {
        let rehearsed = self.rehearsed.as_ref();
        if let Some(value) = rehearsed.and_then(|all| all.get(&(group.clone(), knob))) {
            return Ok(*value);
        }
        let mount = self.mount(knob)?;
        let text = |file: &str| self.text(mount, group, file);
        match (knob, mount.version) {
            (Knob::CpuShare, version) => {
                // Kernels before 5.15 have no `cpu.idle`.
                match text("cpu.idle") {
                    Ok(idle) if idle.trim() == "1" => return Ok(Value::Idle),
                    Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                Ok(Value::Amount(number(&text(weight_file(version))?)?))
            }
            (Knob::CpuQuota, Version::V1) => signed(&text("cpu.cfs_quota_us")?),
            (Knob::CpuQuota, Version::V2) => {
                limited(text("cpu.max")?.split(' ').next().unwrap_or_default())
            }
            (Knob::CpuBurst, Version::V1) => Ok(Value::Amount(number(&text("cpu.cfs_burst_us")?)?)),
            (Knob::CpuBurst, Version::V2) => Ok(Value::Amount(number(&text("cpu.max.burst")?)?)),
            (Knob::Memory, Version::V1) => limit_v1(&text("memory.limit_in_bytes")?),
            (Knob::Memory, Version::V2) => limited(&text("memory.high")?),
            (Knob::IoWeight | Knob::BfqWeight, version) => {
                io_weight::read(&text(io_weight::file(knob, version))?)
            }
        }
    }

    fn write(&mut self, group: &ControlGroup, knob: Knob, value: Value) -> io::Result<()> {
        if let Some(rehearsed) = &mut self.rehearsed {
            rehearsed.insert((group.clone(), knob), value);
            return Ok(());
        }
        let mount = self.mount(knob)?;
        let put = |file: &str, text: &str| self.put(mount, group, file, text);
        match (knob, mount.version, value) {
            (Knob::CpuShare, _, Value::Idle) => put("cpu.idle", "1"),
            (Knob::CpuShare, version, Value::Amount(weight)) => {
                if self.read(group, knob)? == Value::Idle {
                    put("cpu.idle", "0")?;
                }
                put(weight_file(version), &weight.to_string())
            }
            (Knob::CpuQuota, Version::V1, Value::Max) => put("cpu.cfs_quota_us", "-1"),
            (Knob::CpuQuota, Version::V1, Value::Amount(us)) => {
                put("cpu.cfs_quota_us", &us.to_string())
            }
            // Without a period the kernel keeps the old one.
            (Knob::CpuQuota, Version::V2, Value::Max) => put("cpu.max", "max"),
            (Knob::CpuQuota, Version::V2, Value::Amount(us)) => put("cpu.max", &us.to_string()),
            (Knob::CpuBurst, Version::V1, Value::Amount(us)) => {
                put("cpu.cfs_burst_us", &us.to_string())
            }
            (Knob::CpuBurst, Version::V2, Value::Amount(us)) => {
                put("cpu.max.burst", &us.to_string())
            }
            (Knob::Memory, Version::V1, Value::Max) => put("memory.limit_in_bytes", "-1"),
            (Knob::Memory, Version::V1, Value::Amount(bytes)) => {
                put("memory.limit_in_bytes", &bytes.to_string())
            }
            (Knob::Memory, Version::V2, Value::Max) => put("memory.high", "max"),
            (Knob::Memory, Version::V2, Value::Amount(bytes)) => {
                put("memory.high", &bytes.to_string())
            }
            // With either version a number alone is the weight for all disks.
            (Knob::IoWeight | Knob::BfqWeight, version, Value::Amount(weight)) => {
                put(io_weight::file(knob, version), &weight.to_string())
            }
            (Knob::IoWeight | Knob::BfqWeight, _, Value::Idle | Value::Max)
            | (Knob::CpuShare | Knob::CpuBurst, _, Value::Max)
            | (Knob::CpuQuota | Knob::CpuBurst | Knob::Memory, _, Value::Idle) => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{knob} cannot be {value}"),
                ))
            }
        }
    }

    fn inode(&self, group: &ControlGroup, knob: Knob) -> io::Result<u64> {
        let mount = self.mount(knob)?;
        Ok(fs::metadata(mount.at.join(group.as_str()))?.ino())
    }

    fn weight_after_idle(&self) -> Value {
        match self.mounts.cpu_version() {
            Some(Version::V2) => Value::Amount(100),
            Some(Version::V1) | None => Value::Amount(1_024),
        }
    }

    fn is_rehearsal(&self) -> bool {
        self.rehearsed.is_some()
    }
}

fn weight_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "cpu.shares",
        Version::V2 => "cpu.weight",
    }
}

/// A number, or one that is too large for a limit.
fn limit_v1(text: &str) -> io::Result<Value> {
    Ok(match number(text)? {
        NO_LIMIT.. => Value::Max,
        bytes => Value::Amount(bytes),
    })
}

/// A number, or -1 for no limit.
fn signed(text: &str) -> io::Result<Value> {
    match text.trim() {
        "-1" => Ok(Value::Max),
        text => number(text).map(Value::Amount),
    }
}

/// A number, or `max`.
fn limited(text: &str) -> io::Result<Value> {
    match text.trim() {
        "max" => Ok(Value::Max),
        text => number(text).map(Value::Amount),
    }
}

/// The second number of `cpu.max`.
fn period(text: &str) -> u64 {
    let period = text.split_ascii_whitespace().nth(1);
    period
        .and_then(|period| period.parse().ok())
        .filter(|us| *us > 0)
        .unwrap_or(PERIOD_US)
}
