//! A control group of our own with a CPU quota: cgroup v1's `cpu` controller, or cgroup v2.
//!
//! Only groups named `heddle-lab-…` are made, entered and removed; nothing that exists is changed.
//! A host may have both kinds mounted, so the mount table decides.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The period of a quota. Short, so that a proxy at its quota pauses for milliseconds.
const PERIOD_US: u64 = 20_000;

/// Prefix of the names of our groups; the process id of the lab follows.
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
    /// When no hierarchy controls CPU, or making a group is not allowed.
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

    /// The folder of the group: a process enters the group through its `cgroup.procs`.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Limits the group to `cores` cores; `None` lifts the limit.
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

    /// Sets the CPU weight of the group to the fraction `part`, 0 to 1, of the maximum, which our other groups have.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn share(&self, part: f64) -> anyhow::Result<()> {
        let (file, most) = self.weight();
        let weight = (f64::from(most) * part.clamp(0.0, 1.0)) as u32;
        self.write(file, &weight.max(1).to_string())
    }

    /// The file with the CPU weight of the group, and the maximum of that weight.
    fn weight(&self) -> (&'static str, u32) {
        match self.version {
            Version::V1 => ("cpu.shares", 262_144),
            Version::V2 => ("cpu.weight", 10_000),
        }
    }

    /// Gives the measured processes precedence over everything else on the machine. Best effort: without it a busy
    /// machine only makes the figures noisier.
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
        // Fails only while a process is inside: then find out why that process has not ended.
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("heddle-lab: cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Removes the empty groups that interrupted labs have left behind.
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

/// The root of the hierarchy that controls CPU, and its version. A v2 mount counts only if its root enables the
/// controller for child groups.
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
