//! A lab of one system: a client, servers, and their proxies.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_lab::lab::{self, Family, Lab, LabName, Plan, Programs};

mod shape;

pub(super) use self::shape::SceneShape;
use super::group::LabGroup;
use super::kind::Kind;
use super::sidecar::{Sidecar, SidecarMesh};
use super::{PORT, Tools};
use crate::load::Outcome;
use crate::stage;

/// The label of a pod's class.
const CLASS: &str = "heddle.dev/class";
/// The namespace of all pods and Services.
const NAMESPACE: &str = "lab";
/// The timeout until requests to all servers get through.
const PATIENCE: Duration = Duration::from_secs(90);
/// Prefix of the names by which proxies are watched.
pub(super) const PROXY: &str = "proxy.";
/// CPU time in nanoseconds for each request, below which a proxy has not handled them: four system calls take more.
const LEAST_NS: u64 = 3_000;
/// Prefix of the names of these labs; a letter for the system and the process id of the experiment follow.
const PREFIX: &str = "bench";

/// A lab of one system. Fields are dropped in this order.
pub(super) struct Scene {
    pub(super) kind: Kind,
    sidecars: Vec<Sidecar>,
    lab: Lab,
    program: PathBuf,
    heddle: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// Makes the lab, and waits until every server answers the client.
    ///
    /// # Errors
    /// When something cannot be made or does not get ready; what was made is removed.
    pub(super) fn up(kind: Kind, shape: SceneShape, tools: &Tools) -> anyhow::Result<Scene> {
        let made = Scene::make(kind, shape, tools);
        made.with_context(|| format!("the lab of {kind} with {} servers", shape.near + shape.far))
    }

