//! Reading and removing mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::UnmountFlags;

#[cfg(test)]
mod tests;

/// One line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount<'l> {
    pub(super) target: PathBuf,
    pub(super) kind: &'l str,
    /// Options of the filesystem; for control groups of version 1 they name the controllers.
    pub(super) options: &'l str,
}

impl<'l> Mount<'l> {
    pub(super) fn parse(line: &'l str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let target = unescape(front.split(' ').nth(4)?);
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1)?;
        Some(Self {
            target,
            kind,
            options,
        })
    }
}

/// mountinfo writes spaces and similar characters in octal, such as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Unmounts everything below a folder, the latest mount first.
///
/// # Errors
/// Not allowed.
pub(super) fn unmount_below(folder: &Path) -> anyhow::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let targets = mounts.lines().filter_map(Mount::parse);
    let targets: Vec<PathBuf> = targets
        .map(|mount| mount.target)
        .filter(|target| target.starts_with(folder) && target != folder)
        .collect();
    for target in targets.iter().rev() {
        rustix::mount::unmount(target, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", target.display()))?;
    }
    Ok(())
}
