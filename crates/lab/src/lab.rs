//! Nodes and pods on one machine: network namespaces, control groups, names, and the mesh between them.
//!
//! ```text
//!   file ──▶ plan ──▶ namespaces, groups ──▶ network ──▶ DNS ──▶ mesh ──▶ pods' programs
//!            every address                                       (heddle)
//! ```
//!
//! A [`Plan`] describes the whole lab; it is read and checked before anything is made. [`Lab::up`] makes the lab and
//! returns when every part is ready; the lab's processes keep running. The name of each namespace, control group and
//! folder begins with the lab's name, so [`down`] finds them again even if the process that made them crashed. The
//! host's network is not touched: links exist only between namespaces of the lab.
//!
//! These calls block; they start threads and runtimes of their own where they need them.

mod address;
mod apply;
mod cgroup;
pub mod commands;
mod dns;
mod etc;
mod file;
mod folder;
mod heddle;
mod keeper;
mod listening;
mod making;
mod manifests;
mod mount;
mod namespace;
mod network;
mod node;
mod output;
mod place;
mod plan;
mod pod;
mod process;
mod programs;
mod requirements;
mod restart;
mod session;
mod settings;
mod sidecar;
mod status;
mod which;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

pub use file::{Carried, Family, Hooks, LabName, Restart};
pub use node::Node;
pub use plan::{NodePlan, Plan, PodPlan, ServicePlan};
pub use pod::Pod;
pub use process::Note;
pub use programs::Programs;

use cgroup::{Group, Hierarchies};
use folder::Folder;
use namespace::Role;
use place::Place;

/// How long to retry the removal of control groups: the kernel may need a moment after their processes have ended.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);

/// A lab that is up. Dropping it takes the lab down, unless [`Lab::stay`] was called.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    folder: Folder,
    groups: Group,
    programs: Programs,
    is_ours: bool,
}

impl Lab {
    /// Makes the lab, with the programs that are found beside this one or in `PATH`.
    ///
    /// # Errors
    /// This process lacks rights, a requirement is missing, the lab exists already, or a part of it does not get
    /// ready. Everything that was made is removed again.
    pub fn up(plan: &Plan) -> anyhow::Result<Self> {
        Self::up_with(plan, &Programs::find()?, &mut |_| {})
    }

    /// As [`Lab::up`], with these programs; `progress` is called after each step.
    ///
    /// # Errors
    /// As for [`Lab::up`].
    pub fn up_with(
        plan: &Plan,
        programs: &Programs,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Self> {
        requirements::check(plan)?;
        settings::check(plan, programs.heddle.as_deref())?;
        let hierarchies = Hierarchies::find()?;
        let folder = Folder::of(&plan.name);
        let lock = folder.create(plan, programs)?;
        let lab = Self {
            plan: plan.clone(),
            groups: hierarchies.lab(&plan.name),
            folder,
            programs: programs.clone(),
            is_ours: true,
        };
        let made = lab.make(progress);
        drop(lock);
        let made = made.and_then(|()| lab.folder.set_ready());
        match made {
            Ok(()) => Ok(lab),
            Err(error) if programs.keep => {
                lab.stay();
                Err(error)
            }
            // Dropping the lab takes down the parts that were made.
            Err(error) => Err(error),
        }
    }

    /// A lab that another process has brought up. Dropping it does not take the lab down.
    ///
    /// # Errors
    /// No lab has that name, or this process lacks rights.
    pub fn open(name: &LabName) -> anyhow::Result<Self> {
        requirements::check_rights()?;
        let folder = Folder::of(name);
        if !folder.exists() {
            bail!("there is no lab {name} (heddle-lab list says which there are)");
        }
        let plan = folder.plan();
        let plan = plan.with_context(|| {
            format!("the lab {name} is incomplete, or another version of heddle-lab made it")
        })?;
        Ok(Self {
            groups: Hierarchies::find()?.lab(name),
            programs: folder.programs()?,
            plan,
            folder,
            is_ours: false,
        })
    }

    /// The plan that the lab was made from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether every part of the lab was made. `false` while it is being made, or if that was interrupted.
    pub fn is_ready(&self) -> bool {
        self.folder.is_ready()
    }

    /// The folder of its logs, sockets and completed manifests.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The processes that were started for it, including those that have ended.
    pub fn processes(&self) -> Vec<Note> {
        Note::all(&self.folder.notes())
    }

    /// The pod `NAMESPACE/NAME`.
    ///
    /// # Errors
    /// No pod has that name.
    pub fn pod(&self, name: &str) -> anyhow::Result<Pod<'_>> {
        let lab = &self.plan.name;
        let plan = self.plan.pod(name).with_context(|| {
            format!(
                "the lab {lab} has no pod {name:?} (heddle-lab status lists them as NAMESPACE/NAME)"
            )
        })?;
        Ok(Pod { lab: self, plan })
    }

