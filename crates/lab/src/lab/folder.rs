//! The folder of a lab while it is up: `/run/heddle/lab/NAME`.
//!
//! ```text
//! lab.json          the plan, written first: a lab is up, or was, if it is there
//! ready             written last
//! manifests/        completed, what the control plane serves
//! logs/             one file for each process
//! processes/        one note for each process
//! pods/NS.NAME/     what a pod finds in /etc
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
/// Largest plan that is read back.
const MAX_PLAN_BYTES: u64 = 64 << 20;

/// A lab's folder.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// Inode, and the time of the last change in seconds and nanoseconds.
pub(super) type PlanStamp = (u64, i64, i64);

/// Held while a lab is changed; the kernel lets go of it with the process.
#[derive(Debug)]
pub(super) struct Lock {
    folder: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would not do: a process that another thread is just starting has the descriptor, too, until it
        // becomes its program.
        let _held_no_longer = rustix::fs::flock(&self.folder, FlockOperation::Unlock);
    }
}

impl Folder {
    pub(super) fn of(lab: &LabName) -> Self {
        Self(Path::new(ROOT).join(lab.as_str()))
    }

    /// Makes it, and locks it.
    ///
    /// # Errors
    /// There is one already, or it is not allowed.
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
        // Keys of nodes will be in it.
        rustix::fs::chmod(&self.0, Mode::from_raw_mode(0o700))?;
        let lock = self.lock()?;
        for part in ["logs", "processes", "pods", "nodes"] {
            fs::create_dir(self.0.join(part))?;
        }
        fs::write(self.programs_file(), serde_json::to_vec(programs)?)?;
        fs::write(self.plan_file(), serde_json::to_vec(plan)?)?;
        Ok(lock)
    }

    /// Does not wait: when another process changes the lab now, the error asks the user to wait.
    ///
    /// # Errors
    /// Another process changes it, or it is not there.
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

    /// The plan of the lab that it belongs to.
    ///
    /// # Errors
    /// There is none, or it was interrupted before it was written.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        read(&self.plan_file())
    }

    /// Puts another plan in the place of the one before, at once.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn replace_plan(&self, plan: &Plan) -> anyhow::Result<()> {
        let next = self.0.join("lab.json.next");
        let written = fs::write(&next, serde_json::to_vec(plan)?);
        let written = written.and_then(|()| fs::rename(&next, self.plan_file()));
        written.with_context(|| next.display().to_string())
    }

    /// Notes pods that are being made or changed, so that it is known what was not finished.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin_with(&self, pods: &[&WorkloadName]) -> anyhow::Result<()> {
        Ok(fs::write(
            self.unfinished_file(),
            serde_json::to_vec(pods)?,
        )?)
    }

    /// All of them are what they are to be.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.unfinished_file())?)
    }

    /// The pods that were begun with and not finished.
    pub(super) fn unfinished(&self) -> Vec<WorkloadName> {
        read(&self.unfinished_file()).unwrap_or_default()
    }

    fn unfinished_file(&self) -> PathBuf {
        self.0.join("unfinished.json")
    }

    /// Which plan it is: another one after [`Folder::replace_plan`].
    pub(super) fn plan_stamp(&self) -> Option<PlanStamp> {
        let plan = fs::metadata(self.plan_file()).ok()?;
        Some((plan.ino(), plan.mtime(), plan.mtime_nsec()))
    }

    /// The programs that it is made of.
    ///
    /// # Errors
    /// As for [`Folder::plan`].
    pub(super) fn programs(&self) -> anyhow::Result<Programs> {
        read(&self.programs_file())
    }

    /// Says that everything is there.
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

    /// Removes the BPF objects that nodes have pinned: they would outlive the file system that they are in, as
    /// long as any process has a view of it.
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
            // The files beside them are the kernel's own.
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Removes it. Nothing may be mounted in it any more.
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
        // Others' labs, or what else Heddle keeps there, make these fail, rightly.
        let _in_use = fs::remove_dir(ROOT);
        Ok(())
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let shown = || file.display().to_string();
    let size = fs::metadata(file).with_context(shown)?.len();
    if size > MAX_PLAN_BYTES {
        bail!("{}: with {size} bytes this is none of a lab's", shown());
    }
    serde_json::from_slice(&fs::read(file).with_context(shown)?).with_context(shown)
}

/// Removes the folder that everything of Heddle is in, if nothing is.
pub(super) fn remove_root() {
    let _in_use = Path::new(ROOT).parent().map(fs::remove_dir);
}

/// The labs that have a folder, sorted.
pub(super) fn labs() -> Vec<LabName> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut labs: Vec<LabName> = entries
        .filter_map(|entry| LabName::parse(entry.file_name().to_str()?).ok())
        .collect();
    labs.sort();
    labs
}
