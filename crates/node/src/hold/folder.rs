//! Giving the node's state folder to the user that the proxy runs as.
//!
//! What is in the folder was written by a proxy, which may have been in wrong hands: nothing in it is followed,
//! each thing is opened once and judged and given by that descriptor, and only what a node keeps there is given
//! at all. The folder above stays whose it was: beside the state is what the holder remembers.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, chownat, flock, fstat,
    mkdirat, openat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};

use crate::agent::{AUTHORITYS, is_kept, is_kept_leaf, is_of_an_authority};
use crate::user::{RESERVED, User};

#[cfg(test)]
mod tests;

/// The lock of a node's state folder: where it is, a node has been.
const LOCK: &str = "lock";
/// The folder in it that has files, too.
const LEAVES: &str = "leaves";
/// What a file system has in its first folder, for fsck(8).
const LOST: &str = "lost+found";
/// Things in one folder, more than a node can have.
const MAX_NAMES: usize = 200_000;

/// Why the folder is not the proxy's.
#[derive(Debug)]
pub(super) enum NotGiven {
    /// A node works with it.
    Busy(PathBuf),
    /// What is wrong with which path, and what would be right.
    Wrong(PathBuf, String),
}

impl fmt::Display for NotGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGiven::Busy(path) => write!(
                f,
                "{}: another process works with this folder (ask that one, or stop it)",
                path.display()
            ),
            NotGiven::Wrong(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for NotGiven {}

/// Makes a node's state folder the user's, with what a node has written there; makes it, if it is not there.
///
/// # Errors
/// When another user could put another in its place, it is none of a node's, a node works with it, or something
/// in it is not what a node would have written.
pub(super) fn give(path: &Path, user: User) -> Result<(), NotGiven> {
    let giving = Giving { user };
    let wrong = |why: String| NotGiven::Wrong(path.to_owned(), why);
    let (parent, name) = giving.above(path)?;
    let folder = match folder_at(parent.as_fd(), name) {
        Err(Errno::NOENT) => {
            mkdirat(&parent, name, Mode::RWXU).map_err(cannot(path, "make it"))?;
            folder_at(parent.as_fd(), name)
        }
        opened => opened,
    };
    let folder = folder.map_err(not_a_folder(path))?;
    let found = fstat(&folder).map_err(cannot(path, "look at it"))?;
    giving.check_owner(path, &found)?;
    let mode = found.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(wrong(format!(
            "others have access to it, its mode is {mode:04o} (check who has read it, then chmod 0700 it)"
        )));
    }
    let names = names(path, &folder)?;
    if let Some(name) = names.iter().find(|name| is_of_an_authority(name)) {
        return Err(NotGiven::Wrong(path.join(name), AUTHORITYS.to_owned()));
    }
    let is_new = names.iter().all(|name| name == LOST);
    if !is_new && !names.iter().any(|name| name == LOCK) {
        return Err(wrong(
            "it is no state folder of a node, and there are other files in it: name a folder of the node's own \
             with --state"
                .to_owned(),
        ));
    }
    // Until all is given: a node that works with it is not to lose it.
    let _lock = lock(path, &folder)?;
    for name in names.iter().filter(|name| is_kept(name)) {
        giving.give_file(path, &folder, name)?;
    }
    if names.iter().any(|name| name == LEAVES) {
        let path = path.join(LEAVES);
        let leaves = folder_at(folder.as_fd(), OsStr::new(LEAVES)).map_err(not_a_folder(&path))?;
        let found = fstat(&leaves).map_err(cannot(&path, "look at it"))?;
        giving.check_owner(&path, &found)?;
        for name in self::names(&path, &leaves)? {
            if is_kept_leaf(&name) {
                giving.give_file(&path, &leaves, &name)?;
            }
        }
        giving.chown(&path, &leaves, &found)?;
    }
    giving.chown(path, &folder, &found)
}

/// Makes sure that what lies beside a node's state folder is the holder's alone, which keeps its own files there.
///
/// # Errors
/// When the user of the proxy could change it.
pub(super) fn check_above(path: &Path, user: User) -> Result<(), NotGiven> {
    Giving { user }.above(path).map(drop)
}

struct Giving {
    user: User,
}

