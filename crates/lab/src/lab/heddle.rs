//! The mesh of a lab: every call of the `heddle` program that a lab makes.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use heddle_model::{NodeName, WorkloadName};
use rustix::mount::MountFlags;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::address::{self, FAMILIES};
use super::file::{Carried, Family};
use super::place::Place;
use super::process::{Note, pause};
use super::{Lab, Node, Pod};

/// What the log and the note of the control plane are called.
pub(super) const CONTROL: &str = "control";
/// Where the control plane listens.
const CONTROL_PORT: u16 = 15012;
/// Where nodes of the mesh listen for each other.
pub(super) const NODE_PORT: u16 = 15008;
/// How long one process may take until it is ready, and how much more for each that starts beside it.
pub(super) const START_LIMIT: Duration = Duration::from_secs(30);
const START_LIMIT_EACH: Duration = Duration::from_secs(1);
/// Nodes of the mesh that start at once. More of them only get in each other's way.
const WAVE: usize = 16;
/// How often is asked whether something is ready.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Lines of a log that are shown when something went wrong.
const LAST_LINES: usize = 15;
/// Longest part of a folder's name that is a node's: the path of a socket has 107 bytes.
const MAX_FOLDER: usize = 40;

/// A node of the mesh: a node of the lab, or a pod that has a proxy of its own.
pub(super) struct MeshNode {
    name: NodeName,
    place: Place,
    /// Where others reach it.
    address: IpAddr,
    folder: PathBuf,
    /// What its programs are attached to.
    pods: PathBuf,
    /// The file of its settings.
    settings: Option<PathBuf>,
    /// The pod that it is the proxy of.
    only: Option<WorkloadName>,
}

impl MeshNode {
    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    /// What its process is called.
    pub(super) fn what(&self) -> String {
        format!("heddle node {}", self.name)
    }

    /// What its log and its note are called.
    pub(super) fn service(&self) -> String {
        format!("heddle-{}", self.name)
    }

    /// Its admin socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    /// The socket of its holder.
    pub(super) fn holder_socket(&self) -> PathBuf {
        holder_socket(&self.folder)
    }
}

/// What is asked of `heddle status`.
#[derive(Deserialize)]
struct Readiness {
    ready: bool,
}

/// One line of `heddle pods`. What a guard alone knows has no name.
#[derive(Deserialize)]
struct PodLine {
    workload: Option<WorkloadName>,
    state: String,
}

/// An enrolled pod.
pub(super) struct EnrolledPod {
    workload: WorkloadName,
    state: String,
}

impl EnrolledPod {
    pub(super) fn is_served(&self) -> bool {
        self.state == "serving"
    }
}

/// A process that is getting ready.
pub(super) struct Starting {
    pub(super) note: Note,
    pub(super) socket: PathBuf,
}

impl Lab {
    /// Starts the control plane and every node of the mesh, and waits until they are ready.
    pub(super) fn start_mesh(&self) -> anyhow::Result<usize> {
        let nodes = self.mesh_nodes()?;
        let each = START_LIMIT_EACH * u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + START_LIMIT + each;
        let control = self.start_control()?;
        self.wait_for(&[control], deadline)?;
        for wave in nodes.chunks(WAVE) {
            let started = wave.iter().map(|node| {
                let started = self.start_node(node);
                started.with_context(|| format!("node {} of the mesh", node.name))
            });
            let started = started.collect::<anyhow::Result<Vec<_>>>()?;
            self.wait_for(&started, deadline)?;
        }
        Ok(nodes.len())
    }

    /// Has the mesh take over every pod that is to be, and waits until it does.
    pub(super) fn enrol_pods(&self) -> anyhow::Result<usize> {
        let pods: Vec<Pod<'_>> = self.pods().filter(|pod| pod.plan().enrolled).collect();
        if self.plan.carried == Carried::Node {
            pods.iter().try_for_each(Pod::ask_to_enrol)?;
        }
        let each = START_LIMIT_EACH * u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + START_LIMIT + each;
        let mut sockets: Vec<PathBuf> = pods.iter().map(Pod::holder_socket).collect();
        sockets.sort();
        sockets.dedup();
        for socket in &sockets {
            self.wait_for_pods(socket, deadline)?;
        }
        Ok(pods.len())
    }

