//! Envoy as the proxy of a pod: traffic redirected to it within the pod, mutual TLS between Envoys; and as the proxy of a
//! node, which its pods' traffic is sent to.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use heddle_lab::lab::{Family, Lab, Node, Pod};
use minijinja::context;
use serde::Serialize;

use super::{PORT, Tools};
use crate::authority::{self, Authority};
use crate::systems::render;

/// What tells an Envoy's own connections from its pod's.
const MARK: u32 = 1337;

/// What all Envoys of a lab have in common.
pub(super) struct SidecarMesh<'m> {
    envoy: &'m Path,
    nft: &'m Path,
    authority: Authority,
    folder: PathBuf,
    services: Vec<SidecarService>,
    /// Whether a server's Envoy knows every Service, as a mesh has it by default.
    know_all: bool,
}

/// A server, as the others' Envoys know it.
#[derive(Debug, Clone, Serialize)]
struct SidecarService {
    name: String,
    address: String,
    identity: String,
}

/// An Envoy that runs. Dropping it ends it.
pub(super) struct Sidecar {
    /// Its pod, or its node.
    pub(super) of: String,
    process: Child,
}

impl Sidecar {
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl SidecarMesh<'_> {
    /// Makes an authority, and a folder in the lab's.
    ///
    /// # Errors
    /// Envoy or nft is missing, or a file cannot be written.
    pub(super) fn new<'m>(
        tools: &'m Tools,
        lab: &Lab,
        know_all: bool,
    ) -> anyhow::Result<SidecarMesh<'m>> {
        let folder = lab.folder().join("envoy");
        fs::create_dir(&folder)?;
        let authority = Authority::new()?;
        authority.write_root(&folder)?;
        let servers = lab.pods().map(|pod| pod.plan());
        let servers = servers.filter(|pod| pod.command.is_some());
        let service = servers.map(|pod| {
            let name = pod.workload.name.to_string();
            let address = pod.address(Family::V4).context("an address")?;
            Ok(SidecarService {
                identity: authority::identity(&name)?.to_string(),
                address: address.to_string(),
                name,
            })
        });
        Ok(SidecarMesh {
            envoy: tools.envoy.as_deref().context("no Envoy")?,
            nft: tools.nft.as_deref().context("no nft")?,
            services: service.collect::<anyhow::Result<_>>()?,
            authority,
            folder,
            know_all,
        })
    }

    /// Starts one in a pod. A client's knows every Service, a server's its own only, unless all are to know all: what
    /// a server's would spend on others is not held against it.
    ///
    /// # Errors
    /// It cannot be started, or nft refuses.
    pub(super) fn start(&self, pod: &Pod<'_>) -> anyhow::Result<Sidecar> {
        let name = pod.plan().workload.name.to_string();
        self.authority.leaf(&name)?.write(&self.folder, &name)?;
        let is_server = pod.plan().command.is_some();
        let known = |service: &&SidecarService| self.know_all || !is_server || service.name == name;
        let services: Vec<&SidecarService> = self.services.iter().filter(known).collect();
        let text = render(
            include_str!("../../peers/envoy-sidecar.yaml.j2"),
            context! { pod => name, services, port => PORT, mark => MARK, dir => self.folder.display().to_string() },
        )?;
        let rules = render(
            include_str!("../../peers/envoy-redirect.nft.j2"),
            context! { mark => MARK },
        )?;
        self.load_rules(pod, &rules)?;
        self.run(name, &text, pod.command(self.envoy)?)
    }

    /// Starts one for a node. It knows every Service.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_shared(&self, node: &Node<'_>) -> anyhow::Result<Sidecar> {
        let text = render(
            include_str!("../../peers/envoy-shared.yaml.j2"),
            context! { services => self.services, port => PORT },
        )?;
        let name = node.plan().name.to_string();
        self.run(name, &text, node.command(self.envoy)?)
    }

    /// Sends what a pod dials to the Envoy of a node.
    ///
    /// # Errors
    /// nft refuses.
    pub(super) fn send_to(&self, pod: &Pod<'_>, envoy: IpAddr) -> anyhow::Result<()> {
        let rules = render(
            include_str!("../../peers/envoy-shared.nft.j2"),
            context! { envoy => envoy.to_string() },
        )?;
        self.load_rules(pod, &rules)
    }

    /// Runs an Envoy with that configuration, by a command that says where.
    fn run(&self, of: String, config: &str, mut command: Command) -> anyhow::Result<Sidecar> {
        let file = self.folder.join(format!("{of}.yaml"));
        fs::write(&file, config)?;
        let log = File::create(self.folder.join(format!("{of}.log")))?;
        command
            .args(["--concurrency", "1", "--disable-hot-restart"])
            .args(["--log-level", "warn", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = command
            .spawn()
            .with_context(|| format!("the Envoy of {of}"))?;
        Ok(Sidecar { of, process })
    }

    fn load_rules(&self, pod: &Pod<'_>, rules: &str) -> anyhow::Result<()> {
        let mut nft = pod.command(self.nft)?;
        let mut nft = nft
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("nft")?;
        if let Some(mut input) = nft.stdin.take() {
            input.write_all(rules.as_bytes())?;
        }
        let output = nft.wait_with_output()?;
        anyhow::ensure!(
            output.status.success(),
            "nft: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }
}