    fn make(kind: Kind, shape: SceneShape, tools: &Tools) -> anyhow::Result<Scene> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        fs::create_dir(folder.path().join("mesh"))?;
        let manifests = shape.manifests(&tools.lab);
        fs::write(folder.path().join("mesh/all.yaml"), manifests)?;
        let file = folder.path().join("lab.yaml");
        let letter = &kind.name()[..1];
        let nodes = shape.nodes();
        let text = format!(
            "name: {PREFIX}{letter}{}\nnodes: {nodes}\nmanifests: mesh\ncarried: {}\n",
            std::process::id(),
            kind.carried()
        );
        fs::write(&file, text)?;
        let programs = Programs {
            lab: tools.lab.clone(),
            heddle: Some(tools.heddle.clone()),
            envoy: None,
            keep: false,
        };
        let lab = Lab::up_with(&Plan::read(&file)?, &programs, &mut |_| {})?;
        LabGroup::of_lab(lab.plan().name.as_str(), "").favour();
        let mut scene = Scene {
            kind,
            sidecars: Vec::new(),
            lab,
            program: tools.lab.clone(),
            heddle: tools.heddle.clone(),
            _folder: folder,
        };
        match kind {
            Kind::Envoy => scene.start_sidecars(tools, shape.sidecars_know_all)?,
            Kind::Shared => scene.start_shared(tools)?,
            Kind::Direct | Kind::Node | Kind::Pod => {}
        }
        scene.wait_until_all_answer(shape)?;
        Ok(scene)
    }

    fn start_sidecars(&mut self, tools: &Tools, know_all: bool) -> anyhow::Result<()> {
        let mesh = SidecarMesh::new(tools, &self.lab, know_all)?;
        let group = self.group("node-one/proxies");
        for pod in self.lab.pods() {
            let sidecar = mesh.start(&pod)?;
            if pod.plan().node.as_str() == "one" {
                group.count_memory_of(sidecar.pid())?;
            }
            self.sidecars.push(sidecar);
        }
        Ok(())
    }

    /// One Envoy for the first node, where the client and the servers near it are.
    fn start_shared(&mut self, tools: &Tools) -> anyhow::Result<()> {
        let mesh = SidecarMesh::new(tools, &self.lab, true)?;
        let node = self.lab.node("one")?;
        let envoy = mesh.start_shared(&node)?;
        self.group("node-one/proxies")
            .count_memory_of(envoy.pid())?;
        for pod in self.lab.pods() {
            mesh.send_to(&pod, node.address(Family::V4))?;
        }
        self.sidecars.push(envoy);
        Ok(())
    }

    fn wait_until_all_answer(&self, shape: SceneShape) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        for (name, _) in shape.servers() {
            let target = self.target(&name)?;
            loop {
                let asked = self.load(
                    std::slice::from_ref(&target),
                    &["--connections", "1", "--requests", "1"],
                );
                let problem = match asked {
                    Ok(outcome) if outcome.errors.is_empty() => break,
                    Ok(outcome) => format!("{:?}", outcome.errors),
                    Err(error) => format!("{error:#}"),
                };
                let late = Instant::now() > end;
                anyhow::ensure!(!late, "no request gets to {name}: {problem}");
                thread::park_timeout(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// A control group within the lab's.
    pub(super) fn group(&self, within: &str) -> LabGroup {
        LabGroup::of_lab(self.lab.plan().name.as_str(), within)
    }

    /// The admin socket of node one.
    ///
    /// # Errors
    /// When there is no such node.
    pub(super) fn admin_socket(&self) -> anyhow::Result<PathBuf> {
        Ok(self.lab.node("one")?.admin_socket())
    }

    /// The control group of a pod's processes.
    pub(super) fn pod_group(&self, name: &str, node: &str) -> LabGroup {
        self.group(&format!("node-{node}/pods/{NAMESPACE}.{name}"))
    }

    /// The target of the load generator for a server.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn target(&self, name: &str) -> anyhow::Result<String> {
        let pod = self.lab.pod(&format!("{NAMESPACE}/{name}"))?.plan();
        let address = match self.kind {
            Kind::Direct => pod.address(Family::V4),
            Kind::Node | Kind::Pod | Kind::Envoy | Kind::Shared => {
                let services = &self.lab.plan().services;
                let own = services.iter().find(|s| s.pods.contains(&pod.workload));
                let addresses = own.map(|service| &service.cluster_addresses);
                addresses.and_then(|all| all.iter().copied().find(IpAddr::is_ipv4))
            }
        };
        let address = SocketAddr::new(address.context("an address")?, PORT);
        Ok(format!("{name}@{address}"))
    }

    /// The address of a node.
    ///
    /// # Errors
    /// When there is no such node.
    pub(super) fn node_address(&self, node: &str) -> anyhow::Result<IpAddr> {
        Ok(self.lab.node(node)?.address(Family::V4))
    }

    /// The proxies: the pod or node of each, and its process.
    pub(super) fn proxies(&self) -> Vec<(String, u32)> {
        if self.kind.has_envoys() {
            let all = self.sidecars.iter();
            return all.map(|one| (one.of.clone(), one.pid())).collect();
        }
        let notes = self.lab.processes().into_iter();
        let heddles = notes.filter_map(|note| {
            let name = note.what.strip_prefix("heddle node ")?;
            let pod = name.strip_prefix("lab.").unwrap_or(name).to_owned();
            Some((pod, u32::try_from(note.pid).ok()?))
        });
        heddles.collect()
    }

    /// The process of a server.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn server(&self, name: &str) -> anyhow::Result<u32> {
        self.process(&format!("the program of pod {NAMESPACE}/{name}"))
    }

    /// A process of the lab, by the lab's description of it.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn process(&self, what: &str) -> anyhow::Result<u32> {
        let note = self.lab.processes().into_iter().find(|n| n.what == what);
        let note = note.with_context(|| format!("the lab has no {what}"))?;
        Ok(u32::try_from(note.pid)?)
    }

    /// Lets the client load a server, and reads CPU time and memory of that server, as `upstream`, and of every proxy,
    /// as `proxy.POD` or `proxy.NODE`.
    ///
    /// # Errors
    /// When the load generator fails, or a proxy that has to carry the requests has not.
    pub(super) fn measure(&self, server: &str, arguments: &[&str]) -> anyhow::Result<Outcome> {
        let mut watched: Vec<String> = Vec::new();
        for (name, pid) in self.proxies() {
            watched.extend(["--watch".to_owned(), format!("{PROXY}{name}={pid}")]);
        }
        let upstream = self.server(server)?;
        watched.extend(["--watch".to_owned(), format!("upstream={upstream}")]);
        let mut all: Vec<&str> = arguments.to_vec();
        all.extend(watched.iter().map(String::as_str));
        let outcome = self.load(&[self.target(server)?], &all)?;
        for carrier in self.carriers(server)? {
            let used = outcome.cpu.get(&format!("{PROXY}{carrier}"));
            let used_ns = used.map_or(0, |used| used.cpu_ns);
            anyhow::ensure!(
                used_ns >= outcome.requests * LEAST_NS,
                "the requests did not pass the proxy of {carrier}, which used {used_ns} ns for {}",
                outcome.requests
            );
        }
        Ok(outcome)
    }

    /// The pods or nodes whose proxies a request to a server has to pass.
    fn carriers(&self, server: &str) -> anyhow::Result<Vec<String>> {
        let of = |name: &str| {
            let pod = self.lab.pod(&format!("{NAMESPACE}/{name}"))?.plan();
            anyhow::Ok(match self.kind {
                Kind::Direct => None,
                Kind::Node | Kind::Shared => Some(pod.node.to_string()),
                Kind::Pod | Kind::Envoy => Some(name.to_owned()),
            })
        };
        let mut all: Vec<String> = [of("client")?, of(server)?].into_iter().flatten().collect();
        all.dedup();
        Ok(all)
    }

    /// Lets the client load these targets.
    ///
    /// # Errors
    /// When the load generator fails.
    pub(super) fn load(&self, targets: &[String], arguments: &[&str]) -> anyhow::Result<Outcome> {
        finish(self.start_load(targets, arguments)?)
    }

    /// The same, without waiting for its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start_load(
        &self,
        targets: &[String],
        arguments: &[&str],
    ) -> anyhow::Result<Child> {
        let mut all = vec!["load"];
        all.extend(arguments);
        for target in targets {
            all.extend(["--target", target]);
        }
        self.start_in_client(&all)
    }

    /// Tells the mesh which class the pod `batch` has, and waits until its node knows.
    ///
    /// # Errors
    /// When the manifests cannot be written, or the node does not hear of it.
    pub(super) fn set_class_of_batch(&self, class: &str) -> anyhow::Result<()> {
        let label = |class: &str| format!("\"{CLASS}\": \"{class}\"");
        let folder = self.lab.folder().join("manifests");
        let mut is_said = false;
        for entry in fs::read_dir(&folder)?.flatten() {
            let text = fs::read_to_string(entry.path())?;
            let of_now = ["online", "offline"].map(label);
            let Some(old) = of_now.iter().find(|old| text.contains(*old)) else {
                continue;
            };
            is_said = true;
            if *old != label(class) {
                // Hidden files are not read as manifests.
                let next = folder.join(".next");
                fs::write(&next, text.replace(old, &label(class)))?;
                fs::rename(&next, entry.path())?;
            }
        }
        anyhow::ensure!(is_said, "no manifest of the lab has the label {CLASS}");
        let end = Instant::now() + PATIENCE;
        while self.knows_offline_pods()? != (class == "offline") {
            anyhow::ensure!(
                Instant::now() < end,
                "the node does not hear of the class {class}"
            );
            thread::park_timeout(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Whether the mesh that the first node serves has a pod that is offline.
    fn knows_offline_pods(&self) -> anyhow::Result<bool> {
        let mut dump = self.lab.node("one")?.command(&self.heddle)?;
        let output = dump.args(["config", "dump"]).output()?;
        anyhow::ensure!(
            output.status.success(),
            "heddle config dump: {}",
            output.status
        );
        let config: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let workloads = config["mesh"]["workloads"].as_array();
        let workloads = workloads.context("no workloads")?.iter();
        Ok(workloads
            .into_iter()
            .any(|workload| workload["qos"]["class"] == "offline"))
    }

    /// Starts a subcommand of this program in the client's pod.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start_in_client(&self, arguments: &[&str]) -> anyhow::Result<Child> {
        self.start_in("client", arguments)
    }

    /// The same, in any pod.
    ///
    /// # Errors
    /// When there is no such pod, or it cannot be started.
    pub(super) fn start_in(&self, pod: &str, arguments: &[&str]) -> anyhow::Result<Child> {
        let client = self.lab.pod(&format!("{NAMESPACE}/{pod}"))?;
        client
            .command(&self.program)?
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} in the pod {pod}", arguments[0]))
    }
}

