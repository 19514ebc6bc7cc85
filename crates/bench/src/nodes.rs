//! A mesh of two Heddle nodes and their control plane, all on this machine.
//!
//! ```text
//! manifests ─▶ heddle control ─▶ heddle node near, heddle node far
//! ```
//!
//! The nodes join with tokens that the control plane's operator commands make, as nodes of any mesh would.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::authority::{Authority, write_private};
use super::child::{Child, Confinement, words};

/// How long the control plane may take until it makes a token.
const CONTROL_WITHIN: Duration = Duration::from_secs(20);
/// Node names that the manifests use.
pub(super) const NEAR: &str = "near";
pub(super) const FAR: &str = "far";

/// What a mesh is started from.
pub(super) struct Site<'a> {
    pub(super) heddle: &'a Path,
    /// Holds the manifests in `mesh/`; everything else goes beside.
    pub(super) dir: &'a Path,
    /// Where the nodes run.
    pub(super) place: &'a Confinement,
    /// A settings file for the nodes.
    pub(super) settings: Option<&'a Path>,
    /// What is otherwise of one node.
    pub(super) apart: Option<Apart<'a>>,
    /// An etcd in which providers register.
    pub(super) etcd: Option<&'a str>,
    /// Whose root is the mesh's.
    pub(super) root: &'a Authority,
}

/// A node with settings of its own, for which everything else goes first.
#[derive(Clone, Copy)]
pub(super) struct Apart<'a> {
    pub(super) node: &'a str,
    pub(super) settings: &'a Path,
    /// As `nice` takes it.
    pub(super) nice: u32,
}

/// A mesh that runs. The nodes end before the control plane.
pub(super) struct Nodes {
    pub(super) near: NodeProcess,
    pub(super) far: NodeProcess,
    pub(super) control: Child,
}

/// A node's process.
pub(super) struct NodeProcess {
    pub(super) child: Child,
    /// Where it takes connections of other nodes.
    pub(super) mesh: SocketAddr,
    pub(super) heddle: PathBuf,
    pub(super) socket: PathBuf,
}

/// A mesh of any nodes that runs. They end before the control plane.
pub(super) struct MeshProcesses {
    /// In the order of their names.
    pub(super) nodes: Vec<NodeProcess>,
    pub(super) control: Child,
}

impl Nodes {
    /// Starts the three and lets the nodes join. They may not serve yet.
    ///
    /// # Errors
    /// When one does not start; the end of its log is quoted.
    pub(super) fn start(site: &Site) -> anyhow::Result<Nodes> {
        let MeshProcesses { nodes, control } = MeshProcesses::start(site, &[NEAR, FAR])?;
        let mut nodes = nodes.into_iter();
        let mut next = || nodes.next().context("a node for each name");
        Ok(Nodes {
            near: next()?,
            far: next()?,
            control,
        })
    }
}

impl MeshProcesses {
    /// Starts a control plane and nodes with these names, and lets them join. They may not serve yet.
    ///
    /// # Errors
    /// When one does not start; the end of its log is quoted.
    pub(super) fn start(site: &Site, names: &[&str]) -> anyhow::Result<MeshProcesses> {
        let state = site.dir.join("control");
        site.root.hand_over(&state)?;
        let listen = free_address()?;
        let socket = site.dir.join("control.sock");
        let mut command = words([site.heddle.as_os_str(), "control".as_ref()]);
        command.push(site.dir.join("mesh").into());
        command.extend(words([
            "--listen",
            &listen.to_string(),
            "--metrics",
            "none",
        ]));
        command.extend(with("--state", &state));
        command.extend(with("--socket", &socket));
        command.extend(site.etcd.iter().flat_map(|url| words(["--etcd", url])));
        // Not where the nodes are measured.
        let place = Confinement {
            core: site.place.core.map(|_| 1),
            groups: Vec::new(),
        };
        let log = site.dir.join("control.log");
        let mut control = Child::start("heddle control", &place, &command, &log, false)?;
        let token = |name: &str| token(site.heddle, &socket, name);
        let start = |name: &&str| {
            let token = control.wait_until(CONTROL_WITHIN, || token(name).ok())?;
            NodeProcess::start(site, name, listen, &token)
        };
        let nodes = names.iter().map(start).collect::<anyhow::Result<_>>()?;
        Ok(MeshProcesses { nodes, control })
    }
}

impl NodeProcess {
    fn start(
        site: &Site,
        name: &str,
        control: SocketAddr,
        token: &str,
    ) -> anyhow::Result<NodeProcess> {
        let file = site.dir.join(format!("{name}.token"));
        write_private(&file, token)?;
        let mesh = free_address()?;
        let socket = site.dir.join(format!("{name}.sock"));
        let apart = site.apart.filter(|apart| apart.node == name);
        let nice = apart.map(|apart| apart.nice.to_string());
        let nice = nice.iter().flat_map(|nice| words(["nice", "-n", nice]));
        let mut command: Vec<OsString> = nice.collect();
        command.extend(words([site.heddle.as_os_str(), "node".as_ref()]));
        command.extend(words(["--name", name, "--metrics", "127.0.0.1:0"]));
        command.extend(words(["--control", &control.to_string()]));
        command.extend(words(["--listen", &mesh.to_string()]));
        command.extend(with("--token-file", &file));
        command.extend(with("--state", &site.dir.join(name)));
        command.extend(with("--socket", &socket));
        let settings = apart.map(|apart| apart.settings).or(site.settings);
        command.extend(settings.iter().flat_map(|file| with("--config", file)));
        let log = site.dir.join(format!("{name}.log"));
        let child = Child::start(
            &format!("heddle node {name}"),
            site.place,
            &command,
            &log,
            false,
        )?;
        Ok(NodeProcess {
            child,
            mesh,
            heddle: site.heddle.to_owned(),
            socket,
        })
    }
}

/// What a Heddle says of itself in JSON; none while it does not.
pub(super) fn status(heddle: &Path, socket: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(heddle);
    command.arg("status").args(with("--socket", socket));
    let output = command.args(["--output", "json"]).output().ok()?;
    Some(output.stdout)
}

/// A token with which that node may join.
fn token(heddle: &Path, socket: &Path, node: &str) -> anyhow::Result<String> {
    let mut command = Command::new(heddle);
    command.args(["token", "create", node, "--output", "json"]);
    let output = command.args(with("--socket", socket)).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    anyhow::ensure!(output.status.success(), "no token for {node}: {}", said());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let token = json["token"].as_str();
    Ok(token.context("the answer holds no token")?.to_owned())
}

fn with(flag: &str, value: &Path) -> [OsString; 2] {
    [flag.into(), value.into()]
}

/// A loopback address that no process listens on. Another process could take it before the proxy does, and
/// then the proxy says so.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Makes the folder of manifests with this one in it.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_manifest(dir: &Path, text: &str) -> anyhow::Result<()> {
    let mesh = dir.join("mesh");
    fs::create_dir(&mesh)?;
    fs::write(mesh.join("lab.yaml"), text).context("the manifest")
}
