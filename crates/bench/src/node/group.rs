//! Control groups of a lab as an experiment uses them: weight, quota, kernel memory.
//!
//! Only groups of labs that the experiment itself made are written to; the lab removes them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The period of a quota. It is what containers have by default.
const PERIOD_US: u64 = 100_000;

/// A group, by its path below the root of any hierarchy.
#[derive(Debug, Clone)]
pub(super) struct LabGroup(PathBuf);

/// Where a controller is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    is_v1: bool,
}

impl LabGroup {
    /// The group of a lab, or the group `within` it.
    pub(super) fn of_lab(lab: &str, within: &str) -> LabGroup {
        LabGroup(Path::new(&format!("heddle-lab-{lab}")).join(within))
    }

    /// Its path below the root of any hierarchy.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it where processors and memory are controlled; the lab removes it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn create(&self) -> anyhow::Result<()> {
        for folder in self.folders()? {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(())
    }

    /// Its folders, in each hierarchy with a controller of processors or memory.
    ///
    /// # Errors
    /// When no hierarchy controls them.
    pub(super) fn folders(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for controller in ["cpu", "cpuacct", "memory"] {
            let folder = hierarchy(controller)?.root.join(&self.0);
            if !all.contains(&folder) {
                all.push(folder);
            }
        }
        Ok(all)
    }

    /// Lets its processes run only while nothing else beside it wants to.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn make_idle(&self) -> anyhow::Result<()> {
        self.write(&hierarchy("cpu")?, "cpu.idle", "1")
    }

    /// Whether that is so.
    pub(super) fn is_idle(&self) -> bool {
        let root = hierarchy("cpu").map(|found| found.root);
        let idle = root.map(|root| fs::read_to_string(root.join(&self.0).join("cpu.idle")));
        matches!(idle, Ok(Ok(text)) if text.trim() == "1")
    }

    /// Processor time that its processes have used, in seconds.
    ///
    /// # Errors
    /// When the kernel does not count it.
    pub(super) fn used_s(&self) -> anyhow::Result<f64> {
        let found = hierarchy("cpuacct")?;
        let folder = found.root.join(&self.0);
        if found.is_v1 {
            let ns = fs::read_to_string(folder.join("cpuacct.usage"))?;
            return Ok(ns.trim().parse::<u64>()? as f64 / 1e9);
        }
        let stat = fs::read_to_string(folder.join("cpu.stat"))?;
        let mut lines = stat.lines();
        let us = lines.find_map(|line| line.strip_prefix("usage_usec "));
        Ok(us.context("no usage_usec")?.parse::<u64>()? as f64 / 1e6)
    }

    /// Gives its processes precedence over everything else on the machine. Best effort: without it a busy machine only
    /// makes the figures noisier.
    pub(super) fn favour(&self) {
        let written = hierarchy("cpu").and_then(|found| {
            let (file, value) = match found.is_v1 {
                true => ("cpu.shares", "262144"),
                false => ("cpu.weight", "10000"),
            };
            self.write(&found, file, value)
        });
        drop(written);
    }

    /// Limits its processes to `cores` cores.
    ///
    /// # Errors
    /// When no hierarchy controls CPU, or the kernel refuses.
    pub(super) fn hold(&self, cores: f64) -> anyhow::Result<()> {
        let found = hierarchy("cpu")?;
        let quota = (cores * PERIOD_US as f64) as u64;
        if !found.is_v1 {
            return self.write(&found, "cpu.max", &format!("{quota} {PERIOD_US}"));
        }
        self.write(&found, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
        self.write(&found, "cpu.cfs_quota_us", &quota.to_string())
    }

    /// Moves processes into the group, for their CPU time only.
    ///
    /// # Errors
    /// When version 2 controls CPU. There a proxy cannot be in its pod's group, because that group tells connections
    /// that the pod opens from those that the proxy opens.
    pub(super) fn take_in(&self, pids: &[u32]) -> anyhow::Result<()> {
        let found = hierarchy("cpu")?;
        if !found.is_v1 {
            bail!("a pod's quota cannot hold its proxy where version 2 controls processors");
        }
        pids.iter()
            .try_for_each(|pid| self.write(&found, "cgroup.procs", &pid.to_string()))
    }

    /// Makes the group in the memory hierarchy only and moves a process into it, so that the kernel memory of that
    /// process is counted apart.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn count_memory_of(&self, pid: u32) -> anyhow::Result<()> {
        let found = hierarchy("memory")?;
        if !found.is_v1 {
            // In version 2 the move would apply to every controller; `kernel_bytes` is `None` then.
            return Ok(());
        }
        let dir = found.root.join(&self.0);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        self.write(&found, "cgroup.procs", &pid.to_string())
    }

    /// Kernel memory of its processes: sockets, open files, page tables, maps and programs of BPF. `None`: the kernel
    /// does not count that here.
    pub(super) fn kernel_bytes(&self) -> Option<u64> {
        let found = hierarchy("memory").ok()?;
        let dir = found.root.join(&self.0);
        if found.is_v1 {
            let text = fs::read_to_string(dir.join("memory.kmem.usage_in_bytes")).ok()?;
            return text.trim().parse().ok();
        }
        let text = fs::read_to_string(dir.join("memory.stat")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("kernel "))?;
        line.trim().parse().ok()
    }

    fn write(&self, hierarchy: &Hierarchy, file: &str, value: &str) -> anyhow::Result<()> {
        let path = hierarchy.root.join(&self.0).join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

fn hierarchy(controller: &str) -> anyhow::Result<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    find(&mounts, controller).context("no hierarchy of control groups is mounted")
}

/// Version 1 where it has the controller, else version 2.
fn find(mounts: &str, controller: &str) -> Option<Hierarchy> {
    let mut v2 = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(dir), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let root = PathBuf::from(dir);
        if kind == "cgroup" && options.split(',').any(|option| option == controller) {
            return Some(Hierarchy { root, is_v1: true });
        }
        if kind == "cgroup2" {
            v2.get_or_insert(Hierarchy { root, is_v1: false });
        }
    }
    v2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_goes_first_and_version_2_has_the_rest() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        let cpu = find(mounts, "cpu").expect("cpu");
        assert_eq!((cpu.root, cpu.is_v1), ("/sys/fs/cgroup/cpu".into(), true));
        let memory = find(mounts, "memory").expect("memory");
        assert_eq!(memory.root, Path::new("/sys/fs/cgroup/unified"));
        assert!(!memory.is_v1);
        assert_eq!(find("proc /proc proc rw 0 0\n", "cpu"), None);
    }
}
