//! Gives the node's state folder to the user that the proxy runs as.
//!
//! The content of the folder was written by a proxy, which an attacker may have controlled. So no link in it is
//! followed, each file is opened once and then checked and given by its descriptor, and only files that a node keeps
//! there are given. The folder above keeps its owner: the holder keeps its own file there, beside the state.

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

/// Lock of a node's state folder. Its presence shows that a node has used the folder.
const LOCK: &str = "lock";
/// The subfolder that has files, too.
const LEAVES: &str = "leaves";
/// The folder that fsck(8) needs at the root of a file system.
const LOST: &str = "lost+found";
/// Most entries of one folder: more than a node can have.
const MAX_NAMES: usize = 200_000;

/// Why the folder was not given to the proxy's user.
#[derive(Debug)]
pub(super) enum NotGiven {
    /// A running node uses it.
    Busy(PathBuf),
    /// A path, and its problem with the remedy.
    Wrong(PathBuf, String),
}

impl fmt::Display for NotGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGiven::Busy(path) => write!(
                f,
                "{}: another process uses this folder (use that process, or stop it)",
                path.display()
            ),
            NotGiven::Wrong(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for NotGiven {}

/// Gives a node's state folder to `user`, with the files that a node has written there; creates it if it is missing.
///
/// # Errors
/// When another user could replace the folder, it is not a node's, a running node uses it, or something in it is not as
/// a node would have written it.
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
    // Held until all is given: a running node must not lose its folder.
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

/// Checks that only the holder can change the folder above a node's state folder: the holder keeps its own file there.
///
/// # Errors
/// When the proxy's user could change it.
pub(super) fn check_above(path: &Path, user: User) -> Result<(), NotGiven> {
    Giving { user }.above(path).map(drop)
}

struct Giving {
    user: User,
}

impl Giving {
    /// Opens and checks the folder above; returns it with the last component of the path.
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

    /// Refuses a folder in which the proxy's user could replace this one, or put a file beside it.
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
                "the holder keeps its file of pods there, beside the state of the proxy, which runs as user {}: \
                 the folder {why} (chown root and chmod go-w it, or name another folder with --state)",
                self.user
            ),
        ))
    }

    /// Refuses files of other users: they are not taken away from their owner.
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

    /// Gives a regular file that has no other hard link.
    fn give_file(&self, folder: &Path, at: &OwnedFd, name: &str) -> Result<(), NotGiven> {
        let path = folder.join(name);
        // Not opened for reading: opening a pipe would block.
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

/// Takes the nodes' lock, if the file exists.
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

/// Names in a folder. A name that is not UTF-8 never matches a node's file.
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
            let why = "it has more entries than a node keeps (find out what they are)";
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
