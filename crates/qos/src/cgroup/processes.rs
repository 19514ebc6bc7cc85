//! The processes of a group, and signals to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::{ControlGroup, Groups, System, Version};

#[cfg(test)]
mod tests;

/// Most groups below one that are looked at. A container may make its own.
const MAX_GROUPS: usize = 4_096;

impl System {
    /// The processes of a group and of all below it, by their kernel IDs. 0 is one of another namespace of processes.
    ///
    /// # Errors
    /// There is no such group, or it has too many below it.
    pub(crate) fn all_processes(&self, group: &ControlGroup) -> io::Result<BTreeSet<i32>> {
        self.found_processes(group, |_| false)
    }

    /// Whether a process may be in a group or below it: where that cannot be read, one may be. A group that is gone has
    /// none.
    pub(crate) fn may_have_process(&self, group: &ControlGroup) -> bool {
        match self.found_processes(group, |found| !found.is_empty()) {
            Ok(some) => !some.is_empty(),
            Err(_) => !self.is_gone(group),
        }
    }

    fn is_gone(&self, group: &ControlGroup) -> bool {
        let inode = self.inode_of(group);
        inode.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Processes until they are enough.
    fn found_processes(
        &self,
        group: &ControlGroup,
        are_enough: impl Fn(&BTreeSet<i32>) -> bool,
    ) -> io::Result<BTreeSet<i32>> {
        let mut all = self.processes_there(group)?;
        let mut left = self.children(group)?;
        let mut looked_at = 0;
        while !are_enough(&all)
            && let Some(group) = left.pop()
        {
            looked_at += 1;
            if looked_at > MAX_GROUPS {
                return Err(io::Error::other(format!(
                    "more than {MAX_GROUPS} groups are below it"
                )));
            }
            match self.processes_there(&group) {
                Ok(mut there) => all.append(&mut there),
                // The processes of a group of threads (version 2) are in one above.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(_) if self.is_gone(&group) => continue,
                Err(error) => return Err(error),
            }
            match self.children(&group) {
                Ok(mut below) => left.append(&mut below),
                Err(_) if self.is_gone(&group) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn processes_there(&self, group: &ControlGroup) -> io::Result<BTreeSet<i32>> {
        let text = self.whole_text(self.cpu()?, group, "cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Sends a signal to all processes of a group and of all below it, and returns to how many.
    ///
    /// # Errors
    /// There is no such group; it has this process, the machine's first one, or one of another namespace; or the kernel
    /// refuses. Then none, or not all, have got it.
    pub(crate) fn signal(&self, group: &ControlGroup, signal: Signal) -> io::Result<usize> {
        self.refuse_in_rehearsal()?;
        let before = self.all_processes(group)?;
        refuse_foreign(group, &before)?;
        let mut open: BTreeMap<i32, OwnedFd> = BTreeMap::new();
        for id in before {
            let Some(pid) = Pid::from_raw(id) else {
                continue;
            };
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => drop(open.insert(id, process)),
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The number of a process that ended may have been given to another one before it was opened: it is still in the
        // group only if it is one of its processes.
        let still = self.all_processes(group)?;
        refuse_foreign(group, &still)?;
        let mut sent = 0;
        for (id, process) in &open {
            if !still.contains(id) {
                continue;
            }
            match pidfd_send_signal(process, signal) {
                Ok(()) => sent += 1,
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Has the kernel kill all processes of a group and of all below it, whether or not they can be listed (`cgroup.kill`
    /// in Documentation/admin-guide/cgroup-v2.rst, since Linux 5.14). Nothing of it is there to be put back.
    ///
    /// For a group whose processes got a signal before by [`System::signal`], which has seen each of them.
    ///
    /// # Errors
    /// With version 1 and older kernels (`Unsupported`); this process or the machine's first one may be in it; or the kernel
    /// refuses.
    pub(crate) fn kill_all(&self, group: &ControlGroup) -> io::Result<()> {
        self.refuse_in_rehearsal()?;
        let cpu = self.cpu()?;
        if cpu.version == Version::V1 {
            let what = "version 1 of control groups has no cgroup.kill";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        for (process, what) in [("self", OURS), ("1", FIRST)] {
            if names(
                &fs::read_to_string(format!("/proc/{process}/cgroup"))?,
                group,
            ) {
                return Err(refusal(group, what));
            }
        }
        self.put(cpu, group, "cgroup.kill", "1")
    }

    fn refuse_in_rehearsal(&self) -> io::Result<()> {
        match self.is_rehearsal() {
            true => Err(io::Error::other("a dry run ends no process")),
            false => Ok(()),
        }
    }
}

const OURS: &str = "the agent itself";
const FIRST: &str = "the machine's first process";

/// Whether `/proc/PID/cgroup` (`cgroups(7)`) names a group or one below it. A group of the same name elsewhere counts, too: its
/// paths begin where the namespace of control groups does.
fn names(groups: &str, group: &ControlGroup) -> bool {
    let group = format!("/{group}/");
    let mut lines = groups.lines();
    lines.any(|line| format!("{line}/").contains(&group))
}

fn refuse_foreign(group: &ControlGroup, processes: &BTreeSet<i32>) -> io::Result<()> {
    let ours = getpid().as_raw_nonzero().get();
    match () {
        () if processes.contains(&ours) => Err(refusal(group, OURS)),
        () if processes.contains(&1) => Err(refusal(group, FIRST)),
        () if processes.contains(&0) => Err(refusal(group, "a process of another namespace")),
        () => Ok(()),
    }
}

fn refusal(group: &ControlGroup, what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("the control group {group} has {what}: it is never ended"),
    )
}