    /// The admin socket of the control plane.
    pub fn control_socket(&self) -> PathBuf {
        self.folder().join("control.sock")
    }

    fn start_control(&self) -> anyhow::Result<Starting> {
        let note = self.start_service("heddle control", CONTROL, self.control_command()?)?;
        let socket = self.control_socket();
        Ok(Starting { note, socket })
    }

    pub(super) fn control_command(&self) -> anyhow::Result<Command> {
        let socket = self.control_socket();
        let mut command = self.underlay_place().service(self.heddle()?)?;
        command
            .arg("control")
            .arg(self.folder.manifests())
            .arg("--listen")
            .arg(format!("[::]:{CONTROL_PORT}"))
            .arg("--state")
            .arg(self.folder().join("control"))
            .arg("--socket")
            .arg(&socket);
        if let Some(settings) = &self.plan.settings {
            command.arg("--config").arg(settings);
        }
        Ok(command)
    }

    pub(super) fn mesh_nodes(&self) -> anyhow::Result<Vec<MeshNode>> {
        match self.plan.carried {
            Carried::Nothing => Ok(Vec::new()),
            Carried::Node => Ok(self.nodes().map(|node| node.mesh_node()).collect()),
            Carried::Pod => {
                let pods = self.pods().filter(|pod| pod.plan().enrolled);
                pods.map(|pod| pod.mesh_node()).collect()
            }
        }
    }

    fn start_node(&self, node: &MeshNode) -> anyhow::Result<Starting> {
        fs::create_dir(&node.folder).with_context(|| node.folder.display().to_string())?;
        let bpf = node.folder.join("bpf");
        fs::create_dir(&bpf)?;
        rustix::mount::mount(
            "bpf",
            &bpf,
            "bpf",
            MountFlags::NOSUID | MountFlags::NODEV,
            None,
        )
        .with_context(|| {
            let shown = bpf.display();
            format!("cannot mount {shown} (is the kernel built with CONFIG_BPF_SYSCALL?)")
        })?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(node.folder.join("token"))?;
        file.write_all(&self.create_token(&node.name)?)?;
        let command = self.node_command(node)?;
        let note = self.start_service(&node.what(), &node.service(), command)?;
        let socket = node.socket();
        Ok(Starting { note, socket })
    }

    pub(super) fn node_command(&self, node: &MeshNode) -> anyhow::Result<Command> {
        let family = match node.address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let control = SocketAddr::new(address::hub(family), CONTROL_PORT).to_string();
        let listen = SocketAddr::new(node.address, NODE_PORT).to_string();
        let (token, bpf) = (node.folder.join("token"), node.folder.join("bpf"));
        let socket = node.socket();
        let mut command = node.place.service(self.heddle()?)?;
        command.args(["node", "--intercept", "--name", node.name.as_str()]);
        command.args(["--control", &control, "--listen", &listen]);
        command.args(["--hooks", self.plan.hooks.as_str()]);
        if let Some(settings) = &node.settings {
            command.arg("--config").arg(settings);
        }
        for (flag, path) in [
            ("--token-file", &token),
            ("--state", &node.folder.join("state")),
            ("--socket", &socket),
            ("--holder-socket", &node.holder_socket()),
            ("--pods-cgroup", &node.pods),
            ("--bpffs", &bpf.join("heddle")),
        ] {
            command.arg(flag).arg(path);
        }
        let nodes = u16::try_from(self.plan.nodes.len()).unwrap_or(u16::MAX);
        for range in address::mesh(nodes) {
            command.args(["--mesh-range", &range.to_string()]);
        }
        if let Some(pod) = &node.only {
            command.args(["--pod", &pod.to_string()]);
        }
        Ok(command)
    }

