//! The proxy's threads for offline callers, in a control group of their own that yields the processors.
//!
//! The group is beside all pods, not below the proxy's group: what is below a group that is busy has its weight, however
//! little it wants itself. Only version 1 lets the threads of one process be in different groups everywhere; with version 2
//! they stay in the proxy's group, where their nice value holds them back against other threads of the proxy only.

mod proc;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{ControlGroup, Mounts, Version};
use crate::state;

/// How the proxy names these threads.
const NAME: &str = "offline-";
/// The file in the state folder that names the group while it exists.
const FILE: &str = "threads";
/// Longest path that is read from it, in bytes (`PATH_MAX`).
const MAX_FILE: u64 = 4_096;
/// Most processes and groups that an error names.
const MAX_NAMED: usize = 5;

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
        let Some(said) = state::read(&path, MAX_FILE)? else {
            return Ok(None);
        };
        let said = String::from_utf8_lossy(&said);
        // A disk that was full took nothing of it, and the group is made after that.
        if said.trim().is_empty() {
            return Ok(None);
        }
        let group = ControlGroup::new(said.trim()).map_err(|error| {
            state::wrong(
                &path,
                format!(
                    "{error}: move the file away to go on; threads of the proxy may still be in the group that it named"
                ),
            )
        })?;
        let mut left = OfflineThreads::new(mounts, group, state)?;
        left.is_made = true;
        Ok(Some(left))
    }

    /// Whether there is such a group now.
    pub fn is_there(&self) -> bool {
        self.folder().exists()
    }

    /// The group.
    pub fn group(&self) -> &ControlGroup {
        &self.group
    }

    /// Puts those of `threads` (by their kernel IDs) into the group that are `process`'s for offline callers, and not its
    /// main thread. Returns how many were not there before. The group is made for the first.
    ///
    /// # Errors
    /// When the group cannot be made, or the kernel refuses a thread.
    pub fn place(&mut self, threads: &[i32], process: i32) -> io::Result<usize> {
        let mut missing: BTreeSet<i32> = threads.iter().copied().filter(|id| *id > 0).collect();
        if self.is_made {
            match self.there()? {
                Some(there) => missing.retain(|id| !there.contains(id)),
                // Another program has removed it.
                None => self.is_made = false,
            }
        }
        missing.retain(|id| is_for_offline_callers(*id, process));
        if missing.is_empty() {
            return Ok(0);
        }
        self.make()?;
        let mut placed = 0;
        for id in missing {
            match self.write("tasks", &id.to_string()) {
                Ok(()) => placed += 1,
                // It has ended.
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => return Err(explained(&self.folder(), &error)),
            }
        }
        Ok(placed)
    }

    /// Puts all threads back into the groups of their processes, and removes the group. Returns how many were put back.
    ///
    /// # Errors
    /// When the kernel refuses, or another program has put something into the group; what was put back so far stays so.
    pub fn restore(&mut self) -> io::Result<usize> {
        if !self.is_made {
            return Ok(0);
        }
        let folder = self.folder();
        let mut back = 0;
        for id in self.there()?.unwrap_or_default() {
            // A thread without a process has ended.
            let Some(home) = proc::process_of(id).and_then(proc::cpu_group_of) else {
                continue;
            };
            let home = self.cpu.join(home.trim_start_matches('/'));
            if home == folder {
                // Its whole process was put here by another program.
                continue;
            }
            match write(&home.join("tasks"), &id.to_string()) {
                Ok(()) => back += 1,
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => return Err(explained(&home, &error)),
            }
        }
        match fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.in_the_way(&error));
            }
            _ => {}
        }
        self.is_made = false;
        state::remove(&self.said)?;
        Ok(back)
    }

    /// Why the group cannot be removed, and what to do.
    fn in_the_way(&self, error: &io::Error) -> io::Error {
        let folder = self.folder();
        let there = self.there().ok().flatten().unwrap_or_default();
        let processes: BTreeSet<i32> = there.into_iter().filter_map(proc::process_of).collect();
        let processes = processes.into_iter().map(|id| {
            let name = proc::name(id).unwrap_or_default();
            format!("process {id} ({}): move it to another group", name.trim())
        });
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let groups = groups.map(|entry| format!("the group {}: remove it", entry.path().display()));
        let mut all: Vec<String> = groups.chain(processes).take(MAX_NAMED + 1).collect();
        if all.len() > MAX_NAMED {
            all[MAX_NAMED] = "more".to_owned();
        }
        let what = match all.is_empty() {
            true => error.to_string(),
            false => format!("in it is {}", all.join("; ")),
        };
        let what = format!(
            "the control group {} cannot be removed: {what}",
            folder.display()
        );
        io::Error::new(error.kind(), what)
    }

    fn folder(&self) -> PathBuf {
        self.cpu.join(self.group.as_str())
    }

    /// Writes to a file of the group.
    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.folder().join(file), text)
    }

    /// Makes the group. The state folder names it before it exists.
    fn make(&mut self) -> io::Result<()> {
        if self.is_made {
            return Ok(());
        }
        let folder = self.folder();
        if folder.exists() {
            let error = io::Error::new(
                io::ErrorKind::AlreadyExists,
                "another program has a group of this name: set another by qos.proxy_group",
            );
            return Err(explained(&folder, &error));
        }
        state::replace(&self.said, self.group.as_str().as_bytes())?;
        self.is_made = true;
        let made = fs::create_dir(&folder).and_then(|()| self.write("cpu.idle", "1"));
        let Err(error) = made else { return Ok(()) };
        // Without `cpu.idle` (before Linux 5.15) the threads stay where they are.
        let error = explained(&folder, &error);
        match self.restore() {
            Ok(_) => Err(error),
            Err(back) => Err(io::Error::new(back.kind(), format!("{error}; {back}"))),
        }
    }

    /// The threads that are in the group; `None` if there is no group.
    fn there(&self) -> io::Result<Option<Vec<i32>>> {
        let file = self.folder().join("tasks");
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| explained(&file, &error))?,
        };
        let ids = text.lines().filter_map(|line| line.parse().ok());
        Ok(Some(ids.collect()))
    }
}

/// `ESRCH`: no such thread.
const ESRCH: i32 = 3;

/// Writes to a file of the kernel, and never makes one.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// An error about a file or a group, with its path.
fn explained(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether a thread is `process`'s for offline callers. The proxy says so, and may say anything. A main thread is never
/// taken: its group is that of the process, so that it could not be put back.
fn is_for_offline_callers(id: i32, process: i32) -> bool {
    let is_of_process = id != process && proc::process_of(id) == Some(process);
    is_of_process && proc::name(id).is_some_and(|name| name.starts_with(NAME))
}
