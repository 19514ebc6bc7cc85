//! The pods that a holder finds again when it was restarted, and those that it does not.

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

/// The largest file that is read, in bytes: thousands of pods.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The shortest and the longest wait before a lost pod is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long a lost pod is kept in mind whose namespace is not where it was.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A pod that was enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remembered {
    pub(super) workload: WorkloadName,
    pub(super) netns: PathBuf,
    /// The namespace's number: another one may be found by the same path.
    #[serde(default)]
    pub(super) inode: Option<u64>,
    pub(super) fate: Fate,
    #[serde(default)]
    pub(super) exclude: Exclude,
    /// Whether there are rules of the packet filter in its namespace; unknown where it is not said.
    #[serde(default)]
    pub(super) filtered: Option<bool>,
}

impl Remembered {
    /// Its namespace, if it is still there.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub(super) fn open(&self) -> Result<File, String> {
        let shown = self.netns.display();
        // Whatever is there by now must not keep us waiting.
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
                "{shown} is another namespace than it was: enrol the pod that is there now"
            )),
            false => Ok(netns),
        }
    }
}

/// A file of them, which only its owner may write: it says what becomes of pods.
pub(super) struct Memory {
    path: PathBuf,
    /// What the file holds, as far as is known: a disk may take its time, and a holder that finds its pods as they were
    /// has none.
    kept: Vec<u8>,
    recalled: Vec<Remembered>,
    lost: Vec<Lost>,
}

/// A pod that is not enrolled, for a reason that may pass.
struct Lost {
    pod: Remembered,
    why: String,
    /// When it is tried again, and how long it waits after that.
    next: Instant,
    wait: Duration,
    /// When its namespace was last where it was, or it was lost.
    seen: Instant,
}

impl Memory {
    /// Reads what there is.
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

    /// Keeps a pod in mind that could not be enrolled now, to be tried again. Returns whether the reason is news.
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

    /// A pod that was lost under that name is so no more. Returns which one that was.
    pub(super) fn recovered(&mut self, workload: &WorkloadName) -> Option<Remembered> {
        let mut lost = self.lost.iter();
        let found = lost.position(|lost| lost.pod.workload == *workload)?;
        Some(self.lost.swap_remove(found).pod)
    }

    /// When the next lost pod is to be tried.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lost.iter().map(|lost| lost.next).min()
    }

    /// The lost pods that are to be tried now.
    pub(super) fn to_try(&self, now: Instant) -> Vec<Remembered> {
        let due = self.lost.iter().filter(|lost| lost.next <= now);
        due.map(|lost| lost.pod.clone()).collect()
    }

    /// Forgets lost pods whose namespaces are gone, since nothing would ever bring them back.
    pub(super) fn forget_gone(&mut self, now: Instant) -> Vec<WorkloadName> {
        let is_gone = |lost: &mut Lost| now.saturating_duration_since(lost.seen) >= FORGOTTEN_AFTER;
        let gone = self.lost.extract_if(.., is_gone);
        gone.map(|lost| lost.pod.workload).collect()
    }

    /// What is said of lost pods.
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

    /// Keeps these, in place of what there was.
    pub(super) fn keep(
        &mut self,
        pods: impl Iterator<Item = Remembered>,
    ) -> Result<(), HolderError> {
        let lost = self.lost.iter().map(|lost| lost.pod.clone());
        let remembered: Vec<Remembered> = pods.chain(lost).collect();
        let kept = serde_json::to_vec_pretty(&remembered).map_err(io::Error::from);
        let kept = kept.and_then(|bytes| {
            // A file that was removed is written again.
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
    let whose = "another user could have written it: find out which, remove it, and enrol the pods of this node again";
    read_own(path, MAX_BYTES, whose)
}

fn understood(bytes: &[u8]) -> io::Result<Vec<Remembered>> {
    serde_json::from_slice(bytes).map_err(|error| {
        io::Error::other(format!(
            "{error}; remove it, and enrol the pods of this node again"
        ))
    })
}

/// Reads a plain file that no other user can have written; another one is refused with a reason, `whose`.
pub(super) fn read_own(path: &Path, max_bytes: u64, whose: &'static str) -> io::Result<Vec<u8>> {
    // A symbolic link or a pipe is none of ours.
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

/// Replaces a file, for good: a reader finds the old or the new one, whole, also after the machine has crashed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, File::sync_all)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The same, for as long as the machine runs.
pub(super) fn put(
    path: &Path,
    bytes: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    // What an interrupted writer left, or another user has put there for us to write through.
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