    fn create_token(&self, node: &NodeName) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(self.heddle()?);
        command.args(["token", "create", node.as_str(), "--socket"]);
        run(command.arg(self.control_socket()))
    }

    pub(super) fn wait_for(&self, starting: &[Starting], deadline: Instant) -> anyhow::Result<()> {
        for Starting { note, socket } in starting {
            let mut command = Command::new(self.heddle()?);
            command
                .args(["status", "--output", "json", "--socket"])
                .arg(socket);
            // Until it listens on its socket it says nothing at all.
            while !ask::<Readiness>(&mut command).is_ok_and(|status| status.ready) {
                if !note.runs() || Instant::now() > deadline {
                    let state = if note.runs() {
                        "is not ready in time"
                    } else {
                        "has ended"
                    };
                    bail!("{} {state}:\n{}", note.what, note.last_words(LAST_LINES));
                }
                pause(ASK_EVERY);
            }
        }
        Ok(())
    }

    /// Waits until every pod that a holder has is served.
    fn wait_for_pods(&self, socket: &Path, deadline: Instant) -> anyhow::Result<()> {
        loop {
            let pods = self.ask_pods(socket)?;
            let waits = pods.iter().find(|pod| !pod.is_served());
            match waits {
                None if !pods.is_empty() => return Ok(()),
                Some(pod) if Instant::now() > deadline => {
                    let (name, state) = (&pod.workload, &pod.state);
                    bail!("pod {name} is {state}, and does not get to be served in time");
                }
                None if Instant::now() > deadline => {
                    bail!("{}: its pod does not appear", socket.display())
                }
                _ => pause(ASK_EVERY),
            }
        }
    }

    pub(super) fn ask_pods(&self, socket: &Path) -> anyhow::Result<Vec<EnrolledPod>> {
        let mut command = Command::new(self.heddle()?);
        let words = ["pods", "--output", "json", "--holder-socket"];
        let lines: Vec<PodLine> = ask(command.args(words).arg(socket))?;
        let named = |PodLine { workload, state }| {
            let workload = workload?;
            Some(EnrolledPod { workload, state })
        };
        Ok(lines.into_iter().filter_map(named).collect())
    }

    pub(super) fn heddle(&self) -> anyhow::Result<&Path> {
        let heddle = self.programs.heddle.as_deref();
        heddle.context(
            "there is no heddle beside heddle-lab or in PATH (cargo build -p heddle, or --heddle PATH)",
        )
    }

    /// The folder of a node of the mesh. Names may be longer than the path of a socket.
    fn node_folder(&self, name: &NodeName, number: usize) -> PathBuf {
        let name = name.as_str();
        match name.len() <= MAX_FOLDER {
            true => self.folder.node(name),
            // No name holds a `~`, so none is taken for another.
            false => self
                .folder
                .node(&format!("{}~{number}", &name[..MAX_FOLDER - 6])),
        }
    }
}

impl<'l> Node<'l> {
    /// The admin socket of its proxy, in a lab that is carried by nodes.
    pub fn admin_socket(&self) -> PathBuf {
        self.mesh_folder().join("admin.sock")
    }

    /// The socket of its holder, in a lab that is carried by nodes.
    pub fn holder_socket(&self) -> PathBuf {
        holder_socket(&self.mesh_folder())
    }

    pub(super) fn mesh_folder(&self) -> PathBuf {
        self.lab
            .node_folder(&self.plan.name, self.plan.number.into())
    }

    fn mesh_node(&self) -> MeshNode {
        MeshNode {
            name: self.plan.name.clone(),
            place: self.place("heddle"),
            address: self.address(Family::V4),
            folder: self.mesh_folder(),
            pods: self.group("pods").unified(),
            settings: self.plan.settings.clone(),
            only: None,
        }
    }
}

impl<'l> Pod<'l> {
    /// Makes the pod the mesh's, `heddle enrol`, and waits until it is served.
    ///
    /// # Errors
    /// The lab is not carried by nodes, the holder refuses, or the proxy does not get to serve it.
    pub fn enrol(&self) -> anyhow::Result<()> {
        self.ask_to_enrol()?;
        let deadline = Instant::now() + START_LIMIT;
        self.lab.wait_for_pods(&self.holder_socket(), deadline)
    }

