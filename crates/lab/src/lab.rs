//! Nodes and pods on one machine: network namespaces, control groups, names, and the mesh between them.
//!
//! ```text
//!   file ──▶ plan ──▶ namespaces, groups ──▶ network ──▶ DNS ──▶ mesh ──▶ pods' programs
//!            every address                                       (heddle)
//! ```
//!
//! A [`Plan`] is everything that will be, read and checked before anything is made. [`Lab::up`] makes it, and
//! returns when all of it is ready; its processes go on. What a lab makes has its name in front, so that
//! [`down`] finds everything again, whatever happened to whoever made it. The network of the host is not
//! touched: links exist only between namespaces of the lab.
//!
//! These calls block; they start threads and runtimes of their own where they need them.

mod address;
mod cgroup;
pub mod commands;
mod dns;
mod etc;
mod file;
mod folder;
mod heddle;
mod manifests;
mod mount;
mod namespace;
mod network;
mod place;
mod plan;
mod process;
mod programs;
mod requirements;

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

pub use file::{Carried, Family, Hooks, LabName};
pub use plan::{NodePlan, Plan, PodPlan, ServicePlan};
pub use process::Note;
pub use programs::Programs;

use cgroup::{Group, Hierarchies};
use folder::Folder;
use namespace::{Namespace, Role};
use place::{Place, PodView};

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

/// A pod of a lab that is up.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'l> {
    lab: &'l Lab,
    plan: &'l PodPlan,
}

