//! Control groups of a lab, in every hierarchy that matters: version 2, to which BPF programs are attached, and those
//! with the CPU and memory controllers, which may be of version 1.
//!
//! ```text
//! heddle-lab-NAME/
//!   underlay                   the control plane
//!   node-X/heddle              the node's proxy and its holder
//!   node-X/dns                 its DNS
//!   node-X/tools               commands run on it by hand
//!   node-X/pods/POD            a pod's processes; BPF programs are attached to node-X/pods
//!   node-X/proxies/POD         a pod's own proxy
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use heddle_model::mountinfo::Mount;

use super::file::LabName;

#[cfg(test)]
mod tests;

/// Prefix of the groups of all labs.
const PREFIX: &str = "heddle-lab-";
/// Period of a CPU quota in microseconds, the same as containers have.
const PERIOD_US: f64 = 100_000.0;
/// Controllers of version 1 that labs use: to limit CPU, and to measure CPU and memory.
const CONTROLLERS: [&str; 3] = ["cpu", "cpuacct", "memory"];
/// Controllers of version 2, where `cpu` also measures CPU.
const UNIFIED_CONTROLLERS: [&str; 2] = ["cpu", "memory"];

/// The mounted hierarchies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// Version 2.
    unified: PathBuf,
    /// Version 1, of one of [`CONTROLLERS`].
    controllers: Vec<(&'static str, PathBuf)>,
}

/// A group: a path below the root of every hierarchy.
#[derive(Debug, Clone)]
pub(super) struct Group {
    hierarchies: Hierarchies,
    path: PathBuf,
}

impl Hierarchies {
    /// Finds the mounted hierarchies.
    ///
    /// # Errors
    /// No hierarchy of version 2 is mounted.
    pub(super) fn find() -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
        Self::of(&mounts).context(
            "no hierarchy of control groups of version 2 is mounted (mount -t cgroup2 none FOLDER)",
        )
    }

    fn of(mountinfo: &str) -> Option<Self> {
        let mut unified = None;
        let mut controllers = Vec::new();
        for mount in Mount::all(mountinfo) {
            match mount.kind {
                "cgroup2" => {
                    unified.get_or_insert(mount.target);
                }
                "cgroup" => {
                    let mut options = mount.options.split(',');
                    let found = options
                        .find_map(|option| CONTROLLERS.into_iter().find(|known| *known == option));
                    if let Some(controller) = found {
                        controllers.push((controller, mount.target));
                    }
                }
                _ => {}
            }
        }
        Some(Self {
            unified: unified?,
            controllers,
        })
    }

    fn roots(&self) -> impl Iterator<Item = &Path> {
        let others = self.controllers.iter().map(|(_, root)| root.as_path());
        // One mount may carry several controllers.
        let mut roots: Vec<&Path> = others.chain([self.unified.as_path()]).collect();
        roots.dedup();
        roots.into_iter()
    }

    /// The group of a lab, the parent of all its groups.
    pub(super) fn lab(&self, lab: &LabName) -> Group {
        Group {
            hierarchies: self.clone(),
            path: PathBuf::from(format!("{PREFIX}{lab}")),
        }
    }
}

impl Group {
    /// A group below this one.
    pub(super) fn child(&self, path: impl AsRef<Path>) -> Group {
        Group {
            hierarchies: self.hierarchies.clone(),
            path: self.path.join(path),
        }
    }

    /// Makes the group and its parents.
    ///
    /// # Errors
    /// Not allowed.
    pub(super) fn create(&self) -> anyhow::Result<()> {
        for root in self.hierarchies.roots() {
            let dir = root.join(&self.path);
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        // In version 2, a group has only the controllers that its parents hand down. The root group belongs to the
        // host and is not changed.
        if !self.hierarchies.controllers.is_empty() {
            return Ok(());
        }
        let above: Vec<&Path> = self.path.ancestors().skip(1).collect();
        for group in above.into_iter().rev().skip(1) {
            let file = self
                .hierarchies
                .unified
                .join(group)
                .join("cgroup.subtree_control");
            for controller in UNIFIED_CONTROLLERS {
                // Fails if the host does not hand it down; [`Group::hold`] then returns the error.
                let _unavailable = fs::write(&file, format!("+{controller}"));
            }
        }
        Ok(())
    }

    /// Its folder of version 2, where BPF programs are attached.
    pub(super) fn unified(&self) -> PathBuf {
        self.hierarchies.unified.join(&self.path)
    }

    /// Its folder in every hierarchy.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let roots = self.hierarchies.roots();
        roots.map(|root| root.join(&self.path)).collect()
    }

    /// The `cgroup.procs` files: a process enters by writing 0 to them.
    pub(super) fn doors(&self) -> Vec<PathBuf> {
        let folders = self.folders().into_iter();
        folders.map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Limits its processes to this many CPUs, with a quota.
    ///
    /// # Errors
    /// No hierarchy has the cpu controller, or the kernel refuses.
    pub(super) fn hold(&self, cpus: f64) -> anyhow::Result<()> {
        let quota = (cpus * PERIOD_US).round();
        let controllers = &self.hierarchies.controllers;
        let v1 = controllers.iter().find(|(name, _)| *name == "cpu");
        let files = match v1 {
            Some((_, root)) => {
                let dir = root.join(&self.path);
                vec![
                    (dir.join("cpu.cfs_period_us"), PERIOD_US.to_string()),
                    (dir.join("cpu.cfs_quota_us"), quota.to_string()),
                ]
            }
            None => vec![(
                self.unified().join("cpu.max"),
                format!("{quota} {PERIOD_US}"),
            )],
        };
        for (file, value) in files {
            fs::write(&file, &value).with_context(|| {
                format!(
                    "cannot write {value} to {} (does the host hand the cpu controller down? \
                     or leave `cpus` out)",
                    file.display()
                )
            })?;
        }
        Ok(())
    }

    /// The processes in it and in the groups below.
    pub(super) fn members(&self) -> Vec<i32> {
        let mut members = Vec::new();
        for root in self.hierarchies.roots() {
            each_below(&root.join(&self.path), &mut |dir| {
                let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            });
        }
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Whether a process is in it or in a group below, in any hierarchy.
    pub(super) fn holds(&self, pid: i32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let own = Path::new("/").join(&self.path);
        text.lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .any(|path| Path::new(path).starts_with(&own))
    }

    /// Whether it exists in any hierarchy.
    pub(super) fn exists(&self) -> bool {
        let mut roots = self.hierarchies.roots();
        roots.any(|root| root.join(&self.path).exists())
    }

    /// Removes it and the groups below. Retries until `within`: the kernel may need a moment after the last process
    /// ended.
    ///
    /// # Errors
    /// It is still in use after `within`.
    pub(super) fn remove(&self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        for root in self.hierarchies.roots() {
            let dir = root.join(&self.path);
            loop {
                let mut failure = None;
                each_below(&dir, &mut |dir| match fs::remove_dir(dir) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        failure = Some((dir.to_owned(), error));
                    }
                    _ => {}
                });
                match failure {
                    None => break,
                    Some((dir, error)) if Instant::now() > deadline => {
                        bail!("cannot remove {}: {error}", dir.display())
                    }
                    Some(_) => super::process::pause(Duration::from_millis(10)),
                }
            }
        }
        Ok(())
    }
}

/// Visits a folder and those below it, the innermost first.
fn each_below(dir: &Path, work: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            each_below(&entry.path(), work);
        }
    }
    if dir.exists() {
        work(dir);
    }
}