    /// Whether the holder has it.
    ///
    /// # Errors
    /// The holder does not answer.
    pub(super) fn is_with_holder(&self) -> anyhow::Result<bool> {
        let pods = self.lab.ask_pods(&self.holder_socket())?;
        Ok(pods.iter().any(|pod| pod.workload == self.plan.workload))
    }

    fn ask_to_enrol(&self) -> anyhow::Result<()> {
        let name = self.plan.workload.to_string();
        let mut command = self.ask_holder(&["enrol", &name])?;
        run(command.arg("--netns").arg(self.network())).map(drop)
    }

    /// Has the mesh leave the pod alone, `heddle release`, and waits until the holder has let go of it.
    ///
    /// # Errors
    /// The lab is not carried by nodes, the holder refuses, or has the pod still when the time is up.
    pub fn release(&self) -> anyhow::Result<()> {
        let name = self.plan.workload.to_string();
        run(&mut self.ask_holder(&["release", &name])?)?;
        let socket = self.holder_socket();
        let deadline = Instant::now() + START_LIMIT;
        let is_there = |pod: &EnrolledPod| pod.workload == self.plan.workload;
        while self.lab.ask_pods(&socket)?.iter().any(is_there) {
            if Instant::now() > deadline {
                bail!("{}: it still has pod {name}", socket.display());
            }
            pause(ASK_EVERY);
        }
        Ok(())
    }

    fn ask_holder(&self, words: &[&str]) -> anyhow::Result<Command> {
        if self.lab.plan.carried != Carried::Node {
            bail!("only in a lab that is carried by nodes pods come and go");
        }
        let mut command = Command::new(self.lab.heddle()?);
        command
            .args(words)
            .arg("--holder-socket")
            .arg(self.holder_socket());
        Ok(command)
    }

    /// The socket of the holder that has it.
    pub fn holder_socket(&self) -> PathBuf {
        holder_socket(&self.mesh_folder())
    }

    /// The admin socket of the proxy that carries its traffic.
    pub fn admin_socket(&self) -> PathBuf {
        self.mesh_folder().join("admin.sock")
    }

    pub(super) fn mesh_folder(&self) -> PathBuf {
        let (plan, own) = (&self.lab.plan, &self.plan.mesh_node);
        let number = match plan.carried {
            Carried::Pod => plan
                .pods
                .iter()
                .position(|pod| pod.workload == self.plan.workload),
            _ => plan
                .nodes
                .iter()
                .position(|node| node.name == *own)
                .map(|at| at + 1),
        };
        self.lab.node_folder(own, number.unwrap_or_default())
    }

    fn mesh_node(&self) -> anyhow::Result<MeshNode> {
        let address = FAMILIES
            .into_iter()
            .find_map(|family| self.plan.address(family));
        Ok(MeshNode {
            name: self.plan.mesh_node.clone(),
            place: Place {
                network: self.network(),
                group: self.proxy_group(),
                pod: None,
            },
            address: address.context("a pod has an address")?,
            folder: self.mesh_folder(),
            pods: self.group().unified(),
            settings: self.node().and_then(|node| node.settings.clone()),
            only: Some(self.plan.workload.clone()),
        })
    }
}

fn holder_socket(folder: &Path) -> PathBuf {
    folder.join("holder.sock")
}

/// Runs a command to its end.
fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let shown = || {
        let words = command.get_args().map(|word| word.to_string_lossy());
        format!("heddle {}", words.collect::<Vec<_>>().join(" "))
    };
    let shown = shown();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!(
            "{shown}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

/// The same for an answer in JSON.
pub(super) fn ask<T: DeserializeOwned>(command: &mut Command) -> anyhow::Result<T> {
    serde_json::from_slice(&run(command)?).context("the answer of heddle is not understood")
}
