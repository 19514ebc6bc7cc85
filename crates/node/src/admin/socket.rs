//! The Unix socket's place in the file system.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Uid, geteuid};

/// Flag that names another admin socket.
const SOCKET: &str = "--socket";
/// Folder of root's sockets.
const ROOTS_FOLDER: &str = "/run/heddle";
/// Longest path of a Unix socket in bytes, without the final zero (unix(7)).
const LONGEST_PATH: usize = 107;

/// Path of a socket, and whether the operator chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The socket's path.
    pub path: PathBuf,
    /// Whether the path was given on the command line or in the settings, rather than the default.
    pub is_given: bool,
    /// Command that serves the socket, for error messages.
    pub command: &'static str,
    /// Flag that names another path, for error messages.
    pub flag: &'static str,
}

impl Location {
    /// The path that was given, else `heddle.sock` in the folder of this user: `$XDG_RUNTIME_DIR`, else
    /// `/tmp/heddle-<uid>`; for root `/run/heddle`.
    pub fn new(given: Option<PathBuf>) -> Self {
        Self::of(
            "`heddle up DIR` or `heddle node`",
            SOCKET,
            given,
            "heddle.sock",
        )
    }

    /// Location for a control plane. Its default is `heddle-control.sock` in the same folder: a control plane may run
    /// beside a node.
    pub fn control(given: Option<PathBuf>) -> Self {
        Self::of("`heddle control DIR`", SOCKET, given, "heddle-control.sock")
    }

    /// Location for the holder of a node's pods. Its default is `heddle-holder.sock`.
    pub fn holder(given: Option<PathBuf>) -> Self {
        let (command, flag) = ("`heddle node --intercept`", "--holder-socket");
        Self::of(command, flag, given, "heddle-holder.sock")
    }

    fn of(command: &'static str, flag: &'static str, given: Option<PathBuf>, name: &str) -> Self {
        if let Some(path) = given {
            return Location {
                path,
                is_given: true,
                command,
                flag,
            };
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let folder = default_folder(geteuid(), runtime);
        Location {
            path: folder.join(name),
            is_given: false,
            command,
            flag,
        }
    }

    /// # Errors
    /// [`SocketError::TooLong`] when the path is too long for a socket.
    pub(super) fn check_length(&self) -> Result<(), SocketError> {
        match self.path.as_os_str().len() {
            0..=LONGEST_PATH => Ok(()),
            _ => Err(SocketError::TooLong(self.clone())),
        }
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }
}

/// The folder of the sockets of a user, whose `XDG_RUNTIME_DIR` is `runtime`.
///
/// Root's is the same for services, which have no `XDG_RUNTIME_DIR`, and for login sessions, whose own folder in
/// `/run/user` ends with the session.
pub(super) fn default_folder(user: Uid, runtime: Option<PathBuf>) -> PathBuf {
    let runtime = runtime.filter(|folder| folder.is_absolute());
    if !user.is_root() {
        return runtime.unwrap_or_else(|| PathBuf::from(format!("/tmp/heddle-{}", user.as_raw())));
    }
    runtime
        .filter(|folder| !folder.starts_with("/run/user"))
        .unwrap_or_else(|| PathBuf::from(ROOTS_FOLDER))
}

/// Why there is no admin socket.
#[derive(Debug)]
pub enum SocketError {
    /// Another process serves it.
    Busy(Location),
    /// Another user could replace the socket there.
    Unsafe(Location, &'static str),
    /// Something other than a socket is at the path, and was left alone.
    Occupied(Location, &'static str),
    /// The path is longer than a socket's path can be.
    TooLong(Location),
    /// Another error, with the failed operation.
    Io(Location, String, io::Error),
}

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SocketError::Busy(at) => {
                write!(
                    f,
                    "another heddle serves {}; give this one its own with {}",
                    at.path.display(),
                    at.flag
                )
            }
            SocketError::Unsafe(at, why) => {
                let (folder, flag) = (at.folder().display(), at.flag);
                write!(f, "{folder} {why}; choose another folder with {flag}")
            }
            SocketError::Occupied(at, what) => {
                let (path, flag) = (at.path.display(), at.flag);
                write!(
                    f,
                    "{path} is {what}, not a socket, and was left as it is: \
                     choose another path with {flag}, or move it away"
                )
            }
            SocketError::TooLong(at) => {
                let (path, flag) = (&at.path, at.flag);
                let length = path.as_os_str().len();
                write!(
                    f,
                    "{} is too long for a socket: a path has at most {LONGEST_PATH} bytes, this has \
                     {length}; choose a shorter one with {flag}",
                    path.display()
                )
            }
            SocketError::Io(at, what, error) => {
                let flag = at.flag;
                write!(f, "{what}: {error}; choose another folder with {flag}")
            }
        }
    }
}

impl std::error::Error for SocketError {}

/// Ownership of the socket's path. Dropping it removes the socket, unless another process has replaced it.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the socket that was bound.
    bound: (u64, u64),
    /// Locked while this process owns the socket. The kernel releases the lock however the process ends, so a process
    /// that gets the lock knows that a socket file at the path is a dead process's.
    _lock: File,
}

