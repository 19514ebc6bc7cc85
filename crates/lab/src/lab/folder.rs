//! The folder of a lab while it is up: `/run/heddle/lab/NAME`.
//!
//! ```text
//! lab.json          the plan, written first: if it is there, the lab is up or was interrupted
//! ready             written last
//! manifests/        the completed copies, which the control plane serves
//! logs/             one file for each process
//! processes/        one note for each process
//! pods/NS.NAME/     files for a pod's /etc
//! nodes/NAME/       sockets, keys and state of a node, and bpf/, a filesystem of BPF objects
//! ```

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use heddle_model::WorkloadName;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::de::DeserializeOwned;

use super::file::LabName;
use super::plan::Plan;
use super::programs::Programs;

/// Where the folders of labs are.
const ROOT: &str = "/run/heddle/lab";
/// Limit for reading a plan back.
const MAX_PLAN_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// Inode, and the time of the last change in seconds and nanoseconds.
pub(super) type PlanStamp = (u64, i64, i64);

/// Exclusive lock for changing a lab; the kernel releases it when the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    folder: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a child that another thread is just forking holds a copy of it until
        // its exec.
        let _held_no_longer = rustix::fs::flock(&self.folder, FlockOperation::Unlock);
    }
}

impl Folder {
    pub(super) fn of(lab: &LabName) -> Self {
        Self(Path::new(ROOT).join(lab.as_str()))
    }

    /// Makes the folder and locks it.
    ///
    /// # Errors The lab exists already, or this process lacks rights.
    pub(super) fn create(&self, plan: &Plan, programs: &Programs) -> anyhow::Result<Lock> {
        let shown = self.0.display();
        fs::create_dir_all(ROOT).with_context(|| format!("cannot make {ROOT}"))?;
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "the lab {0} is there already (heddle-lab status {0}, heddle-lab apply FILE to take over changes, or heddle-lab down {0})",
                plan.name
            ),
            done => done.with_context(|| format!("cannot make {shown}"))?,
        }
        // It will hold private keys of nodes.
        rustix::fs::chmod(&self.0, Mode::from_raw_mode(0o700))?;
        let lock = self.lock()?;
        for part in ["logs", "processes", "pods", "nodes"] {
            fs::create_dir(self.0.join(part))?;
        }
        fs::write(self.programs_file(), serde_json::to_vec(programs)?)?;
        fs::write(self.plan_file(), serde_json::to_vec(plan)?)?;
        Ok(lock)
    }

    /// Does not block: if another process holds the lock, the error asks the user to wait.
    ///
    /// # Errors Another process changes the lab, or the folder does not exist.
    pub(super) fn lock(&self) -> anyhow::Result<Lock> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.0, flags, Mode::empty())
            .with_context(|| self.0.display().to_string())?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).with_context(
            || {
                let shown = self.0.display();
                format!("{shown}: another heddle-lab is at work on this lab (wait for it)")
            },
        )?;
        Ok(Lock { folder })
    }

    /// # Errors The plan does not exist, or the lab was interrupted before it was written.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        read(&self.plan_file())
    }

    /// Replaces the plan atomically.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn replace_plan(&self, plan: &Plan) -> anyhow::Result<()> {
        let next = self.0.join("lab.json.next");
        let written = fs::write(&next, serde_json::to_vec(plan)?);
        let written = written.and_then(|()| fs::rename(&next, self.plan_file()));
        written.with_context(|| next.display().to_string())
    }

    /// Records the pods that are about to be made or changed, so that the next call can finish interrupted work.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin_with(&self, pods: &[&WorkloadName]) -> anyhow::Result<()> {
        Ok(fs::write(
            self.unfinished_file(),
            serde_json::to_vec(pods)?,
        )?)
    }

    /// Removes the record: all of these pods are complete.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.unfinished_file())?)
    }

    /// The pods recorded by [`Folder::begin_with`] and not finished.
    pub(super) fn unfinished(&self) -> Vec<WorkloadName> {
        read(&self.unfinished_file()).unwrap_or_default()
    }

    fn unfinished_file(&self) -> PathBuf {
        self.0.join("unfinished.json")
    }

    /// Identifies the plan; changes with [`Folder::replace_plan`].
    pub(super) fn plan_stamp(&self) -> Option<PlanStamp> {
        let plan = fs::metadata(self.plan_file()).ok()?;
        Some((plan.ino(), plan.mtime(), plan.mtime_nsec()))
    }

    /// The programs that the lab was made with.
    ///
    /// # Errors
    /// As for [`Folder::plan`].
    pub(super) fn programs(&self) -> anyhow::Result<Programs> {
        read(&self.programs_file())
    }

    /// Marks the lab as complete.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn set_ready(&self) -> anyhow::Result<()> {
        Ok(fs::write(self.0.join("ready"), "")?)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.join("ready").exists()
    }

    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    fn plan_file(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    fn programs_file(&self) -> PathBuf {
        self.0.join("programs.json")
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn manifests(&self) -> PathBuf {
        self.0.join("manifests")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(super) fn notes(&self) -> PathBuf {
        self.0.join("processes")
    }

    pub(super) fn pod(&self, file_name: &str) -> PathBuf {
        self.0.join("pods").join(file_name)
    }

    pub(super) fn node(&self, name: &str) -> PathBuf {
        self.0.join("nodes").join(name)
    }

    /// Removes the BPF objects that nodes have pinned: they would outlive their filesystem as long as any mount
    /// namespace still shows it.
    ///
    /// # Errors
    /// Not allowed.
    pub(super) fn remove_pins(&self) -> anyhow::Result<()> {
        let nodes = fs::read_dir(self.0.join("nodes")).into_iter().flatten();
        let pins = nodes.flatten().map(|node| node.path().join("bpf"));
        let pins = pins
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten();
        for entry in pins.flatten() {
            let path = entry.path();
            // The plain files beside the folders are the kernel's own.
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Removes the folder. Nothing may be mounted in it any more.
    ///
    /// # Errors
    /// Not allowed.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let shown = self.0.display();
                return Err(error).with_context(|| format!("cannot remove {shown}"));
            }
            _ => {}
        }
        // Rightly fails while other labs have folders there.
        let _in_use = fs::remove_dir(ROOT);
        Ok(())
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let shown = || file.display().to_string();
    let size = fs::metadata(file).with_context(shown)?.len();
    if size > MAX_PLAN_BYTES {
        bail!("{}: {size} bytes are too many for a file of a lab", shown());
    }
    serde_json::from_slice(&fs::read(file).with_context(shown)?).with_context(shown)
}

/// Removes Heddle's folder in `/run`, if it is empty.
pub(super) fn remove_root() {
    let _in_use = Path::new(ROOT).parent().map(fs::remove_dir);
}

/// The names of labs that have a folder, sorted.
pub(super) fn labs() -> Vec<LabName> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut labs: Vec<LabName> = entries
        .filter_map(|entry| LabName::parse(entry.file_name().to_str()?).ok())
        .collect();
    labs.sort();
    labs
}
