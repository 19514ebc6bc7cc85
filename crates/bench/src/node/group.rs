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
        let us = field(&stat, "usage_usec").context("no usage_usec")?;
        Ok(us as f64 / 1e6)
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

    /// Gives its processes `quota_us` microseconds of processor time in each period, or as much as there is.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn set_quota(&self, quota_us: Option<u64>, period_us: u64) -> anyhow::Result<()> {
        let found = hierarchy("cpu")?;
        let quota = quota_us.map(|us| us.to_string());
        if !found.is_v1 {
            let quota = quota.as_deref().unwrap_or("max");
            return self.write(&found, "cpu.max", &format!("{quota} {period_us}"));
        }
        // A quota longer than two periods may be refused, so the old one goes first.
        self.write(&found, "cpu.cfs_quota_us", "-1")?;
        self.write(&found, "cpu.cfs_period_us", &period_us.to_string())?;
        let quota = quota.as_deref().unwrap_or("-1");
        self.write(&found, "cpu.cfs_quota_us", quota)
    }

    /// Its quota in microseconds for each period; `None` without one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn quota_us(&self) -> anyhow::Result<Option<u64>> {
        let found = hierarchy("cpu")?;
        let file = if found.is_v1 {
            "cpu.cfs_quota_us"
        } else {
            "cpu.max"
        };
        let text = self.read(&found, file)?;
        // "-1" and "max" are no numbers of this kind.
        let first = text.split_ascii_whitespace().next();
        Ok(first.and_then(|quota| quota.parse().ok()))
    }

    /// Microseconds of quota that its processes may save up.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn burst_us(&self) -> anyhow::Result<u64> {
        let found = hierarchy("cpu")?;
        let file = if found.is_v1 {
            "cpu.cfs_burst_us"
        } else {
            "cpu.max.burst"
        };
        Ok(self.read(&found, file)?.trim().parse()?)
    }

    /// Periods in which its processes had to wait for quota.
    ///
    /// # Errors
    /// When the kernel does not count them.
    pub(super) fn throttled(&self) -> anyhow::Result<u64> {
        let stat = self.read(&hierarchy("cpu")?, "cpu.stat")?;
        field(&stat, "nr_throttled").context("no nr_throttled")
    }

    /// Limits the memory of all processes in and below it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn limit_memory(&self, bytes: u64) -> anyhow::Result<()> {
        let found = hierarchy("memory")?;
        let file = if found.is_v1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        self.write(&found, file, &bytes.to_string())
    }

    /// Bytes of memory of all processes in and below it, file pages included.
    ///
    /// # Errors
    /// When the kernel does not count them.
    pub(super) fn memory_bytes(&self) -> anyhow::Result<u64> {
        let found = hierarchy("memory")?;
        let file = if found.is_v1 {
            "memory.usage_in_bytes"
        } else {
            "memory.current"
        };
        Ok(self.read(&found, file)?.trim().parse()?)
    }

    /// Processes that the kernel has killed in it for want of memory.
    ///
    /// # Errors
    /// When the kernel does not count them.
    pub(super) fn oom_kills(&self) -> anyhow::Result<u64> {
        let found = hierarchy("memory")?;
        let file = if found.is_v1 {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        field(&self.read(&found, file)?, "oom_kill").context("no oom_kill")
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
        field(&fs::read_to_string(dir.join("memory.stat")).ok()?, "kernel")
    }

    fn read(&self, hierarchy: &Hierarchy, file: &str) -> anyhow::Result<String> {
        let path = hierarchy.root.join(&self.0).join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, hierarchy: &Hierarchy, file: &str, value: &str) -> anyhow::Result<()> {
        let path = hierarchy.root.join(&self.0).join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

/// A number of a file with a name and a number in each line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    rest.trim().parse().ok()
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
    fn a_field_has_its_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(text, "oom_kill"), Some(3));
        assert_eq!(field(text, "oom"), None);
    }

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
