//! Where the hierarchies of control groups are mounted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heddle_model::mountinfo::Mount;

/// Version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    pub(super) at: PathBuf,
}

/// The hierarchies that have the controllers of processors, memory and disks. On a hybrid machine a controller is in version 1
/// or in version 2, never in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounts {
    /// Shares, quotas and their statistics.
    pub(super) cpu: Option<Hierarchy>,
    /// Processor time used; with version 2 the same as `cpu`.
    pub(super) cpuacct: Option<Hierarchy>,
    pub(super) memory: Option<Hierarchy>,
    /// Weights of disks: the controller `blkio` of version 1, `io` of version 2.
    pub(super) io: Option<Hierarchy>,
}

impl Mounts {
    /// Finds the hierarchies of this machine.
    ///
    /// # Errors
    /// When `/proc/self/mountinfo` cannot be read, or no hierarchy has the `cpu` controller.
    pub fn find() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let has = |at: &Path, controller: &str| {
            let all = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
            all.split_ascii_whitespace().any(|one| one == controller)
        };
        let found = Mounts::of(&mounts, has);
        match found.cpu.is_some() {
            true => Ok(found),
            false => Err(io::Error::other(
                "no mounted hierarchy of control groups has the cpu controller: mount one at /sys/fs/cgroup",
            )),
        }
    }

    /// Reads the text of `/proc/self/mountinfo` (`proc(5)`). `has` says whether the hierarchy of version 2 at a mount
    /// point has a controller.
    fn of(mountinfo: &str, has: impl Fn(&Path, &str) -> bool) -> Self {
        let find_as = |v1: &str, v2: &str| {
            let mut mounts = Mount::all(mountinfo);
            mounts.find_map(|mount| {
                let mut options = mount.options.split(',');
                let (version, is_here) = match mount.kind {
                    "cgroup" => (Version::V1, options.any(|option| option == v1)),
                    "cgroup2" => (Version::V2, has(&mount.target, v2)),
                    _ => return None,
                };
                let at = mount.target;
                is_here.then_some(Hierarchy { version, at })
            })
        };
        let find = |controller: &str| find_as(controller, controller);
        let cpu = find("cpu");
        let cpuacct = match &cpu {
            Some(mount) if mount.version == Version::V2 => cpu.clone(),
            _ => find("cpuacct"),
        };
        Mounts {
            cpu,
            cpuacct,
            memory: find("memory"),
            io: find_as("blkio", "io"),
        }
    }

    /// Where the hierarchy with the `cpu` controller is mounted, if it has this version.
    pub fn cpu_of(&self, version: Version) -> Option<&Path> {
        let cpu = self.cpu.as_ref().filter(|cpu| cpu.version == version);
        cpu.map(|cpu| cpu.at.as_path())
    }

    /// One folder with all of them, as files of a test.
    #[cfg(test)]
    pub(crate) fn all_at(at: &Path, version: Version) -> Self {
        let mount = Some(Hierarchy {
            version,
            at: at.to_owned(),
        });
        Mounts {
            cpu: mount.clone(),
            cpuacct: mount.clone(),
            memory: mount.clone(),
            io: mount,
        }
    }

    /// The mount point of each hierarchy.
    #[cfg(test)]
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.cpu, &self.cpuacct, &self.memory, &self.io];
        all.into_iter().flatten().map(|mount| mount.at.as_path())
    }

    /// Version of the hierarchy with the `cpu` controller.
    pub fn cpu_version(&self) -> Option<Version> {
        self.cpu.as_ref().map(|mount| mount.version)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Hierarchy, Mounts, Version};

    fn at(version: Version, path: &str) -> Option<Hierarchy> {
        Some(Hierarchy {
            version,
            at: path.into(),
        })
    }

    #[test]
    fn controllers_are_found_in_either_version_and_on_hybrid_machines() {
        let v2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = Mounts::of(v2, |_, _| true);
        let there = at(Version::V2, "/sys/fs/cgroup");
        assert_eq!((&found.cpu, &found.cpuacct), (&there, &there));
        assert_eq!((&found.memory, &found.io), (&there, &there));

        let hybrid = "32 31 0:29 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:31 / /c/my\\040memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:35 / /c/blkio rw - cgroup cgroup rw,blkio\n\
                      41 31 0:38 / /c/unified rw - cgroup2 cgroup2 rw\n";
        let found = Mounts::of(hybrid, |_, _| false);
        assert_eq!(found.cpu, at(Version::V1, "/c/cpu,cpuacct"));
        assert_eq!(found.cpuacct, found.cpu);
        assert_eq!(found.memory, at(Version::V1, "/c/my memory"));
        assert_eq!(found.io, at(Version::V1, "/c/blkio"));
        let io_alone = |_: &Path, controller: &str| controller == "io";
        let other = hybrid.lines().filter(|line| !line.contains("blkio"));
        let found = Mounts::of(&other.collect::<Vec<_>>().join("\n"), io_alone);
        assert_eq!(found.io, at(Version::V2, "/c/unified"));

        // Memory may be in version 2 while the processors are in version 1.
        let memory_alone =
            |at: &Path, controller: &str| at == Path::new("/c/unified") && controller == "memory";
        let cpu = hybrid.lines().filter(|line| !line.contains("memory"));
        let found = Mounts::of(&cpu.collect::<Vec<_>>().join("\n"), memory_alone);
        assert_eq!(found.memory, at(Version::V2, "/c/unified"));
        assert_eq!(found.cpu, at(Version::V1, "/c/cpu,cpuacct"));
    }

    #[test]
    fn nonsense_is_no_mount() {
        for text in ["", "x", " - ", "1 2 3 4 /a - cgroup", "1 2 3 - cgroup2 x y"] {
            assert_eq!(Mounts::of(text, |_, _| true).cpu, None, "{text}");
        }
    }
}
