//! The pods that a holder finds again when it was restarted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heddle_model::WorkloadName;
use serde::{Deserialize, Serialize};

use super::HolderError;
use super::pods::Pod;
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
}

/// A file of them.
pub(super) struct Memory {
    path: PathBuf,
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
        let recalled = match read(&path) {
            Ok(recalled) => recalled,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(error)),
        };
        Ok(Memory {
            path,
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

    /// Whoever was lost under that name is so no more. Returns who that was.
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
    pub(super) fn keep<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> Result<(), HolderError> {
        let lost = self.lost.iter().map(|lost| lost.pod.clone());
        let remembered: Vec<Remembered> = pods.filter_map(Pod::remembered).chain(lost).collect();
        let kept = serde_json::to_vec_pretty(&remembered).map_err(io::Error::from);
        let kept = kept.and_then(|bytes| replace(&self.path, &bytes));
        kept.map_err(|error| {
            HolderError::new(format!("cannot write {}", self.path.display()), error)
        })
    }
}

fn read(path: &Path) -> io::Result<Vec<Remembered>> {
    if fs::metadata(path)?.len() > MAX_BYTES {
        return Err(io::Error::other("it is too large to be ours; remove it"));
    }
    let bytes = fs::read(path)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        io::Error::other(format!(
            "{error}; remove it, and enrol the pods of this node again"
        ))
    })
}

/// Replaces a file: whoever reads it finds the old or the new one, whole.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .clone();
    let mut file = options.open(&next)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