    /// The node of that name.
    ///
    /// # Errors
    /// No node has that name.
    pub fn node(&self, name: &str) -> anyhow::Result<Node<'_>> {
        let lab = &self.plan.name;
        let plan = self.plan.node(name);
        let plan = plan.with_context(|| format!("the lab {lab} has no node {name:?}"))?;
        Ok(Node { lab: self, plan })
    }

    /// Every pod.
    pub fn pods(&self) -> impl Iterator<Item = Pod<'_>> {
        self.plan.pods.iter().map(|plan| Pod { lab: self, plan })
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.plan.nodes.iter().map(|plan| Node { lab: self, plan })
    }

    /// A command between the nodes, where the control plane is: outside the mesh, with routes to all nodes and pods.
    /// `heddle` finds the socket of the control plane by itself.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn underlay(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = self.underlay_place().command(program)?;
        self.with_programs(&mut command)?;
        self.with_socket_of_control(&mut command)?;
        Ok(command)
    }

    /// The network namespace between the nodes.
    pub fn underlay_network(&self) -> PathBuf {
        Role::Underlay.path(&self.plan.name)
    }

    fn underlay_group(&self) -> Group {
        self.groups.child("underlay")
    }

    fn underlay_place(&self) -> Place {
        Place {
            network: self.underlay_network(),
            group: self.underlay_group(),
            pod: None,
        }
    }

    fn start_service(&self, what: &str, name: &str, command: Command) -> anyhow::Result<Note> {
        let (logs, notes) = (self.folder.logs(), self.folder.notes());
        Note::start(what, command, (name, 0), (&logs, &notes))
    }

    /// Keeps the lab up after this value is dropped.
    pub fn stay(mut self) {
        self.is_ours = false;
    }

    /// Ends its processes and removes everything that was made for it.
    ///
    /// # Errors
    /// As for [`down`].
    pub fn down(mut self) -> anyhow::Result<()> {
        self.is_ours = false;
        down(&self.plan.name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        if let Err(error) = down(&self.plan.name) {
            let name = &self.plan.name;
            eprintln!("heddle-lab: {error:#} (heddle-lab down {name} tries again)");
        }
    }
}

/// Whether this process may make labs, and the machine has what all of them need.
///
/// # Errors
/// Names the missing right or part and the remedy.
pub fn is_possible() -> anyhow::Result<()> {
    requirements::check_rights()?;
    Hierarchies::find().map(drop)
}

/// The labs that are up, including those that were interrupted while they were made.
pub fn labs() -> Vec<LabName> {
    folder::labs()
}

/// Ends the processes of a lab and removes everything that was made for it, also when the lab is only partly there.
///
/// # Errors
/// This process lacks rights, another process is changing the lab, the lab does not exist, or something cannot be
/// removed; everything else is removed nevertheless.
pub fn down(name: &LabName) -> anyhow::Result<()> {
    requirements::check_rights()?;
    let folder = Folder::of(name);
    let groups = Hierarchies::find()?.lab(name);
    let namespaces = namespace::names(name);
    if !folder.exists() && namespaces.is_empty() && !groups.exists() {
        bail!("there is no lab {name} (heddle-lab list says which there are)");
    }
    let lock = folder.exists().then(|| folder.lock()).transpose()?;
    // First, since the keeper would start the ended processes again.
    let keeper = Note::read(&folder.notes(), keeper::NAME);
    process::end(keeper.as_slice());
    process::end(&Note::all(&folder.notes()));
    let mut outcome = process::kill_members(&groups);
    let mut and = |next: anyhow::Result<()>| {
        if outcome.is_ok() {
            outcome = next;
        }
    };
    for path in &namespaces {
        and(namespace::remove(path));
    }
    namespace::remove_folder();
    and(folder.remove_pins());
    and(mount::unmount_below(folder.path()));
    and(groups.remove(REMOVE_WITHIN));
    // Last, and only if nothing is left: while the folder exists, the lab exists.
    outcome?;
    folder.remove()?;
    drop(lock);
    folder::remove_root();
    Ok(())
}
