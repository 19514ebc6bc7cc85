//! Nodes and pods on one machine: network namespaces, control groups, names, and the mesh between them.
//!
//! ```text
//!   file ──▶ plan ──▶ namespaces, groups ──▶ network ──▶ DNS ──▶ mesh ──▶ pods' programs
//!            every address                                       (heddle)
//! ```
//!
//! A [`Plan`] is everything that will be, read and checked before anything is made. [`Lab::up`] makes it, and
//! returns when all of it is ready; its processes go on. What a lab makes has its name in front, so that
//! [`down`] finds everything again, whatever happened to the process that made it. The network of the host is not
//! touched: links exist only between namespaces of the lab.
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

/// How long the kernel may need until groups whose processes have ended can be removed.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);

/// A lab that is up. Dropping it takes it down, unless it was told to [stay](Lab::stay).
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
    /// Not allowed, something that it needs is missing, it is there already, or a part of it does not get
    /// ready. What was made is removed again.
    pub fn up(plan: &Plan) -> anyhow::Result<Self> {
        Self::up_with(plan, &Programs::find()?, &mut |_| {})
    }

    /// The same, with these programs, and telling `progress` what has been done.
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
            // Dropping it takes down what there is.
            Err(error) => Err(error),
        }
    }

    /// A lab that another process has brought up. Dropping it leaves it as it is.
    ///
    /// # Errors
    /// There is none of that name, or not allowed.
    pub fn open(name: &LabName) -> anyhow::Result<Self> {
        requirements::check_rights()?;
        let folder = Folder::of(name);
        if !folder.exists() {
            bail!("there is no lab {name} (heddle-lab list says which there are)");
        }
        let plan = folder.plan();
        let plan = plan.with_context(|| {
            format!("the lab {name} was never whole, or another heddle-lab made it")
        })?;
        Ok(Self {
            groups: Hierarchies::find()?.lab(name),
            programs: folder.programs()?,
            plan,
            folder,
            is_ours: false,
        })
    }

    /// What the lab is.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether it came to be whole. It is not while it is being made, or if that was interrupted.
    pub fn is_ready(&self) -> bool {
        self.folder.is_ready()
    }

    /// The folder of its logs, sockets and completed manifests.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The processes that were started for it, whether they run or not.
    pub fn processes(&self) -> Vec<Note> {
        Note::all(&self.folder.notes())
    }

    /// The pod `NAMESPACE/NAME`.
    ///
    /// # Errors
    /// There is none of that name.
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
    /// There is none of that name.
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

    /// Leaves the lab up.
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
/// Says what is missing, and what to do.
pub fn is_possible() -> anyhow::Result<()> {
    requirements::check_rights()?;
    Hierarchies::find().map(drop)
}

/// The labs that are up, or were when they were interrupted.
pub fn labs() -> Vec<LabName> {
    folder::labs()
}

/// Ends the processes of a lab and removes everything that was made for it, whatever is left of it.
///
/// # Errors
/// Not allowed, another process is at work on it, there is none, or something cannot be removed; what can be is.
pub fn down(name: &LabName) -> anyhow::Result<()> {
    requirements::check_rights()?;
    let folder = Folder::of(name);
    let groups = Hierarchies::find()?.lab(name);
    let namespaces = namespace::names(name);
    if !folder.exists() && namespaces.is_empty() && !groups.exists() {
        bail!("there is no lab {name} (heddle-lab list says which there are)");
    }
    let lock = folder.exists().then(|| folder.lock()).transpose()?;
    // First, since it would start again what is ended.
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
    // Last, and only if nothing is left: it says that the lab is there.
    outcome?;
    folder.remove()?;
    drop(lock);
    folder::remove_root();
    Ok(())
}
