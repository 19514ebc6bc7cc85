//! The state folder: the journals and what the agent says, in a folder that one process has at a time and that no other
//! user can write to. Each file of it is opened and replaced here. Errors name the file.

mod file;
mod path;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

pub(crate) use self::file::{copy, for_appending, for_reading, overwrite_when_full, remove, wrong};
pub use self::file::{read, replace};

const LOCK: &str = "lock";
/// How the copy of a journal ends of which lines could not be read.
pub(crate) const DAMAGED: &str = ".damaged";

/// The folder of all journals, locked by this process.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    lock: File,
    read_only: Option<String>,
}

impl StateFolder {
    /// Takes the folder, which is made if it is missing (mode 0700). One that cannot be written to is taken as well, as long
    /// as its journals can be read: what they say can still be put back.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it; or the disk's. Another user can write to it, or to a folder above it.
    pub fn open(path: &Path) -> io::Result<Self> {
        path::make(path)?;
        let at = path.join(LOCK);
        let (lock, read_only) = match file::for_locking(&at) {
            Ok(lock) => (lock, None),
            Err(error) if file::is_not_writable(&error) => {
                let lock = match for_reading(&at)? {
                    Some(lock) => lock,
                    // The folder serves as well: no process can make the file.
                    None => File::open(path).map_err(|error| file::about(path, &error))?,
                };
                (lock, Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| file::about(&at, &error.into()))?;
        Ok(StateFolder {
            path: path.to_owned(),
            lock,
            read_only,
        })
    }

    /// Why nothing can be written to the folder, if that is so.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lock, which is held for as long as this descriptor or a copy of it is open.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }

    /// Whether a process has this folder.
    ///
    /// # Errors
    /// When the lock cannot be opened.
    pub fn is_in_use(path: &Path) -> io::Result<bool> {
        let at = path.join(LOCK);
        let Some(lock) = for_reading(&at)? else {
            return Ok(false);
        };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            done => done
                .map(|()| false)
                .map_err(|error| file::about(&at, &error.into())),
        }
    }
}

/// The copies that are kept in a state folder of journals of which lines could not be read. What these lines say may still
/// be so.
///
/// # Errors
/// When the folder cannot be read.
pub fn damaged(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| file::about(folder, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.ends_with(DAMAGED)) {
            found.push(folder.join(name));
        }
    }
    found.sort();
    Ok(found)
}
