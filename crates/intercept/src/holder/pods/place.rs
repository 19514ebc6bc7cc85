//! Identity of namespaces.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, fstatfs, stat};
use rustix::io::Errno;

/// Magic number of the namespace file system (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;
/// Path of our own network namespace.
pub(in crate::holder) const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Device and inode number, which identify a namespace.
pub(super) type Place = (u64, u64);

/// Whether it is a namespace, of any kind. The kind is found out when it is entered.
pub(in crate::holder) fn is_namespace(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| found.f_type == NSFS_MAGIC)
}

/// Whether a path leads to a namespace. A path that cannot be examined counts as leading there.
pub(super) fn leads_to(path: &Path, place: Place) -> bool {
    match stat(path) {
        Ok(found) => (found.st_dev, found.st_ino) == place,
        Err(error) => error != Errno::NOENT,
    }
}

/// Ranks a path for storing, the greater the better: whether we can follow it to the namespace, as a restarted holder
/// must; then whether it is outside `/proc`, and so outlives a process.
pub(super) fn worth(path: &Path, place: Place) -> (bool, bool) {
    let leads_there = stat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == place);
    (leads_there, !path.starts_with("/proc"))
}

pub(in crate::holder) fn place(namespace: impl AsFd) -> io::Result<Place> {
    let found = fstat(namespace)?;
    Ok((found.st_dev, found.st_ino))
}
