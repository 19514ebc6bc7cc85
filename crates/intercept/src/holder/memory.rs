//! The pods that a holder finds again when it was restarted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use heddle_model::WorkloadName;
use serde::{Deserialize, Serialize};

use super::HolderError;
use super::pods::Pod;
use crate::{Exclude, Fate};

/// The largest file that is read, in bytes: thousands of pods.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

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
    /// Pods that are not enrolled, for a reason that may pass.
    lost: Vec<Remembered>,
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

    /// Keeps a pod in mind that could not be enrolled now.
    pub(super) fn lose(&mut self, pod: Remembered) {
        self.lost.push(pod);
    }

    /// Whoever was lost under that name is so no more.
    pub(super) fn recovered(&mut self, workload: &WorkloadName) {
        self.lost.retain(|pod| pod.workload != *workload);
    }

    /// Keeps these, in place of what there was.
    pub(super) fn keep<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> Result<(), HolderError> {
        let lost = self.lost.iter().cloned();
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
