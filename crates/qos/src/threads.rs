//! The proxy's threads for offline callers, in a control group of their own that yields the processors.
//!
//! The group is beside all pods, not below the proxy's group: what is below a group that is busy has its weight, however
//! little it wants itself. Only version 1 lets the threads of one process be in different groups everywhere; with version 2
//! they stay in the proxy's group, where their nice value holds them back against other threads of the proxy only.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{ControlGroup, Mounts, Version};

#[cfg(test)]
mod tests;

/// How the proxy names these threads.
const NAME: &str = "offline-";
/// The file in the state folder that names the group while it exists.
const FILE: &str = "threads";

/// A group for the threads of proxies that work for offline callers.
#[derive(Debug)]
pub struct OfflineThreads {
    /// Where the hierarchy with the `cpu` controller is mounted.
    cpu: PathBuf,
    group: ControlGroup,
    /// The file that names the group.
    said: PathBuf,
    is_made: bool,
}

impl OfflineThreads {
    /// Will use this group, which must not exist yet. `state` is the folder of the journal.
    ///
    /// # Errors
    /// `Unsupported` with version 2.
    pub fn new(mounts: &Mounts, group: ControlGroup, state: &Path) -> io::Result<Self> {
        let cpu = mounts.cpu_of(Version::V1).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "with control groups of version 2 the threads of a process cannot be in different groups",
            )
        })?;
        Ok(OfflineThreads {
            cpu: cpu.to_owned(),
            group,
            said: state.join(FILE),
            is_made: false,
        })
    }

    /// What an earlier process has left, if it has left anything.
    ///
    /// # Errors
    /// When the state folder cannot be read, or names no group.
    pub fn left(mounts: &Mounts, state: &Path) -> io::Result<Option<Self>> {
        let path = state.join(FILE);
        let said = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            said => said?,
        };
        let group = ControlGroup::new(said.trim()).map_err(|error| {
            let what = format!("{}: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        let mut left = OfflineThreads::new(mounts, group, state)?;
        left.is_made = true;
        Ok(Some(left))
    }

    /// Puts those of `threads` (by their kernel IDs) into the group that are a proxy's for offline callers. Returns how
    /// many were not there before. The group is made for the first.
    ///
    /// # Errors
    /// When the group cannot be made, or the kernel refuses a thread.
    pub fn place(&mut self, threads: &[i32]) -> io::Result<usize> {
        let mut missing: BTreeSet<i32> = threads.iter().copied().filter(|id| *id > 0).collect();
        if self.is_made {
            for there in self.there()? {
                missing.remove(&there);
            }
        }
        missing.retain(|id| name(*id).is_some_and(|name| name.starts_with(NAME)));
        if missing.is_empty() {
            return Ok(0);
        }
        self.make()?;
        let mut placed = 0;
        for id in missing {
            match write(&self.folder().join("tasks"), &id.to_string()) {
                Ok(()) => placed += 1,
                // It has ended.
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(placed)
    }

    /// Puts all threads back into the groups of their processes, and removes the group.
    ///
    /// # Errors
    /// When the kernel refuses; what was put back so far stays so.
    pub fn restore(&mut self) -> io::Result<()> {
        if !self.is_made {
            return Ok(());
        }
        for id in self.there()? {
            // A thread without a process has ended.
            let Some(home) = self.home(id) else { continue };
            match write(&home.join("tasks"), &id.to_string()) {
                Err(error) if error.raw_os_error() != Some(ESRCH) => return Err(error),
                _ => {}
            }
        }
        match fs::remove_dir(self.folder()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_file(&self.said)?;
        self.is_made = false;
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.cpu.join(self.group.as_str())
    }

    /// Makes the group. The state folder names it before it exists.
    fn make(&mut self) -> io::Result<()> {
        if self.is_made {
            return Ok(());
        }
        let folder = self.folder();
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        };
        if folder.exists() {
            return Err(explain(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "another program has a group of this name: set another by qos.proxy_group",
            )));
        }
        fs::write(&self.said, self.group.as_str())?;
        self.is_made = true;
        let made = fs::create_dir(&folder).and_then(|()| write(&folder.join("cpu.idle"), "1"));
        let Err(error) = made else { return Ok(()) };
        // Without `cpu.idle` (before Linux 5.15) the threads stay where they are.
        let error = explain(error);
        match self.restore() {
            Ok(()) => Err(error),
            Err(back) => Err(io::Error::new(back.kind(), format!("{error}; {back}"))),
        }
    }

    /// The threads that are in the group.
    fn there(&self) -> io::Result<Vec<i32>> {
        let text = match fs::read_to_string(self.folder().join("tasks")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// The group of a thread's process, as a folder.
    fn home(&self, id: i32) -> Option<PathBuf> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let process = field(&status, "Tgid")?;
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let path = cpu_group(&groups)?;
        Some(self.cpu.join(path.trim_start_matches('/')))
    }
}

/// `ESRCH`: no such thread.
const ESRCH: i32 = 3;

/// Writes to a file of the kernel, and never makes one.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// A thread's name.
fn name(id: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{id}/comm")).ok()
}

/// A field of `/proc/PID/status` (`proc_pid_status(5)`).
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

/// The path of a process's group in the hierarchy with the `cpu` controller, from `/proc/PID/cgroup` (`cgroups(7)`).
fn cpu_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let has_cpu = controllers.split(',').any(|one| one == "cpu");
        has_cpu.then_some(path)
    })
}
