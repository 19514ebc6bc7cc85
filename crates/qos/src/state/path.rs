//! The path of the state folder: only root and this user can change what is there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

use super::file::about;

/// Symbolic links in a path that are followed, as the kernel does (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Makes the folder, and checks that no other user can write to it, or replace it.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    // Without a `/` at the end, which would follow a link.
    let folder: PathBuf = std::path::absolute(folder)?.components().collect();
    // What is there, before anything is made in it.
    check_above(&folder)?;
    // Folders above it, too: root's sockets are in the one that holds it by default.
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    let found = match fs::symlink_metadata(&folder) {
        Ok(found) => found,
        Err(error) => return Err(about(&folder, &made.err().unwrap_or(error))),
    };
    check_itself(&folder, &found)?;
    check_above(&folder)
}

fn refused(kind: io::ErrorKind, what: String) -> io::Result<()> {
    Err(io::Error::new(kind, what))
}

fn check_itself(folder: &Path, found: &Metadata) -> io::Result<()> {
    let shown = folder.display();
    if found.is_symlink() {
        let to = fs::canonicalize(folder).or_else(|_| fs::read_link(folder));
        let to = to.unwrap_or_default();
        let what = format!(
            "{shown} is a symbolic link, and another folder could take its place: name the folder that it leads to, {}, by --state (qos.state)",
            to.display()
        );
        return refused(io::ErrorKind::InvalidInput, what);
    }
    if !found.is_dir() {
        let what = format!(
            "{shown} is a file, and the state folder must be a folder: name another by --state (qos.state), or move the file away"
        );
        return refused(io::ErrorKind::NotADirectory, what);
    }
    let user = geteuid();
    let owner = found.uid();
    if owner != user.as_raw() {
        let remedy = match user.is_root() {
            true => format!(
                "remove what that user may have put there, then chown root {shown}; or name another folder by --state (qos.state)"
            ),
            false => {
                "run this as that user, or name another folder by --state (qos.state)".to_owned()
            }
        };
        let what = format!("{shown} belongs to user {owner}: {remedy}");
        return refused(io::ErrorKind::PermissionDenied, what);
    }
    match found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => refused(
            io::ErrorKind::PermissionDenied,
            format!(
                "other users can write to {shown}: look at what is there, then chmod 0700 {shown}"
            ),
        ),
    }
}

/// Checks the folders above, and those above each link in the path. Those that are missing will be ours.
fn check_above(folder: &Path) -> io::Result<()> {
    let mut rest = VecDeque::new();
    put_first(&mut rest, folder.parent().unwrap_or(folder));
    let mut at = PathBuf::from("/");
    let root = fs::metadata(&at).map_err(|error| about(&at, &error))?;
    // In a user namespace, root of the machine has another number.
    let trusted = [0, geteuid().as_raw(), root.uid()];
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        let found = match fs::symlink_metadata(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| about(&next, &error))?,
        };
        check_one(&next, &found, folder, &trusted)?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            let what = format!("{}: too many symbolic links", folder.display());
            return refused(io::ErrorKind::InvalidInput, what);
        }
        let target = fs::read_link(&next).map_err(|error| about(&next, &error))?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        put_first(&mut rest, &target);
    }
    Ok(())
}

/// Puts the parts of a path before those that are there.
fn put_first(rest: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(_) | Component::ParentDir => {
                rest.push_front(part.as_os_str().to_owned());
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

/// Checks one folder, or link, above the state folder. In a folder that is sticky a user replaces nothing of others.
fn check_one(path: &Path, found: &Metadata, folder: &Path, trusted: &[u32]) -> io::Result<()> {
    let (shown, folder) = (path.display(), folder.display());
    if !trusted.contains(&found.uid()) {
        let owner = found.uid();
        let what = format!(
            "{shown} belongs to user {owner}, who could replace the state folder {folder}: name another folder by --state (qos.state), or chown root {shown}"
        );
        return refused(io::ErrorKind::PermissionDenied, what);
    }
    let mode = found.mode();
    let is_open = found.is_dir() && mode & 0o022 != 0 && mode & 0o1000 == 0;
    match is_open {
        false => Ok(()),
        true => refused(
            io::ErrorKind::PermissionDenied,
            format!(
                "other users can write to {shown} and replace the state folder {folder}: chmod go-w {shown}, or name another folder by --state (qos.state)"
            ),
        ),
    }
}
