//! Checks of the folder with the pins: a user who can write to it could end the guard of pods, or give a new holder
//! false entries.

use std::io;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstatfs, mkdir, openat, statat, statfs,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{BPF_FS_MAGIC, HookError};

/// Advice in error messages.
const REMEDY: &str = "make it root's with mode 0700, or name another with --bpffs";

/// Creates the folder with mode 0700 if it does not exist, and checks that no other user can write to it.
///
/// # Errors
/// [`HookError::Lacking`] when there is no BPF file system; [`HookError::Path`] when others can write to the folder.
pub(super) fn make(folder: &Path) -> Result<(), HookError> {
    let is_bpf = |path: &Path| statfs(path).is_ok_and(|system| system.f_type == BPF_FS_MAGIC);
    if !is_bpf(folder) && !is_bpf(above(folder)) {
        return Err(HookError::Lacking {
            what: "guard".to_owned(),
            reason: format!(
                "{} is on no BPF file system. Mount one: mount -t bpf bpf /sys/fs/bpf",
                folder.display()
            ),
        });
    }
    match mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(cannot(folder, "make it", error)),
    }
    match check(folder)? {
        true => Ok(()),
        false => Err(cannot(folder, "open it", Errno::NOENT)),
    }
}

/// Whether the folder exists. If it does, only we can write to it, and no other user can replace it.
///
/// # Errors
/// When it exists and one of these conditions does not hold.
pub(super) fn check(folder: &Path) -> Result<bool, HookError> {
    let parent = above(folder);
    let found = match statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        found => found.map_err(|error| cannot(folder, "look at it", error))?,
    };
    let around = statat(CWD, parent, AtFlags::empty());
    let around = around.map_err(|error| cannot(parent, "look at it", error))?;
    // Every user may write to the root of a BPF file system by default; its sticky bit then protects our folder.
    if !is_ours(&around) || (is_open(&around) && around.st_mode & 0o1000 == 0) {
        return Err(unsafe_folder(parent, &around));
    }
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory if !is_ours(&found) || is_open(&found) => {
            return Err(unsafe_folder(folder, &found));
        }
        FileType::Directory => {}
        FileType::Symlink => {
            let why =
                "is a symbolic link, which is not followed: name the folder itself with --bpffs";
            return Err(HookError::path(folder, why));
        }
        _ => {
            return Err(HookError::path(
                folder,
                "is no folder: name another with --bpffs",
            ));
        }
    }
    // Open it without following links, and check the file system of what was opened.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty());
    let opened = opened.map_err(|error| cannot(folder, "open it", error))?;
    match fstatfs(&opened) {
        Ok(system) if system.f_type == BPF_FS_MAGIC => Ok(true),
        Ok(_) => Err(HookError::path(
            folder,
            "is not on a BPF file system, although the folder that it is in is: name another with --bpffs",
        )),
        Err(error) => Err(cannot(folder, "look at its file system", error)),
    }
}

fn above(folder: &Path) -> &Path {
    match folder.parent() {
        Some(above) if above != Path::new("") => above,
        Some(_) => Path::new("."),
        None => folder,
    }
}

/// Whether root or our user owns it.
fn is_ours(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == geteuid().as_raw()
}

/// Whether group or others may write to it.
fn is_open(found: &Stat) -> bool {
    found.st_mode & 0o022 != 0
}

fn unsafe_folder(folder: &Path, found: &Stat) -> HookError {
    let why = match is_ours(found) {
        false => format!(
            "belongs to user {}, who could end the guard of pods, or guard others: {REMEDY}",
            found.st_uid
        ),
        true => format!(
            "can be written by others (its mode is {:04o}), who could end the guard of pods: {REMEDY}",
            found.st_mode & 0o7777
        ),
    };
    HookError::path(folder, why)
}

fn cannot(path: &Path, what: &str, error: Errno) -> HookError {
    HookError::path(path, format!("cannot {what}: {}", io::Error::from(error)))
}
