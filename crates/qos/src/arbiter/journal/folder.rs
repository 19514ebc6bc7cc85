//! The folder of all journals, which one process has at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Entry, Log};

const LOCK: &str = "lock";

/// The folder of all journals, locked by this process.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    lock: File,
}

impl StateFolder {
    /// Takes the folder, which is made if it is missing (mode 0700).
    ///
    /// # Errors
    /// `WouldBlock` when another process has it; or the disk's.
    pub fn open(path: &Path) -> io::Result<Self> {
        make(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(StateFolder {
            path: path.to_owned(),
            lock,
        })
    }

    /// Opens the journal of a kind of things, and returns what an earlier process held.
    ///
    /// # Errors
    /// `InvalidData` when it is of another version, or its first line is damaged; or the disk's.
    pub fn journal<K: Entry, H: Serialize + DeserializeOwned + Clone>(
        &self,
    ) -> io::Result<(Log<K, H>, BTreeMap<K, H>)> {
        // A lock of flock(2) is held until the last copy of its descriptor is closed.
        Log::open(&self.path, self.lock.try_clone()?)
    }

    /// Whether a process has this folder.
    ///
    /// # Errors
    /// When the lock cannot be opened.
    pub fn is_in_use(path: &Path) -> io::Result<bool> {
        let lock = match File::open(path.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            lock => lock?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            done => Ok(done.map(|()| false)?),
        }
    }
}

/// Makes the folder, and checks that no other user can write to it.
fn make(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    // Folders above it, too: root's sockets are in the one that holds it by default.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    let is_ours = about.is_dir()
        && about.uid() == rustix::process::geteuid().as_raw()
        && about.mode() & 0o022 == 0;
    match is_ours {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} is not a folder of this user that only this user can write to: run this as its owner, or chmod 0700",
                folder.display()
            ),
        )),
    }
}

/// The random id of this boot of the machine (`random(4)`).
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}
