//! Removing mounts.

use std::path::{Path, PathBuf};

use anyhow::Context;
use heddle_model::mountinfo::Mount;
use rustix::mount::UnmountFlags;

/// Unmounts everything below a folder, the latest mount first.
///
/// # Errors
/// Not allowed.
pub(super) fn unmount_below(folder: &Path) -> anyhow::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let targets: Vec<PathBuf> = Mount::all(&mounts)
        .map(|mount| mount.target)
        .filter(|target| target.starts_with(folder) && target != folder)
        .collect();
    for target in targets.iter().rev() {
        rustix::mount::unmount(target, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", target.display()))?;
    }
    Ok(())
}