impl AdminSocket {
    /// Creates the folder if needed, refuses one that others can write, takes the lock, replaces a stale socket, and
    /// listens. The socket is non-blocking.
    ///
    /// # Errors
    /// [`SocketError::Busy`] when a live process serves the path.
    pub fn bind(location: &Location) -> Result<(Self, UnixListener), SocketError> {
        let is_served = |path: &Path| UnixStream::connect(path).is_ok();
        Self::claim(location, is_served, |path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
    }

    /// Like [`AdminSocket::bind`] for a socket of another kind: `is_served` tells whether a process answers there,
    /// `bind` binds and listens.
    ///
    /// # Errors
    /// As [`AdminSocket::bind`].
    pub fn claim<S>(
        location: &Location,
        is_served: impl FnOnce(&Path) -> bool,
        bind: impl FnOnce(&Path) -> io::Result<S>,
    ) -> Result<(Self, S), SocketError> {
        let path = &location.path;
        location.check_length()?;
        make_folder(location)?;
        check_folder(location)?;
        // Checked first, so that no lock file is created beside something else.
        is_socket(location)?;
        let lock = lock(location)?;
        // Programs other than heddle do not take the lock.
        if is_served(path) {
            return Err(SocketError::Busy(location.clone()));
        }
        remove_stale(location)?;
        let failed = |what, error| failed(location, what, path, error);
        let socket = bind(path).map_err(|error| failed("cannot listen on the socket", error))?;
        // Until here the mode depends on the umask, and only the credentials check protects the socket.
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|error| failed("cannot protect the socket", error))?;
        let found = fs::symlink_metadata(path)
            .map_err(|error| failed("cannot look at the socket", error))?;
        Ok((
            AdminSocket {
                path: path.clone(),
                bound: (found.dev(), found.ino()),
                _lock: lock,
            },
            socket,
        ))
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.bound) {
            let _already_gone = fs::remove_file(&self.path);
        }
    }
}

impl AdminSocket {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket file of a process that could not do so itself, unless that process still runs.
    pub fn clear(location: &Location) {
        let Ok(_lock) = lock(location) else {
            return;
        };
        if UnixStream::connect(&location.path).is_err() {
            let _never_made = remove_stale(location);
        }
    }
}

/// Removes the socket file of a dead process, if there is one.
fn remove_stale(location: &Location) -> Result<(), SocketError> {
    let path = &location.path;
    if is_socket(location)? {
        fs::remove_file(path)
            .map_err(|error| failed(location, "cannot replace the stale socket", path, error))?;
    }
    Ok(())
}

/// Whether a socket (`true`) or nothing is at the path. Anything else is an error: it is not removed.
fn is_socket(location: &Location) -> Result<bool, SocketError> {
    let path = &location.path;
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(location, "cannot look at", path, error)),
    };
    let what = match kind {
        kind if kind.is_socket() => return Ok(true),
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_file() => "a file",
        _ => "a pipe or a device",
    };
    Err(SocketError::Occupied(location.clone(), what))
}

fn make_folder(location: &Location) -> Result<(), SocketError> {
    let folder = location.folder();
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(
            location,
            "cannot make the socket's folder",
            folder,
            error,
        )),
        _ => Ok(()),
    }
}

/// Our default folder must be accessible to this user only. In a folder that the operator chose, or in that of root,
/// which holds more than sockets, others must not be able to replace the socket.
fn check_folder(location: &Location) -> Result<(), SocketError> {
    let folder = location.folder();
    // A symbolic link in /tmp could be another user's attack; the operator may choose one.
    let found = if location.is_given {
        fs::metadata(folder)
    } else {
        fs::symlink_metadata(folder)
    };
    let found = found.map_err(|error| failed(location, "cannot look at", folder, error))?;
    let own = geteuid().as_raw();
    let refuse = |why| Err(SocketError::Unsafe(location.clone(), why));
    if !found.is_dir() {
        return refuse("is no folder");
    }
    if location.is_given || folder == Path::new(ROOTS_FOLDER) {
        let others_write = found.mode() & 0o022 != 0;
        let sticky = found.mode() & 0o1000 != 0;
        if others_write && !sticky {
            return refuse("can be written by others");
        }
        if found.uid() != own && found.uid() != 0 {
            return refuse("belongs to another user");
        }
    } else if found.uid() != own {
        return refuse("belongs to another user");
    } else if found.mode() & 0o077 != 0 {
        return refuse("is open to others (its mode should be 0700)");
    }
    Ok(())
}

fn lock(location: &Location) -> Result<File, SocketError> {
    let path = &location.path;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&name)
        .map_err(|error| failed(location, "cannot open", &name, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::Busy(location.clone())),
        Err(error) => Err(failed(location, "cannot lock", &name, error.into())),
    }
}

fn failed(location: &Location, what: &str, path: &Path, error: io::Error) -> SocketError {
    SocketError::Io(
        location.clone(),
        format!("{what} {}", path.display()),
        error,
    )
}
