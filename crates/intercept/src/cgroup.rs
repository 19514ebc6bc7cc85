//! Finds the control group (v2) of this process, see cgroups(7).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heddle_model::mountinfo::Mount;

#[cfg(test)]
mod tests;

/// Name prefix of a group that we create for ourselves.
const OURS: &str = "heddle-holder";

/// Returns the control group of this process. A process in the root group is first moved to a new group
/// `heddle-holder-PID` beneath it, because programs attached to the root group would apply to every process.
///
/// # Errors
/// When no control group file system of version 2 is mounted, or no group can be created.
pub fn own() -> io::Result<PathBuf> {
    let (root, at) = mounted()?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| io::Error::other("this process is in no control group of version 2"))?;
    let own = beneath(&at, &root, path);
    // Only the root group has no file `cgroup.type`.
    if own.join("cgroup.type").exists() {
        return Ok(own);
    }
    let made = own.join(format!("{OURS}-{}", std::process::id()));
    match fs::create_dir(&made) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::write(made.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(made)
}

/// Returns which group of the hierarchy is mounted, and the mount point.
pub(crate) fn mounted() -> io::Result<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    mount(&mounts).ok_or_else(|| {
        io::Error::other(
            "no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified",
        )
    })
}

/// Reads the mounted group and the mount point from the text of `/proc/self/mountinfo`.
fn mount(text: &str) -> Option<(PathBuf, PathBuf)> {
    let mut mounts = Mount::all(text);
    let unified = mounts.find(|mount| mount.kind == "cgroup2")?;
    Some((unified.root, unified.target))
}

/// The folder of the group `path` in a hierarchy whose group `root` is mounted at `at`.
fn beneath(at: &Path, root: &Path, path: &str) -> PathBuf {
    let path = Path::new(path);
    let within = path.strip_prefix(root).or_else(|_| path.strip_prefix("/"));
    match within {
        Ok(within) if within != Path::new("") => at.join(within),
        _ => at.to_owned(),
    }
}