/// A node of a lab that is up.
#[derive(Debug, Clone, Copy)]
pub struct Node<'l> {
    lab: &'l Lab,
    plan: &'l NodePlan,
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

    fn make(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let mut step = Step::new(progress);
        if let Some(manifests) = &self.plan.manifests {
            manifests.write(&self.folder.manifests())?;
        }
        self.make_groups()?;
        step.done("control groups");
        let underlay = self.make_network()?;
        drop(underlay);
        let (nodes, pods) = (self.plan.nodes.len(), self.plan.pods.len());
        step.done(&format!("network of {nodes} nodes and {pods} pods"));
        for pod in self.pods() {
            etc::write(&self.plan, pod.plan, &pod.folder())?;
        }
        for node in self.nodes() {
            node.start_dns()?;
        }
        self.wait_for_dns()?;
        step.done("DNS");
        if self.plan.carried != Carried::Nothing {
            let count = self.start_mesh()?;
            step.done(&format!("control plane and {count} nodes of the mesh"));
            // Before their programs start, so that nothing of them passes by.
            let count = self.enrol_pods()?;
            step.done(&format!("{count} pods enrolled"));
        }
        let started = self.start_commands()?;
        step.done(&format!("{started} programs of pods"));
        Ok(())
    }

    fn make_groups(&self) -> anyhow::Result<()> {
        self.groups.create()?;
        self.underlay_group().create()?;
        for node in self.nodes() {
            for part in ["heddle", "dns", "pods"] {
                node.group(part).create()?;
            }
        }
        for pod in self.pods() {
            let group = pod.group();
            group.create()?;
            if self.plan.carried == Carried::Pod {
                pod.proxy_group().create()?;
            }
            if let Some(cpus) = pod.plan.cpus {
                let held = group.hold(cpus);
                held.with_context(|| format!("pods.{}.cpus", pod.plan.workload))?;
            }
        }
        Ok(())
    }

    fn make_network(&self) -> anyhow::Result<Namespace> {
        namespace::make_folder()?;
        let name = &self.plan.name;
        let underlay = Namespace::create(&Role::Underlay.path(name), true)?;
        network::underlay(&underlay)?;
        for node in self.nodes() {
            let namespace = Namespace::create(&node.network(), true)?;
            network::node(node.plan, &self.plan.nodes, &namespace, &underlay)?;
            let pods = self.plan.pods_of(node.plan).map(|plan| {
                let pod = Pod { lab: self, plan };
                Ok((plan, Namespace::create(&pod.network(), false)?))
            });
            let pods = pods.collect::<anyhow::Result<Vec<_>>>()?;
            network::pods(node.plan, &namespace, &pods)?;
        }
        Ok(underlay)
    }

    fn wait_for_dns(&self) -> anyhow::Result<()> {
        self.nodes().try_for_each(|node| node.wait_for_dns())
    }

    fn start_commands(&self) -> anyhow::Result<usize> {
        let mut started = 0;
        for pod in self.pods() {
            started += usize::from(pod.start()?.is_some());
        }
        Ok(started)
    }

    /// A lab that somebody else has brought up. Dropping it leaves it as it is.
    ///
    /// # Errors
    /// There is none of that name, or not allowed.
    pub fn open(name: &LabName) -> anyhow::Result<Self> {
        requirements::check_rights()?;
        let folder = Folder::of(name);
        let plan = folder.plan().with_context(|| {
            format!("there is no lab {name} (heddle-lab list says which there are)")
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
    pub fn folder(&self) -> &std::path::Path {
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

    /// A command between the nodes, where the control plane is: outside the mesh, with a route to everybody.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn underlay(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        self.underlay_place().command(program)
    }

    fn underlay_group(&self) -> Group {
        self.groups.child("underlay")
    }

    fn underlay_place(&self) -> Place {
        Place {
            network: Role::Underlay.path(&self.plan.name),
            group: self.underlay_group(),
            pod: None,
        }
    }

    fn start_service(&self, what: &str, name: &str, command: Command) -> anyhow::Result<Note> {
        let (logs, notes) = (self.folder.logs(), self.folder.notes());
        Note::start(what, command, name, (&logs, &notes))
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

impl<'l> Pod<'l> {
    /// What it is.
    pub fn plan(&self) -> &'l PodPlan {
        self.plan
    }

    /// A command in the pod: its network, its names, its limits.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        self.place().command(program)
    }

    /// Its network namespace.
    pub fn network(&self) -> PathBuf {
        Role::Pod(&self.plan.file_name()).path(&self.lab.plan.name)
    }

    /// The folder of its control group in every hierarchy: what its programs use is said there.
    pub fn control_groups(&self) -> Vec<PathBuf> {
        self.group().folders()
    }

    /// The same of the holder and the proxy that carry its traffic; those of a node carry others' as well.
    pub fn proxy_control_groups(&self) -> Vec<PathBuf> {
        match self.lab.plan.carried {
            Carried::Pod => self.proxy_group().folders(),
            _ => {
                let node = Node::group_of(self.lab, &self.plan.node);
                node.child("heddle").folders()
            }
        }
    }

    fn group(&self) -> Group {
        let node = Node::group_of(self.lab, &self.plan.node);
        node.child("pods").child(self.plan.file_name())
    }

    /// That of its own proxy.
    fn proxy_group(&self) -> Group {
        let node = Node::group_of(self.lab, &self.plan.node);
        node.child("proxies").child(self.plan.file_name())
    }

    fn folder(&self) -> PathBuf {
        self.lab.folder.pod(&self.plan.file_name())
    }

    fn place(&self) -> Place {
        Place {
            network: self.network(),
            group: self.group(),
            pod: Some(PodView {
                hostname: etc::hostname(self.plan),
                files: place::over_etc(&self.folder()),
            }),
        }
    }

    /// Starts its program, if it has one.
    fn start(&self) -> anyhow::Result<Option<Note>> {
        let Some(program) = &self.plan.command else {
            return Ok(None);
        };
        let name = &self.plan.workload;
        let (first, rest) = program.argv.split_first().context("an empty command")?;
        let mut command = self.place().service(first)?;
        command.args(rest).envs(&program.env);
        if let Some(folder) = &program.working_dir {
            command.current_dir(folder);
        }
        let file = format!("pod-{}", self.plan.file_name());
        let what = format!("the program of pod {name}");
        self.lab.start_service(&what, &file, command).map(Some)
    }
}

impl<'l> Node<'l> {
    /// What it is.
    pub fn plan(&self) -> &'l NodePlan {
        self.plan
    }

    /// A command on the node itself, beside its proxy but not in its control group.
    ///
    /// # Errors
    /// The lab is not up any more.
    pub fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        self.place("dns").command(program)
    }

    /// Its network namespace.
    pub fn network(&self) -> PathBuf {
        Role::Node(self.plan.name.as_str()).path(&self.lab.plan.name)
    }

    /// Its addresses among the nodes.
    pub fn addresses(&self) -> [IpAddr; 2] {
        address::FAMILIES.map(|family| self.address(family))
    }

    /// Its address of a family among the nodes.
    pub fn address(&self, family: Family) -> IpAddr {
        address::underlay(self.plan.number, family)
    }

    /// The folder of the control group of its holder and proxy in every hierarchy.
    pub fn proxy_control_groups(&self) -> Vec<PathBuf> {
        self.group("heddle").folders()
    }

    fn group_of(lab: &Lab, node: &heddle_model::NodeName) -> Group {
        lab.groups.child(format!("node-{node}"))
    }

    fn group(&self, part: &str) -> Group {
        Self::group_of(self.lab, &self.plan.name).child(part)
    }

    fn place(&self, part: &str) -> Place {
        Place {
            network: self.network(),
            group: self.group(part),
            pod: None,
        }
    }

    fn start_dns(&self) -> anyhow::Result<Note> {
        let name = &self.plan.name;
        let mut command = self.place("dns").service(&self.lab.programs.lab)?;
        command
            .arg("dns")
            .arg("--lab")
            .arg(self.lab.plan.name.as_str());
        for family in address::FAMILIES {
            let gateway = address::gateway(self.plan.number, family);
            command.arg("--address").arg(gateway.to_string());
        }
        let what = format!("the DNS of node {name}");
        self.lab
            .start_service(&what, &format!("dns-{name}"), command)
    }

    /// Waits until the node's DNS answers: it says so in its log.
    fn wait_for_dns(&self) -> anyhow::Result<()> {
        let file = format!("dns-{}.log", self.plan.name);
        let log = self.lab.folder.logs().join(file);
        let is_ready = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(dns::READY));
        process::wait_until(Duration::from_secs(10), is_ready).with_context(|| {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            format!("the DNS of node {} does not start: {text}", self.plan.name)
        })
    }
}

