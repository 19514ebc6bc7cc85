//! A folder of secrets: ours alone, and whole after a power cut.
//!
//! A file is written under a temporary name, made durable, renamed, and the rename made durable. What
//! is read is therefore either the old or the new content; a temporary file that a crash left behind
//! is never read and goes away at the next start.

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

/// What marks a file that is being written.
const TEMPORARY: &str = ".tmp";
/// Certificates are no secret, but no other user may replace them.
const CERTIFICATE: &str = ".pem";

/// A folder that no other user can read.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Everything happens relative to it, so that what was checked is what is used.
    handle: OwnedFd,
}

/// Our claim on a folder; given back when it is dropped, however that comes.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

impl Folder {
    /// Opens a folder, or makes it with mode 0700.
    ///
    /// # Errors
    /// [`FolderError`] when it cannot be made or opened, is no folder, or others have access to it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::open_as(path, path)
    }

    /// The same for a folder that is reached by another path than the one that messages name.
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

    /// Takes the folder for this process, and removes what an interrupted writer left.
    ///
    /// # Errors
    /// [`FolderError`] when another process has it ([`FolderError::is_busy`]), or it cannot be locked.
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

    /// Removes temporary files. Only for the holder of the lock: another may be writing them.
    ///
    /// # Errors
    /// [`FolderError`] when the folder cannot be listed, or a file not removed.
    pub fn sweep(&self) -> Result<(), FolderError> {
        let is_temporary = |name: &&String| name.starts_with('.') && name.ends_with(TEMPORARY);
        for name in self.all_names()?.iter().filter(is_temporary) {
            self.remove(name)?;
        }
        Ok(())
    }

    /// The path of a file in the folder, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file's bytes, if there is one of that name. More than `max_bytes` are refused.
    ///
    /// # Errors
    /// [`FolderError`] when it is no plain file of ours that others have no access to, is too large, or cannot be read.
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
        // A buffer that grew would leave copies of what may be a key behind.
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

    /// Writes a file of mode 0600 so that it is there whole, or not at all, whatever happens. When
    /// this returns it is on the disk.
    ///
    /// # Errors
    /// [`FolderError`] when it could not be written: then the old content is still there.
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

    /// Writes a new file under a temporary name; messages have the one that it is to get.
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

    /// Removes a file; says whether there was one. When this returns it is gone from the disk.
    ///
    /// # Errors
    /// [`FolderError`] when it could not be removed, or that could not be made durable.
    pub fn remove(&self, name: &str) -> Result<bool, FolderError> {
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(name, "remove the file", error)),
        }
    }

    /// Removes a file that does not matter any more, if it can be: it may come back after a power cut.
    pub fn forget(&self, name: &str) {
        let _gone_or_not = unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// The names of the files, hidden ones aside, in order.
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

/// What is wrong with a folder of secrets, or a file in it.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    fault: FolderFault,
}

#[derive(Debug)]
pub(super) enum FolderFault {
    /// Others can read or change it.
    Mode {
        found: u32,
        wanted: &'static str,
    },
    /// It belongs to this user.
    Owner(u32),
    /// Another process works with it.
    Busy,
    NoFolder,
    NoFile,
    /// It holds more than this many bytes.
    TooLarge(usize),
    /// The system gave no random bytes.
    Random,
    /// What was being done, and what the system said.
    Io(&'static str, io::Error),
}

impl FolderError {
    pub(super) fn new(path: &Path, fault: FolderFault) -> Self {
        Self {
            path: path.to_owned(),
            fault,
        }
    }

    /// Whether another process works with the folder.
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
                "{path}: another process works with this folder (ask that one, or stop it)"
            ),
            FolderFault::NoFolder => write!(f, "{path}: it is no folder (choose another path)"),
            FolderFault::NoFile => write!(
                f,
                "{path}: it is no plain file (put the file itself here, not a link to it)"
            ),
            FolderFault::TooLarge(max) => write!(
                f,
                "{path}: it is larger than {max} bytes (nothing that belongs there is; look at what it is)"
            ),
            FolderFault::Random => write!(f, "{path}: the system gave no random bytes (try again)"),
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