/// Waits until a load generator ends; returns its outcome.
///
/// # Errors
/// When it failed.
pub(super) fn finish(load: Child) -> anyhow::Result<Outcome> {
    let output = load.wait_with_output()?;
    anyhow::ensure!(
        output.status.success(),
        "the load generator: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    stage::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Removes labs of experiments that were interrupted.
pub(super) fn sweep() {
    for name in lab::labs().into_iter().filter(is_abandoned) {
        if let Err(error) = lab::down(&name) {
            let _closed = writeln!(std::io::stderr(), "heddle-lab: {name}: {error:#}");
        }
    }
}

fn is_abandoned(name: &LabName) -> bool {
    let rest = name.as_str().strip_prefix(PREFIX).and_then(|r| r.get(1..));
    let pid = rest.and_then(|rest| rest.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labs_of_experiments_that_have_ended_are_abandoned() {
        let own = std::process::id();
        for (name, abandoned) in [
            (format!("benchn{own}"), false),
            ("benchn4194305".to_owned(), true), // above the largest id
            ("bench".to_owned(), false),
            ("benchmark".to_owned(), false),
            ("shop4194305".to_owned(), false),
        ] {
            let name = LabName::parse(&name).expect("a name");
            assert_eq!(is_abandoned(&name), abandoned, "{name}");
        }
    }
}