impl Giving {
    /// The folder above, which is checked, and the name in it.
    fn above<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), NotGiven> {
        let Some(name) = path.file_name() else {
            let why = "name a folder of the node's own with --state".to_owned();
            return Err(NotGiven::Wrong(path.to_owned(), why));
        };
        let above = match path.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, above, flags, Mode::empty()).map_err(cannot(above, "open it"))?;
        self.check_above(above, &parent)?;
        Ok((parent, name))
    }

    /// Only root may put another folder in the place of this one, or another file beside it.
    fn check_above(&self, path: &Path, folder: &OwnedFd) -> Result<(), NotGiven> {
        let found = fstat(folder).map_err(cannot(path, "look at it"))?;
        let is_sticky = found.st_mode & 0o1000 != 0;
        let is_open = found.st_mode & 0o002 != 0
            || (found.st_mode & 0o020 != 0 && found.st_gid == self.user.gid);
        let why = if found.st_uid == self.user.uid {
            "belongs to it"
        } else if is_open && !is_sticky {
            "can be written by it"
        } else {
            return Ok(());
        };
        Err(NotGiven::Wrong(
            path.to_owned(),
            format!(
                "what the holder remembers is kept there, beside the state of the proxy, which runs as user {}: \
                 the folder {why} (chown root and chmod go-w it, or name another folder with --state)",
                self.user
            ),
        ))
    }

    /// What is another user's is not taken from that user.
    fn check_owner(&self, path: &Path, found: &Stat) -> Result<(), NotGiven> {
        let owner = found.st_uid;
        if [geteuid().as_raw(), self.user.uid, RESERVED].contains(&owner) {
            return Ok(());
        }
        Err(NotGiven::Wrong(
            path.to_owned(),
            format!(
                "it belongs to user {owner}, the proxy runs as user {0} (chown -R {0} the state folder, or name \
                 that user with --proxy-user)",
                self.user
            ),
        ))
    }

    /// Gives a plain file that has no other name.
    fn give_file(&self, folder: &Path, at: &OwnedFd, name: &str) -> Result<(), NotGiven> {
        let path = folder.join(name);
        // Not for reading: a pipe would keep us waiting.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(at, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(cannot(&path, "open it"))?,
        };
        let found = fstat(&file).map_err(cannot(&path, "look at it"))?;
        if found.st_uid == self.user.uid && found.st_gid == self.user.gid {
            return Ok(());
        }
        self.check_owner(&path, &found)?;
        let is_plain = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_plain || found.st_nlink != 1 {
            let why = "it is no plain file that is here and nowhere else, so it is not given to the proxy (find \
                       out how it came here, and move it away)";
            return Err(NotGiven::Wrong(path, why.to_owned()));
        }
        self.chown(&path, &file, &found)
    }

    fn chown(&self, path: &Path, what: &OwnedFd, found: &Stat) -> Result<(), NotGiven> {
        let User { uid, gid } = self.user;
        if (found.st_uid, found.st_gid) == (uid, gid) {
            return Ok(());
        }
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let given = chownat(what, "", uid, gid, AtFlags::EMPTY_PATH);
        given.map_err(cannot(path, "give it to the proxy's user"))
    }
}

fn folder_at(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Takes the lock that nodes take, if there is one.
fn lock(path: &Path, folder: &OwnedFd) -> Result<Option<OwnedFd>, NotGiven> {
    let shown = path.join(LOCK);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, LOCK, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(cannot(&shown, "open it"))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(NotGiven::Busy(path.to_owned())),
        Err(error) => Err(cannot(&shown, "lock it")(error)),
    }
}

/// What is in a folder. Names that are no text are not a node's.
fn names(path: &Path, folder: &OwnedFd) -> Result<Vec<String>, NotGiven> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(cannot(path, "list it"))? {
        let entry = entry.map_err(cannot(path, "list it"))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let name = name.to_string_lossy();
        if name != "." && name != ".." {
            names.push(name.into_owned());
        }
        if names.len() > MAX_NAMES {
            let why = "there is more in it than a node keeps: look at what it is";
            return Err(NotGiven::Wrong(path.to_owned(), why.to_owned()));
        }
    }
    Ok(names)
}

fn cannot(path: &Path, what: &'static str) -> impl Fn(Errno) -> NotGiven {
    move |error| {
        let why = format!("cannot {what}: {}", std::io::Error::from(error));
        NotGiven::Wrong(path.to_owned(), why)
    }
}

fn not_a_folder(path: &Path) -> impl Fn(Errno) -> NotGiven {
    move |error| match error {
        Errno::LOOP | Errno::NOTDIR => {
            let why = "it is no folder itself (a symbolic link is not followed: name the folder that it leads \
                       to)";
            NotGiven::Wrong(path.to_owned(), why.to_owned())
        }
        other => cannot(path, "open it")(other),
    }
}
