//! Envoy as the proxy of a pod: traffic is redirected to it within the pod, with mutual TLS between Envoys; and as the
//! proxy of a node, to which the traffic of its pods is redirected.

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

/// The socket mark that tells an Envoy's own connections from its pod's.
const MARK: u32 = 1337;

/// Programs, certificates and Services that all Envoys of a lab share.
pub(super) struct SidecarMesh<'m> {
    envoy: &'m Path,
    nft: &'m Path,
    authority: Authority,
    folder: PathBuf,
    services: Vec<SidecarService>,
    /// Whether a server's Envoy knows every Service, as is the default in a mesh.
    know_all: bool,
}

/// A server, as the Envoys of other pods know it.
#[derive(Debug, Clone, Serialize)]
struct SidecarService {
    name: String,
    address: String,
    identity: String,
}

/// A running Envoy. Dropping it kills it.
pub(super) struct Sidecar {
    /// The name of its pod or node.
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
    /// Makes an authority, and a folder within the lab's.
    ///
    /// # Errors
    /// When Envoy or nft is missing, or a file cannot be written.
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

    /// Starts one in a pod. A client's Envoy knows every Service, a server's only its own unless `know_all`: so the
    /// memory of a server's Envoy for other Services is not counted against Envoy.
    ///
    /// # Errors
    /// When it cannot be started, or nft refuses.
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
    /// When it cannot be started.
    pub(super) fn start_shared(&self, node: &Node<'_>) -> anyhow::Result<Sidecar> {
        let text = render(
            include_str!("../../peers/envoy-shared.yaml.j2"),
            context! { services => self.services, port => PORT },
        )?;
        let name = node.plan().name.to_string();
        self.run(name, &text, node.command(self.envoy)?)
    }

    /// Redirects the connections that a pod opens to the Envoy of a node.
    ///
    /// # Errors
    /// When nft refuses.
    pub(super) fn send_to(&self, pod: &Pod<'_>, envoy: IpAddr) -> anyhow::Result<()> {
        let rules = render(
            include_str!("../../peers/envoy-shared.nft.j2"),
            context! { envoy => envoy.to_string() },
        )?;
        self.load_rules(pod, &rules)
    }

    /// Runs an Envoy with this configuration. `command` decides in which pod or node.
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
