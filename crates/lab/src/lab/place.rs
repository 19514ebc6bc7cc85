//! Where a process of a lab runs: control groups, network namespace, and files over /etc.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use rustix::mount::MountPropagationFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::cgroup::Group;

#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) network: PathBuf,
    pub(super) group: Group,
    /// `None`: it sees the host's /etc.
    pub(super) pod: Option<PodView>,
}

/// A pod's own hostname and files.
#[derive(Debug, Clone)]
pub(super) struct PodView {
    pub(super) hostname: String,
    /// Bind mounts: (from, over).
    pub(super) files: Vec<(PathBuf, PathBuf)>,
}

/// Everything is opened before the fork, so that nothing is allocated after it.
struct Entry {
    network: OwnedFd,
    doors: Vec<File>,
    pod: Option<(CString, Vec<(CString, CString)>)>,
    leads_session: bool,
}

impl Place {
    /// A command that runs here.
    ///
    /// # Errors
    /// The namespace or a control group does not exist.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        self.prepare(program.as_ref(), false)
    }

    /// As [`Place::command`], for a process that outlives the process that started it: it leads a session of its own.
    ///
    /// # Errors
    /// The namespace or a control group does not exist.
    pub(super) fn service(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        self.prepare(program.as_ref(), true)
    }

    fn prepare(&self, program: &OsStr, leads_session: bool) -> anyhow::Result<Command> {
        let network = File::open(&self.network)
            .with_context(|| format!("no namespace {}", self.network.display()))?;
        let doors = self.group.doors().into_iter().map(|door| {
            let file = OpenOptions::new().write(true).open(&door);
            file.with_context(|| format!("no control group {}", door.display()))
        });
        let pod = self.pod.as_ref().map(|pod| -> anyhow::Result<_> {
            let files = pod
                .files
                .iter()
                .map(|(from, over)| Ok((text(from.as_os_str())?, text(over.as_os_str())?)));
            let hostname = text(OsStr::new(&pod.hostname))?;
            Ok((hostname, files.collect::<anyhow::Result<_>>()?))
        });
        let entry = Entry {
            network: network.into(),
            doors: doors.collect::<anyhow::Result<_>>()?,
            pod: pod.transpose()?,
            leads_session,
        };
        let mut command = Command::new(program);
        enter_before_exec(&mut command, entry);
        Ok(command)
    }
}

fn text(text: &OsStr) -> anyhow::Result<CString> {
    CString::new(text.as_bytes()).with_context(|| format!("{} holds a NUL", text.display()))
}

#[allow(
    unsafe_code,
    reason = "namespaces and groups are entered between fork and exec: a namespace is a thread's for good"
)]
fn enter_before_exec(command: &mut Command, entry: Entry) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `Entry::enter` makes system calls,
    // directly and not through libc, with descriptors and strings that were made before the fork; it takes no lock,
    // allocates nothing and frees nothing.
    unsafe {
        command.pre_exec(move || entry.enter());
    }
}

impl Entry {
    /// Runs between fork and exec: system calls only.
    fn enter(&self) -> io::Result<()> {
        if self.leads_session {
            rustix::process::setsid()?;
        }
        for door in &self.doors {
            rustix::io::write(door, b"0")?;
        }
        let network = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.network.as_fd(), network)?;
        let Some((hostname, files)) = &self.pod else {
            return Ok(());
        };
        unshare_view()?;
        rustix::system::sethostname(hostname.as_bytes())?;
        // Later mounts of the host become visible here; mounts made here do not become visible to the host.
        let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", downstream)?;
        for (from, over) in files {
            rustix::mount::mount_bind(from.as_c_str(), over.as_c_str())?;
        }
        Ok(())
    }
}

#[allow(
    unsafe_code,
    reason = "the call is unsafe only because it could unshare the table of descriptors as well"
)]
fn unshare_view() -> io::Result<()> {
    let view = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    // SAFETY: of the flags only FILES makes descriptors of one thread unusable in another; it is not among them.
    Ok(unsafe { rustix::thread::unshare_unsafe(view) }?)
}

/// The pod's files and the files of /etc that they cover. A file that /etc lacks is left out: a bind mount needs a
/// target.
pub(super) fn over_etc(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    ["resolv.conf", "hosts", "hostname", "nsswitch.conf"]
        .into_iter()
        .map(|name| (folder.join(name), Path::new("/etc").join(name)))
        .filter(|(from, over)| from.exists() && over.exists())
        .collect()
}