/// Says what has been done, and how long it took.
struct Step<'p> {
    progress: &'p mut dyn FnMut(&str),
    since: Instant,
}

impl<'p> Step<'p> {
    fn new(progress: &'p mut dyn FnMut(&str)) -> Self {
        Self {
            progress,
            since: Instant::now(),
        }
    }

    fn done(&mut self, what: &str) {
        let took = self.since.elapsed().as_secs_f64();
        (self.progress)(&format!("{what} ({took:.1} s)"));
        self.since = Instant::now();
    }
}

/// The labs that are up, or were when they were interrupted.
pub fn labs() -> Vec<LabName> {
    folder::labs()
}

/// Ends the processes of a lab and removes everything that was made for it, whatever is left of it.
///
/// # Errors
/// Not allowed, somebody else is at work on it, there is none, or something cannot be removed; what can be is.
pub fn down(name: &LabName) -> anyhow::Result<()> {
    requirements::check_rights()?;
    let folder = Folder::of(name);
    let groups = Hierarchies::find()?.lab(name);
    let namespaces = namespace::names(name);
    if !folder.exists() && namespaces.is_empty() && !groups.exists() {
        anyhow::bail!("there is no lab {name} (heddle-lab list says which there are)");
    }
    let lock = folder.exists().then(|| folder.lock()).transpose()?;
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
    and(mount::unmount_below(folder.path()));
    and(groups.remove(REMOVE_WITHIN));
    // Last, and only if nothing is left: it says that the lab is there.
    outcome?;
    folder.remove()?;
    drop(lock);
    folder::remove_root();
    Ok(())
}
