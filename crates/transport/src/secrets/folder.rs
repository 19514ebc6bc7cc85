//! A folder of secrets that only its owner can access, and whose files survive a power cut whole.
//!
//! A file is written under a temporary name and synced, then renamed, and the folder is synced. A reader therefore sees
//! the old or the new content. A temporary file left behind by a crash is never read and is removed at the next start.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, fsync, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use super::random_text;

#[cfg(test)]
mod tests;

/// Suffix of a file that is still being written.
const TEMPORARY: &str = ".tmp";
/// Suffix of certificates: other users may read but not replace them.
const CERTIFICATE: &str = ".pem";

/// A folder that no other user can access.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// All file operations are relative to this handle, so they use the very folder that was checked.
    handle: OwnedFd,
}

/// An exclusive lock on a folder, released when it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

impl Folder {
    /// Opens a folder; creates it with mode 0700 if needed.
    ///
    /// # Errors
    /// [`FolderError`] when it cannot be created or opened, is not a folder, or other users have access to it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::open_as(path, path)
    }

    /// Like [`Folder::open`], for a folder whose path in error messages (`shown`) differs from the path used to open
    /// it.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn open_as(path: &Path, shown: &Path) -> Result<Self, FolderError> {
        let at = |fault| FolderError::new(shown, fault);
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => sync_parent(path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(FolderFault::Io("make the folder", error))),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR => at(FolderFault::NoFolder),
            other => at(FolderFault::Io("open the folder", other.into())),
        })?;
        let found =
            fstat(&handle).map_err(|e| at(FolderFault::Io("look at the folder", e.into())))?;
        check(&found, 0o077, "0700").map_err(at)?;
        Ok(Self {
            path: shown.to_owned(),
            handle,
        })
    }

    /// Locks the folder for this process. The lock file stays; [`Folder::sweep`] removes what an interrupted writer
    /// left.
    ///
    /// # Errors
    /// [`FolderError`] when another process holds the lock ([`FolderError::is_busy`]), or locking fails.
    pub fn lock(&self) -> Result<Lock, FolderError> {
        let name = "lock";
        let file = self
            .open_file(name, OFlags::RDWR | OFlags::CREATE)
            .map_err(|e| self.failed(name, "open the file", e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(FolderError::new(&self.path, FolderFault::Busy)),
            Err(error) => Err(self.failed(name, "lock the file", error)),
        }
    }

    /// Removes temporary files. Call it only with the lock held: another process may be writing them.
    ///
    /// # Errors
    /// [`FolderError`] when the folder cannot be listed, or a file cannot be removed.
    pub fn sweep(&self) -> Result<(), FolderError> {
        let is_temporary = |name: &&String| name.starts_with('.') && name.ends_with(TEMPORARY);
        for name in self.all_names()?.iter().filter(is_temporary) {
            self.remove(name)?;
        }
        Ok(())
    }

    /// The path of a file in the folder, for error messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file's bytes; `None` when there is no such file.
    ///
    /// # Errors
    /// [`FolderError`] when it is not a regular file, belongs to another user, is accessible to others, is larger than
    /// `max_bytes`, or cannot be read.
    pub fn read(
        &self,
        name: &str,
        max_bytes: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, FolderError> {
        let file = match self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.at(name, FolderFault::NoFile)),
            Err(error) => return Err(self.failed(name, "open the file", error)),
        };
        let found = fstat(&file).map_err(|e| self.failed(name, "look at the file", e))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.at(name, FolderFault::NoFile));
        }
        let (refused, wanted) = match name.ends_with(CERTIFICATE) {
            true => (0o022, "0644"),
            false => (0o077, "0600"),
        };
        check(&found, refused, wanted).map_err(|fault| self.at(name, fault))?;
        // A buffer that grows would leave copies behind of what may be a private key.
        let size = usize::try_from(found.st_size).unwrap_or(max_bytes);
        let room = size.min(max_bytes) + 1;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        File::from(file)
            .take(u64::try_from(room).unwrap_or(u64::MAX))
            .read_to_end(&mut bytes)
            .map_err(|error| self.at(name, FolderFault::Io("read the file", error)))?;
        if size > max_bytes || bytes.len() > max_bytes {
            return Err(self.at(name, FolderFault::TooLarge(max_bytes)));
        }
        Ok(Some(bytes))
    }

    /// Writes a file of mode 0600 atomically: after a crash the old or the new content is there. It is on disk when
    /// this returns.
    ///
    /// # Errors
    /// [`FolderError`] when it cannot be written: the old content is then still there.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let temporary = format!(".{name}.{}{TEMPORARY}", random_text()?);
        let written = self.write_new(&temporary, name, bytes).and_then(|()| {
            renameat(&self.handle, &temporary, &self.handle, name)
                .map_err(|e| self.failed(name, "rename the file", e))?;
            self.sync()
        });
        if written.is_err() {
            let _already_renamed = unlinkat(&self.handle, &temporary, AtFlags::empty());
        }
        written
    }

    /// Writes and syncs a new file under its temporary name; errors mention its final name.
    fn write_new(&self, temporary: &str, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = self
            .open_file(temporary, flags)
            .map_err(|e| self.failed(name, "make the file", e))?;
        let mut file = File::from(file);
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(|error| self.at(name, FolderFault::Io("write the file", error)))
    }

    /// Removes a file; returns whether it existed. The removal is on disk when this returns.
    ///
    /// # Errors
    /// [`FolderError`] when the file cannot be removed, or the removal cannot be synced.
    pub fn remove(&self, name: &str) -> Result<bool, FolderError> {
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(name, "remove the file", error)),
        }
    }

    /// Tries to remove a file that no longer matters, without a sync: after a power cut it may be back.
    pub fn forget(&self, name: &str) {
        let _gone_or_not = unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// The names of the files in the folder, sorted, without hidden ones.
    ///
    /// # Errors
    /// [`FolderError`] when the folder cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, FolderError> {
        let mut names = self.all_names()?;
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    }

    fn all_names(&self) -> Result<Vec<String>, FolderError> {
        let failed = |e: Errno| self.at("", FolderFault::Io("list the folder", e.into()));
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            let name = OsString::from_vec(name);
            if let Ok(name) = name.into_string()
                && name != "."
                && name != ".."
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync(&self) -> Result<(), FolderError> {
        fsync(&self.handle).map_err(|e| self.at("", FolderFault::Io("sync the folder", e.into())))
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.handle, name, flags, Mode::from_raw_mode(0o600))
    }

    fn at(&self, name: &str, fault: FolderFault) -> FolderError {
        match name {
            "" => FolderError::new(&self.path, fault),
            name => FolderError::new(&self.path_of(name), fault),
        }
    }

    fn failed(&self, name: &str, what: &'static str, error: Errno) -> FolderError {
        self.at(name, FolderFault::Io(what, error.into()))
    }
}

