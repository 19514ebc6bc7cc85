//! The Unix socket's place in the file system.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// Names another admin socket.
const SOCKET: &str = "--socket";
/// Bytes that an address of a Unix socket has room for, without the zero that ends it (unix(7)).
const LONGEST_PATH: usize = 107;

/// Where the socket is, and whether the operator said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The socket's path.
    pub path: PathBuf,
    /// Given on the command line or in the settings, rather than our default.
    pub is_given: bool,
    /// What serves it, as it is said.
    pub command: &'static str,
    /// What names another one.
    pub flag: &'static str,
}

impl Location {
    /// The path that was given, else `$XDG_RUNTIME_DIR/heddle.sock`, else
    /// `/tmp/heddle-<uid>/heddle.sock`.
    pub fn new(given: Option<PathBuf>) -> Self {
        Self::of(
            "`heddle up DIR` or `heddle node`",
            SOCKET,
            given,
            "heddle.sock",
        )
    }

    /// The same for a control plane, whose default is `heddle-control.sock` in the same folder: both may
    /// run on one machine.
    pub fn control(given: Option<PathBuf>) -> Self {
        Self::of("`heddle control DIR`", SOCKET, given, "heddle-control.sock")
    }

    /// The same for the holder of a node's pods, whose default is `heddle-holder.sock`.
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
        let folder = runtime
            .filter(|folder| folder.is_absolute())
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/heddle-{}", geteuid().as_raw())));
        Location {
            path: folder.join(name),
            is_given: false,
            command,
            flag,
        }
    }

    /// # Errors
    /// [`SocketError::TooLong`] when no socket can have the path.
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

/// Why there is no admin socket.
#[derive(Debug)]
pub enum SocketError {
    /// Another process serves it.
    Busy(Location),
    /// Another user could replace the socket there.
    Unsafe(Location, &'static str),
    /// Something is there that is no socket, and is left alone.
    Occupied(Location, &'static str),
    /// A socket's path cannot be as long as this one.
    TooLong(Location),
    /// Anything else, with what was being done.
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

/// Our claim on the socket's path. Dropping it removes the socket, unless another is there by then.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the socket that was bound.
    bound: (u64, u64),
    /// Held locked for as long as the socket is ours. The kernel lets go of it however we end, so
    /// with the lock in hand a socket file that is there is a dead process's.
    _lock: File,
}

impl AdminSocket {
    /// Makes the folder if need be, refuses one that others can write, takes the lock, replaces a
    /// stale socket, and listens. Non-blocking.
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

    /// The same for a socket of another kind: `is_served` says whether a process answers there, `bind` listens.
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
        // Before there is a lock beside it.
        is_socket(location)?;
        let lock = lock(location)?;
        // The lock does not know about programs that are not ours.
        if is_served(path) {
            return Err(SocketError::Busy(location.clone()));
        }
        remove_stale(location)?;
        let failed = |what, error| failed(location, what, path, error);
        let socket = bind(path).map_err(|error| failed("cannot listen on the socket", error))?;
        // Until this line the mode is the umask's, and the check of credentials stands alone.
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
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket file of a process that could not do so itself, unless it is there still.
    pub fn clear(location: &Location) {
        let Ok(_lock) = lock(location) else {
            return;
        };
        if UnixStream::connect(&location.path).is_err() {
            let _never_made = remove_stale(location);
        }
    }
}

/// Removes the socket that a dead process left, if there is one.
fn remove_stale(location: &Location) -> Result<(), SocketError> {
    let path = &location.path;
    if is_socket(location)? {
        fs::remove_file(path)
            .map_err(|error| failed(location, "cannot replace the stale socket", path, error))?;
    }
    Ok(())
}

/// Whether a socket is at the path, or nothing. Anything else is not ours to remove.
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

/// Our default folder must be ours alone. One that the operator chose must not let others
/// replace what is in it.
fn check_folder(location: &Location) -> Result<(), SocketError> {
    let folder = location.folder();
    // A symbolic link in /tmp would be another user's trap; one that the operator named is a choice.
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
    if location.is_given {
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
