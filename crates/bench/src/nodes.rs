//! A mesh of two Heddle nodes and their control plane, all on this machine.
//!
//! ```text
//! manifests ─▶ heddle control ─▶ heddle node near, heddle node far
//! ```
//!
//! The nodes join with tokens that `heddle token create` makes, as nodes of any mesh do.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::authority::{Authority, write_private};
use super::child::{Child, Confinement, words};

/// The timeout until the control plane makes a token.
const CONTROL_WITHIN: Duration = Duration::from_secs(20);
/// Node names that the manifests use.
pub(super) const NEAR: &str = "near";
pub(super) const FAR: &str = "far";

/// Inputs for a mesh.
pub(super) struct Site<'a> {
    pub(super) heddle: &'a Path,
    /// The folder with the manifests in `mesh/`; all other files are written beside these.
    pub(super) dir: &'a Path,
    /// Core and groups of the nodes.
    pub(super) place: &'a Confinement,
    /// A settings file for the nodes.
    pub(super) settings: Option<&'a Path>,
    /// The settings of the control plane.
    pub(super) control_settings: Option<&'a Path>,
    /// The node that differs from the others, if any.
    pub(super) apart: Option<Apart<'a>>,
    /// An etcd in which providers register.
    pub(super) etcd: Option<&'a str>,
    /// The authority whose root is the mesh's.
    pub(super) root: &'a Authority,
}

/// A node with its own settings, to which all other processes are preferred.
#[derive(Clone, Copy)]
pub(super) struct Apart<'a> {
    pub(super) node: &'a str,
    pub(super) settings: &'a Path,
    /// The niceness, as `nice -n` takes it.
    pub(super) nice: u32,
}

/// A running mesh of two nodes. The nodes end before the control plane.
pub(super) struct Nodes {
    pub(super) near: NodeProcess,
    pub(super) far: NodeProcess,
    pub(super) control: Child,
}

pub(super) struct NodeProcess {
    pub(super) child: Child,
    /// The address that other nodes connect to.
    pub(super) mesh: SocketAddr,
    pub(super) heddle: PathBuf,
    pub(super) socket: PathBuf,
}

/// A running mesh of any number of nodes. The nodes end before the control plane.
pub(super) struct MeshProcesses {
    /// In the order of their names.
    pub(super) nodes: Vec<NodeProcess>,
    pub(super) control: Child,
    /// Where nodes connect to the control plane.
    pub(super) control_at: SocketAddr,
}

impl Nodes {
    /// Starts the control plane and both nodes, and lets the nodes join. They may not serve yet.
    ///
    /// # Errors
    /// When one does not start; the end of its log is quoted.
    pub(super) fn start(site: &Site) -> anyhow::Result<Nodes> {
        let MeshProcesses { nodes, control, .. } = MeshProcesses::start(site, &[NEAR, FAR])?;
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
        let settings = site.control_settings.iter();
        command.extend(settings.flat_map(|file| with("--config", file)));
        // Another core than that on which the nodes are measured.
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
        Ok(MeshProcesses {
            nodes,
            control,
            control_at: listen,
        })
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

/// The status of a Heddle as JSON; empty while it does not answer.
pub(super) fn status(heddle: &Path, socket: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(heddle);
    command.arg("status").args(with("--socket", socket));
    let output = command.args(["--output", "json"]).output().ok()?;
    Some(output.stdout)
}

/// Makes a token with which that node may join.
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

/// A loopback address on which no process listens. Another process could take it before the proxy does, and then the
/// proxy reports that.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Makes the folder `mesh` with this manifest in it.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_manifest(dir: &Path, text: &str) -> anyhow::Result<()> {
    let mesh = dir.join("mesh");
    fs::create_dir(&mesh)?;
    fs::write(mesh.join("lab.yaml"), text).context("the manifest")
}
