//! Which namespace is which.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, fstatfs, stat};
use rustix::io::Errno;

/// The file system of namespaces (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;
/// Where our own namespace is.
pub(in crate::holder) const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Device and inode: a namespace is the same when they are.
pub(super) type Place = (u64, u64);

/// Whether it is a namespace at all: of which kind is found out by entering it.
pub(in crate::holder) fn is_namespace(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| found.f_type == NSFS_MAGIC)
}

/// Whether a path leads to a namespace. One that cannot be looked at may.
pub(super) fn leads_to(path: &Path, place: Place) -> bool {
    match stat(path) {
        Ok(found) => (found.st_dev, found.st_ino) == place,
        Err(error) => error != Errno::NOENT,
    }
}

/// How well a path is to be remembered by: whether we can follow it to the namespace, as a holder after us must; and
/// whether it outlives the process that it is named after. The greater is the better one.
pub(super) fn worth(path: &Path, place: Place) -> (bool, bool) {
    let leads_there = stat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == place);
    (leads_there, !path.starts_with("/proc"))
}

pub(in crate::holder) fn place(namespace: impl AsFd) -> io::Result<Place> {
    let found = fstat(namespace)?;
    Ok((found.st_dev, found.st_ino))
}