fn sync_parent(path: &Path) -> Result<(), FolderError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| FolderError::new(parent, FolderFault::Io("sync the folder", error)))
}

fn check(found: &Stat, refused: u32, wanted: &'static str) -> Result<(), FolderFault> {
    if found.st_uid != geteuid().as_raw() {
        return Err(FolderFault::Owner(found.st_uid));
    }
    match found.st_mode & 0o7777 {
        mode if mode & refused == 0 => Ok(()),
        found => Err(FolderFault::Mode { found, wanted }),
    }
}

/// What is wrong with a folder of secrets, or with a file in it.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    fault: FolderFault,
}

#[derive(Debug)]
pub(super) enum FolderFault {
    /// Other users have access.
    Mode {
        found: u32,
        wanted: &'static str,
    },
    /// It belongs to the user with this id.
    Owner(u32),
    /// Another process holds the lock.
    Busy,
    NoFolder,
    NoFile,
    /// It is larger than this many bytes.
    TooLarge(usize),
    /// The system's random generator failed.
    Random,
    /// The failed operation, and the system's error.
    Io(&'static str, io::Error),
}

impl FolderError {
    pub(super) fn new(path: &Path, fault: FolderFault) -> Self {
        Self {
            path: path.to_owned(),
            fault,
        }
    }

    /// Whether the error is that another process holds the lock.
    pub fn is_busy(&self) -> bool {
        matches!(self.fault, FolderFault::Busy)
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.fault {
            FolderFault::Mode { found, wanted } => write!(
                f,
                "{path}: others have access to it, its mode is {found:04o} (check who has read it, \
                 then chmod {wanted} it)"
            ),
            FolderFault::Owner(uid) => write!(
                f,
                "{path}: it belongs to user {uid}, not to us, user {} (run as that user, or give \
                 it to ours with chown)",
                geteuid().as_raw()
            ),
            FolderFault::Busy => write!(
                f,
                "{path}: another process uses this folder (use that process, or stop it)"
            ),
            FolderFault::NoFolder => write!(f, "{path}: it is no folder (choose another path)"),
            FolderFault::NoFile => write!(
                f,
                "{path}: it is no plain file (put the file itself here, not a link to it)"
            ),
            FolderFault::TooLarge(max) => write!(
                f,
                "{path}: it is larger than {max} bytes (no valid file is that large; check what it is)"
            ),
            FolderFault::Random => write!(
                f,
                "{path}: the system's random generator failed (try again)"
            ),
            FolderFault::Io(what, error) => write!(f, "{path}: cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            FolderFault::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
