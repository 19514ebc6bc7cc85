//! A control group of our own with a CPU quota: cgroup v1's `cpu` controller, or cgroup v2.
//!
//! Only groups named `heddle-lab-…` are made, entered and removed; nothing that exists is changed.
//! Both kinds live side by side on hosts, so the mount table decides.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// How long a quota's period is. Short, so that a proxy at its quota pauses for milliseconds.
const PERIOD_US: u64 = 20_000;

/// What the names of our groups begin with; the process id of their lab follows.
const PREFIX: &str = "heddle-lab-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A group with a quota; dropping it removes it, once its processes have ended.
#[derive(Debug)]
pub(super) struct QuotaGroup {
    dir: PathBuf,
    version: Version,
}

impl QuotaGroup {
    /// Makes a group below the root of the hierarchy that controls CPU.
    ///
    /// # Errors
    /// Says why there can be none: no such hierarchy, or not allowed.
    pub(super) fn create(name: &str) -> anyhow::Result<QuotaGroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let Some((root, version)) = hierarchy(&mounts, v2_controls_cpu) else {
            bail!("no mounted cgroup hierarchy controls CPU");
        };
        sweep(&root);
        let dir = root.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let group = QuotaGroup { dir, version };
        group.favour();
        Ok(group)
    }

    /// Where processes enter it.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Holds the group to that part of one core; `None` lifts it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn hold(&self, cores: Option<f64>) -> anyhow::Result<()> {
        let quota = cores.map(|cores| (cores * PERIOD_US as f64) as u64);
        match self.version {
            Version::V1 => {
                self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                let quota = quota.map_or("-1".to_owned(), |quota| quota.to_string());
                self.write("cpu.cfs_quota_us", &quota)
            }
            Version::V2 => {
                let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
                self.write("cpu.max", &format!("{quota} {PERIOD_US}"))
            }
        }
    }

    /// Gives the group that part, 0 to 1, of the weight that others of ours have.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn share(&self, part: f64) -> anyhow::Result<()> {
        let (file, most) = self.weight();
        let weight = (f64::from(most) * part.clamp(0.0, 1.0)) as u32;
        self.write(file, &weight.max(1).to_string())
    }

    /// Where its weight beside other groups stands, and the most that it may be.
    fn weight(&self) -> (&'static str, u32) {
        match self.version {
            Version::V1 => ("cpu.shares", 262_144),
            Version::V2 => ("cpu.weight", 10_000),
        }
    }

    /// Lets the measured processes win over whatever else runs on the machine. Best effort: without it
    /// a busy machine only makes the figures noisier.
    fn favour(&self) {
        drop(self.share(1.0));
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Fails only while a process is inside, and then the process is the thing to look at.
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("heddle-lab: cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Removes the empty groups of labs that were interrupted.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let abandoned = name
            .to_str()
            .and_then(|name| {
                name.strip_prefix(PREFIX)?
                    .split('-')
                    .next()?
                    .parse::<u32>()
                    .ok()
            })
            .is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if abandoned && let Err(error) = fs::remove_dir(entry.path()) {
            eprintln!(
                "heddle-lab: cannot remove {}: {error}",
                entry.path().display()
            );
        }
    }
}

/// The root of the hierarchy that controls CPU, and its kind. A v2 mount counts only if its root hands
/// the controller down.
fn hierarchy(mounts: &str, v2_controls_cpu: impl Fn(&Path) -> bool) -> Option<(PathBuf, Version)> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (dir, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let dir = PathBuf::from(dir);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                Some((dir, Version::V1))
            }
            "cgroup2" if v2_controls_cpu(&dir) => Some((dir, Version::V2)),
            _ => None,
        }
    })
}

fn v2_controls_cpu(root: &Path) -> bool {
    let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    enabled
        .split_ascii_whitespace()
        .any(|controller| controller == "cpu")
}

#[cfg(test)]
mod tests;
