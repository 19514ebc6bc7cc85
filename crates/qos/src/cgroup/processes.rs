//! The processes of a group, and signals to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::{ControlGroup, System};

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

    /// Whether a process is in a group or below it.
    ///
    /// # Errors
    /// There is no such group, or it has too many below it.
    pub(crate) fn has_process(&self, group: &ControlGroup) -> io::Result<bool> {
        let some = self.found_processes(group, |found| !found.is_empty())?;
        Ok(!some.is_empty())
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
            // One that is gone meanwhile has no process; those of a group of threads (version 2) are in one above.
            all.append(&mut self.processes_there(&group).unwrap_or_default());
            left.append(&mut self.children(&group).unwrap_or_default());
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
        if self.is_rehearsal() {
            return Err(io::Error::other("a dry run ends no process"));
        }
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
}

fn refuse_foreign(group: &ControlGroup, processes: &BTreeSet<i32>) -> io::Result<()> {
    let ours = getpid().as_raw_nonzero().get();
    let what = match () {
        () if processes.contains(&ours) => "the agent itself",
        () if processes.contains(&1) => "the machine's first process",
        () if processes.contains(&0) => "a process of another namespace",
        () => return Ok(()),
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("the control group {group} has {what}: it is never ended"),
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::process::getpid;

    use super::refuse_foreign;
    use crate::cgroup::ControlGroup;

    #[test]
    fn the_agent_and_the_first_process_are_never_ended() {
        let group = ControlGroup::new("jobs/a").expect("a group");
        let refused = |ids: &[i32]| {
            let ids: BTreeSet<i32> = ids.iter().copied().collect();
            refuse_foreign(&group, &ids).is_err()
        };
        let ours = getpid().as_raw_nonzero().get();
        assert!(refused(&[7, ours]) && refused(&[1]) && refused(&[0, 7]));
        assert!(!refused(&[]) && !refused(&[ours + 1, 2]));
    }
}
