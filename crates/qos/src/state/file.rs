//! Files of the state folder. None is reached by a symbolic link, none is readable by other users, and none is ever half
//! replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

const MODE: u32 = 0o600;

/// An error about a file, with its path.
pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What is wrong with a file, with its path.
pub(crate) fn wrong(path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{}: {what}", path.display()),
    )
}

/// Whether a file cannot be written to, and may be read.
pub(super) fn is_not_writable(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // A pipe, which would be waited for, is refused below.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = flags.bits().cast_signed();
    let opened = options.mode(MODE).custom_flags(flags).open(path);
    let is_file = |found: &fs::Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(wrong(path, "it is no file: move it away")),
    };
    match opened {
        Ok(file) => is_file(&file.metadata().map_err(|error| about(path, &error))?).map(|()| file),
        // Such as a folder or a symbolic link.
        Err(error) => match fs::symlink_metadata(path) {
            Ok(found) => is_file(&found).and(Err(about(path, &error))),
            Err(_) => Err(about(path, &error)),
        },
    }
}

/// Opens a file to read it; `None` if there is none.
pub(crate) fn for_reading(path: &Path) -> io::Result<Option<File>> {
    match open(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Opens the lock, which is made if it is missing. A process that may open it can keep the agent from starting, so no other
/// user may.
pub(super) fn for_locking(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let lock = open(path, &mut options)?;
    check_owner(path, &lock)?;
    keep_to_ourselves(path, &lock)?;
    Ok(lock)
}

/// Opens a file to append to it, which is made if it is missing.
///
/// # Errors
/// Another user owns it or can write to it: what it says would be done. `Ok(Err)` when it can only be read.
pub(crate) fn for_appending(path: &Path) -> io::Result<io::Result<File>> {
    let mut options = OpenOptions::new();
    let opened = open(path, options.create(true).append(true));
    let file = match opened {
        Err(error) if is_not_writable(&error) => {
            if let Some(file) = for_reading(path)? {
                check_is_ours(path, &file)?;
            }
            return Ok(Err(error));
        }
        opened => opened?,
    };
    check_is_ours(path, &file)?;
    keep_to_ourselves(path, &file)?;
    Ok(Ok(file))
}

fn refused(what: String) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn check_owner(path: &Path, file: &File) -> io::Result<()> {
    let found = file.metadata().map_err(|error| about(path, &error))?;
    let (owner, user, shown) = (found.uid(), geteuid().as_raw(), path.display());
    match owner == user {
        true => Ok(()),
        false => refused(format!(
            "{shown}: it belongs to user {owner}, not to user {user}: look at what it says, then move it away"
        )),
    }
}

fn check_is_ours(path: &Path, file: &File) -> io::Result<()> {
    check_owner(path, file)?;
    let found = file.metadata().map_err(|error| about(path, &error))?;
    let shown = path.display();
    match found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => refused(format!(
            "{shown}: other users can write to it: look at what it says, then chmod 0600 {shown}"
        )),
    }
}

/// A file of an earlier version may be readable by other users.
fn keep_to_ourselves(path: &Path, file: &File) -> io::Result<()> {
    let found = file.metadata().map_err(|error| about(path, &error))?;
    if found.uid() == geteuid().as_raw() && found.mode() & 0o077 != 0 {
        let mode = fs::Permissions::from_mode(MODE);
        file.set_permissions(mode)
            .map_err(|error| about(path, &error))?;
    }
    Ok(())
}

/// The text of a file, of which at most so many bytes are read; `None` if there is none.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = for_reading(path)? else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let read = file.take(most).read_to_end(&mut text);
    read.map_err(|error| about(path, &error))?;
    Ok(Some(text))
}

/// Replaces a file, or makes it (mode 0600), in one step.
///
/// # Errors
/// When the disk refuses: the file is as before.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(text))
}

/// Replaces a file by the copy of another.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let Some(mut from) = for_reading(from)? else {
        return Err(about(from, &io::ErrorKind::NotFound.into()));
    };
    replace_by(to, |file| io::copy(&mut from, file).map(drop))
}

fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let mut options = OpenOptions::new();
    let mut file = open(&next, options.create(true).truncate(true).write(true))?;
    let written = keep_to_ourselves(&next, &file)
        .and_then(|()| write(&mut file))
        .and_then(|()| fs::rename(&next, path));
    written.map_err(|error| {
        // A full disk gets its space back.
        let _gone = fs::remove_file(&next);
        about(path, &error)
    })
}

/// Like [`replace`]. When the disk has no room for another file, the text takes the place of the old one, if it fits there:
/// a process that reads it meanwhile may find both.
pub(crate) fn overwrite_when_full(path: &Path, text: &[u8]) -> io::Result<()> {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let full = match replace(path, text) {
        Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => error,
        done => return done,
    };
    let Ok(mut file) = open(path, OpenOptions::new().write(true)) else {
        return Err(full);
    };
    let len = text.len() as u64;
    // stat(2) counts blocks of 512 bytes.
    if file.metadata().map_or(0, |found| found.blocks() * 512) < len {
        return Err(full);
    }
    let written = file.write_all(text).and_then(|()| file.set_len(len));
    written.map_err(|error| about(path, &error))
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(path, &error)),
        _ => Ok(()),
    }
}
