//! The pods stored for a restarted holder, and those that it could not enroll again (lost pods).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::HolderError;
use crate::request::{PodState, PodStatus};
use crate::{Exclude, Fate};

#[cfg(test)]
mod tests;

/// Limit of the file in bytes: enough for thousands of pods.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Minimum and maximum delay before a lost pod is retried.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A lost pod whose namespace does not come back is forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A stored pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remembered {
    pub(super) workload: WorkloadName,
    pub(super) netns: PathBuf,
    /// Inode number of the namespace: by now the path may lead to another one.
    #[serde(default)]
    pub(super) inode: Option<u64>,
    pub(super) fate: Fate,
    #[serde(default)]
    pub(super) exclude: Exclude,
    /// Whether its namespace has packet filter rules; `None` if unknown.
    #[serde(default)]
    pub(super) filtered: Option<bool>,
}

impl Remembered {
    /// Opens its namespace.
    ///
    /// # Errors
    /// A message when the namespace is gone, or another one is at its path.
    pub(super) fn open(&self) -> Result<File, String> {
        let shown = self.netns.display();
        // By now the path may be a pipe, for example: opening it must not block.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let netns = File::options()
            .read(true)
            .custom_flags(flags)
            .open(&self.netns);
        let netns = netns.map_err(|error| format!("{shown}: {error}"))?;
        let here = netns
            .metadata()
            .map_err(|error| format!("{shown}: {error}"))?;
        match self.inode.is_some_and(|inode| inode != here.ino()) {
            true => Err(format!(
                "{shown} is another namespace than it was: enroll the pod that is there now"
            )),
            false => Ok(netns),
        }
    }
}

/// The file of stored pods, and the lost pods. Only its owner may write to the file, since it decides the fate of
/// pods.
pub(super) struct Memory {
    path: PathBuf,
    /// The known content of the file. An unchanged file is not written again: a slow disk would delay the start of a
    /// holder.
    kept: Vec<u8>,
    recalled: Vec<Remembered>,
    lost: Vec<Lost>,
}

/// A stored pod that could not be enrolled, and is retried.
struct Lost {
    pod: Remembered,
    why: String,
    /// When it is retried, and the delay after that.
    next: Instant,
    wait: Duration,
    /// When its namespace was last seen at its path, or else when it was lost.
    seen: Instant,
}

impl Memory {
    /// Reads the stored pods; a missing file means none.
    pub(super) fn open(path: PathBuf) -> Result<Memory, HolderError> {
        let wrong = |error| HolderError::new(format!("{}", path.display()), error);
        let (kept, recalled) = match read(&path) {
            Ok(kept) => {
                let recalled = understood(&kept).map_err(wrong)?;
                (kept, recalled)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Default::default(),
            Err(error) => return Err(wrong(error)),
        };
        Ok(Memory {
            path,
            kept,
            recalled,
            lost: Vec::new(),
        })
    }

    pub(super) fn recalled(&mut self) -> Vec<Remembered> {
        std::mem::take(&mut self.recalled)
    }

    /// Records a pod that could not be enrolled, to be retried. Returns whether the reason is new.
    pub(super) fn lose(&mut self, pod: Remembered, why: String, now: Instant) -> bool {
        let same = self.lost.iter_mut();
        let same = same
            .into_iter()
            .find(|lost| lost.pod.workload == pod.workload);
        let Some(lost) = same else {
            self.lost.push(Lost {
                pod,
                why,
                next: now + RETRY.0,
                wait: RETRY.0,
                seen: now,
            });
            return true;
        };
        lost.wait = (lost.wait * 2).min(RETRY.1);
        lost.next = now + lost.wait;
        if pod.netns.exists() {
            lost.seen = now;
        }
        std::mem::replace(&mut lost.why, why) != lost.why
    }

    /// Removes a workload's pod from the lost pods. Returns it.
    pub(super) fn recovered(&mut self, workload: &WorkloadName) -> Option<Remembered> {
        let mut lost = self.lost.iter();
        let found = lost.position(|lost| lost.pod.workload == *workload)?;
        Some(self.lost.swap_remove(found).pod)
    }

    /// When the next lost pod is to be retried.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lost.iter().map(|lost| lost.next).min()
    }

    /// The lost pods that are to be retried now.
    pub(super) fn to_try(&self, now: Instant) -> Vec<Remembered> {
        let due = self.lost.iter().filter(|lost| lost.next <= now);
        due.map(|lost| lost.pod.clone()).collect()
    }

    /// Forgets lost pods whose namespaces have been gone for too long. Returns their workloads.
    pub(super) fn forget_gone(&mut self, now: Instant) -> Vec<WorkloadName> {
        let is_gone = |lost: &mut Lost| now.saturating_duration_since(lost.seen) >= FORGOTTEN_AFTER;
        let gone = self.lost.extract_if(.., is_gone);
        gone.map(|lost| lost.pod.workload).collect()
    }

    /// The status of lost pods.
    pub(super) fn lost(&self) -> impl Iterator<Item = PodStatus> {
        self.lost.iter().map(|lost| PodStatus {
            pod: None,
            workload: lost.pod.workload.clone(),
            netns: lost.pod.netns.clone(),
            addresses: Vec::new(),
            state: PodState::Lost,
            fate: lost.pod.fate,
            reason: Some(lost.why.clone()),
        })
    }

    /// Stores these pods and the lost ones, in place of the old content.
    pub(super) fn keep(
        &mut self,
        pods: impl Iterator<Item = Remembered>,
    ) -> Result<(), HolderError> {
        let lost = self.lost.iter().map(|lost| lost.pod.clone());
        let remembered: Vec<Remembered> = pods.chain(lost).collect();
        let kept = serde_json::to_vec_pretty(&remembered).map_err(io::Error::from);
        let kept = kept.and_then(|bytes| {
            // A file that was deleted is written again, even if its content has not changed.
            if bytes != self.kept || !self.path.exists() {
                replace(&self.path, &bytes)?;
                self.kept = bytes;
            }
            Ok(())
        });
        kept.map_err(|error| {
            HolderError::new(format!("cannot write {}", self.path.display()), error)
        })
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let whose = "another user could have written it: find out which, remove it, and enroll the pods of this node again";
    read_own(path, MAX_BYTES, whose)
}

fn understood(bytes: &[u8]) -> io::Result<Vec<Remembered>> {
    serde_json::from_slice(bytes).map_err(|error| {
        io::Error::other(format!(
            "{error}; remove it, and enroll the pods of this node again"
        ))
    })
}

/// Reads a regular file that only we or root can have written. Another file is refused with the message `whose`.
pub(super) fn read_own(path: &Path, max_bytes: u64, whose: &'static str) -> io::Result<Vec<u8>> {
    // Our file is neither a symbolic link nor a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    let is_ours = found.uid() == 0 || found.uid() == geteuid().as_raw();
    if !found.is_file() || !is_ours || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(whose));
    }
    if found.len() > max_bytes {
        return Err(io::Error::other("it is too large to be ours; remove it"));
    }
    let mut bytes = Vec::new();
    Read::take(&mut file, max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file atomically and durably: even after a crash of the machine a reader finds the complete old or new
/// content.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, File::sync_all)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Replaces a file atomically. `sync` decides whether it survives a crash of the machine.
pub(super) fn put(
    path: &Path,
    bytes: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    // Left by an interrupted write, or planted by another user, for example as a link to another file.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(bytes)?;
    sync(&file)?;
    fs::rename(&next, path)
}
