//! The mesh of a lab: all uses of the `heddle` program.

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

/// Name of the control plane's log and note.
pub(super) const CONTROL: &str = "control";
/// Port of the control plane.
const CONTROL_PORT: u16 = 15012;
/// Port on which nodes of the mesh accept each other's connections.
pub(super) const NODE_PORT: u16 = 15008;
/// Timeout until a process is ready, and the extra time for each further process that starts with it.
pub(super) const START_LIMIT: Duration = Duration::from_secs(30);
const START_LIMIT_EACH: Duration = Duration::from_secs(1);
/// Limit of nodes that start at once: more of them compete for CPU and finish no earlier.
const WAVE: usize = 16;
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Lines of a log quoted in an error.
const LAST_LINES: usize = 15;
/// Limit of a node's name in its folder's name, since the path of a Unix socket has at most 107 bytes.
const MAX_FOLDER: usize = 40;

/// A node of the mesh: a node of the lab, or a pod with a proxy of its own.
pub(super) struct MeshNode {
    name: NodeName,
    place: Place,
    /// The address on which other nodes reach it.
    address: IpAddr,
    folder: PathBuf,
    /// The control group that its BPF programs are attached to.
    pods: PathBuf,
    /// Settings file of its proxy.
    settings: Option<PathBuf>,
    /// The only pod of this node, if it is a pod's own proxy.
    only: Option<WorkloadName>,
}

impl MeshNode {
    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    /// Description of its process for users.
    pub(super) fn what(&self) -> String {
        format!("heddle node {}", self.name)
    }

    /// Name of its log and its note.
    pub(super) fn service(&self) -> String {
        format!("heddle-{}", self.name)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    pub(super) fn holder_socket(&self) -> PathBuf {
        holder_socket(&self.folder)
    }
}

/// The part of `heddle status` that is needed.
#[derive(Deserialize)]
struct Readiness {
    ready: bool,
}

/// One line of `heddle pods`. A pod that only the guard knows has no `workload`.
#[derive(Deserialize)]
struct PodLine {
    workload: Option<WorkloadName>,
    state: String,
}

pub(super) struct EnrolledPod {
    workload: WorkloadName,
    state: String,
}

impl EnrolledPod {
    pub(super) fn is_served(&self) -> bool {
        self.state == "serving"
    }
}

/// A process that is not ready yet.
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

    /// Enrolls every pod that has `enrolled: true`, and waits until all of them are served.
    pub(super) fn enroll_pods(&self) -> anyhow::Result<usize> {
        let pods: Vec<Pod<'_>> = self.pods().filter(|pod| pod.plan().enrolled).collect();
        if self.plan.carried == Carried::Node {
            pods.iter().try_for_each(Pod::ask_to_enroll)?;
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

    /// Path of the control plane's admin socket.
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
        let control = control_at(family);
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
            // The call fails until the process listens on its socket.
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

    /// Waits until every pod of a holder is served.
    fn wait_for_pods(&self, socket: &Path, deadline: Instant) -> anyhow::Result<()> {
        loop {
            let pods = self.ask_pods(socket)?;
            let waits = pods.iter().find(|pod| !pod.is_served());
            match waits {
                None if !pods.is_empty() => return Ok(()),
                Some(pod) if Instant::now() > deadline => {
                    let (name, state) = (&pod.workload, &pod.state);
                    bail!("pod {name} is {state}: it is not served in time");
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

    /// The folder of a mesh node. A long name is cut: the path of a socket has a limit.
    fn node_folder(&self, name: &NodeName, number: usize) -> PathBuf {
        let name = name.as_str();
        match name.len() <= MAX_FOLDER {
            true => self.folder.node(name),
            // Names of nodes contain no `~`, so a cut name cannot be equal to another name.
            false => self
                .folder
                .node(&format!("{}~{number}", &name[..MAX_FOLDER - 6])),
        }
    }
}

impl<'l> Node<'l> {
    /// The admin socket of its proxy, if the lab has `carried: node`.
    pub fn admin_socket(&self) -> PathBuf {
        self.mesh_folder().join("admin.sock")
    }

    /// The socket of its holder, if the lab has `carried: node`.
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
    /// Enrolls the pod in the mesh with `heddle enroll`, and waits until it is served.
    ///
    /// # Errors The lab does not have `carried: node`, the holder refuses, or the pod is not served in time.
    pub fn enroll(&self) -> anyhow::Result<()> {
        self.ask_to_enroll()?;
        let deadline = Instant::now() + START_LIMIT;
        self.lab.wait_for_pods(&self.holder_socket(), deadline)
    }

    /// Whether the holder lists this pod.
    ///
    /// # Errors
    /// The holder does not answer.
    pub(super) fn is_with_holder(&self) -> anyhow::Result<bool> {
        let pods = self.lab.ask_pods(&self.holder_socket())?;
        Ok(pods.iter().any(|pod| pod.workload == self.plan.workload))
    }

    fn ask_to_enroll(&self) -> anyhow::Result<()> {
        let name = self.plan.workload.to_string();
        let mut command = self.ask_holder(&["enroll", &name])?;
        run(command.arg("--netns").arg(self.network())).map(drop)
    }

    /// Removes the pod from the mesh with `heddle unenroll`, and waits until the holder has let go of it.
    ///
    /// # Errors The lab does not have `carried: node`, the holder refuses, or it still has the pod at the deadline.
    pub fn release(&self) -> anyhow::Result<()> {
        let name = self.plan.workload.to_string();
        run(&mut self.ask_holder(&["unenroll", &name])?)?;
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
            bail!("pods can be enrolled and released only in a lab with carried: node");
        }
        let mut command = Command::new(self.lab.heddle()?);
        command
            .args(words)
            .arg("--holder-socket")
            .arg(self.holder_socket());
        Ok(command)
    }

    /// The socket of the holder that has this pod.
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

/// Where the control plane listens, for an Envoy.
pub(super) fn control_address() -> String {
    control_at(Family::V4)
}

fn control_at(family: Family) -> String {
    SocketAddr::new(address::hub(family), CONTROL_PORT).to_string()
}

fn holder_socket(folder: &Path) -> PathBuf {
    folder.join("holder.sock")
}

/// Runs a command to its end; its output.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
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

/// Runs a command and parses its output as JSON.
pub(super) fn ask<T: DeserializeOwned>(command: &mut Command) -> anyhow::Result<T> {
    serde_json::from_slice(&run(command)?).context("cannot parse the output of heddle")
}
