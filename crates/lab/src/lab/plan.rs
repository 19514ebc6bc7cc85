//! The complete plan of a lab, with all addresses, before anything is made.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use heddle_model::{Command, NodeName, ServiceName, WorkloadName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::address;
use super::file::{Carried, Family, File, Hooks, LabName, Restart};
use super::heddle::NODE_PORT;
use super::manifests::{Manifests, Object};
use numbers::Numbers;
use services::place_services;

mod numbers;
mod services;
#[cfg(test)]
mod tests;

/// A lab with every name and address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Its name, the prefix of everything that is made.
    pub name: LabName,
    /// What carries the pods' traffic.
    pub carried: Carried,
    /// How the proxy intercepts it.
    pub hooks: Hooks,
    /// Whether ended processes of the mesh are restarted.
    pub restart: Restart,
    /// The control plane's settings file. `None`: defaults.
    pub settings: Option<PathBuf>,
    /// The nodes, in the order of the lab's file.
    pub nodes: Vec<NodePlan>,
    /// The pods, sorted by name.
    pub pods: Vec<PodPlan>,
    /// The Services, sorted by name.
    pub services: Vec<ServicePlan>,
    /// Warnings about the manifests, for users.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// `None` when read back from a lab that is up, which has its manifests in its folder.
    #[serde(skip)]
    pub(super) manifests: Option<Manifests>,
}

/// A node of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Unique in the lab; network namespaces and control groups are named after it.
    pub name: NodeName,
    /// The settings file of its proxy, or of its pods' proxies. `None`: defaults.
    pub settings: Option<PathBuf>,
    /// Counted from 1; part of its addresses.
    pub(super) number: u16,
}

/// A pod of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodPlan {
    /// The name of its LocalWorkload.
    pub workload: WorkloadName,
    /// The node that it is on.
    pub node: NodeName,
    /// The mesh node that carries its traffic: a node of its own if it has its own proxy.
    pub mesh_node: NodeName,
    /// One address of each of its families, the preferred family first.
    pub addresses: Vec<IpAddr>,
    /// Counted from 1 on its node; part of its addresses and of its link's name and index.
    pub(super) number: u16,
    /// CPU limit of its processes. `None`: no limit.
    pub cpus: Option<f64>,
    /// Whether the proxy of its node intercepts its traffic.
    pub enrolled: bool,
    /// Whether it has an Envoy of its own (`heddle.dev/proxy: envoy`), which the lab starts if `carried: node`.
    pub has_envoy: bool,
    /// TCP ports that the manifest declares; [`Lab::up`](super::Lab::up) waits until its program listens on them.
    pub ports: Vec<u16>,
    /// Its program. `None`: the pod only serves `heddle-lab exec`.
    pub command: Option<Command>,
}

/// A Service of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServicePlan {
    pub name: ServiceName,
    /// One address of each of its families; empty if it is headless.
    pub cluster_addresses: Vec<IpAddr>,
    /// The families of its addresses.
    pub families: Vec<Family>,
    /// The pods that its selector matches.
    pub pods: Vec<WorkloadName>,
    /// Counted from 1; part of its addresses.
    pub(super) number: u16,
}

impl Plan {
    /// Reads the file of a lab and its manifests, and assigns all addresses.
    ///
    /// # Errors
    /// Names the file, the mistake and the remedy.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Self::read_after(path, None)
    }

    /// The name of the lab that a file describes.
    ///
    /// # Errors
    /// As for [`Plan::read`], without the manifests.
    pub(super) fn name_in(path: &Path) -> anyhow::Result<LabName> {
        Ok(File::read(path)?.name)
    }

    /// The folder of manifests that a file names.
    ///
    /// # Errors
    /// As for [`Plan::name_in`].
    pub(super) fn manifests_of(path: &Path) -> anyhow::Result<PathBuf> {
        Ok(File::read(path)?.manifests)
    }

    /// As [`Plan::read`], for a lab that is up: names in `before` keep their addresses.
    ///
    /// # Errors
    /// As for [`Plan::read`].
    pub(super) fn read_after(path: &Path, before: Option<&Plan>) -> anyhow::Result<Self> {
        let file = File::read(path)?;
        Self::of(&file, before).with_context(|| path.display().to_string())
    }

    fn of(file: &File, before: Option<&Plan>) -> anyhow::Result<Self> {
        let mut manifests = Manifests::read(&file.manifests)?;
        let nodes = file.nodes.iter().zip(1..).map(|(node, number)| NodePlan {
            settings: node.settings.clone().or(file.node_settings.clone()),
            ..NodePlan::from((node.name.clone(), number))
        });
        let nodes: Vec<NodePlan> = nodes.collect();
        let (mut pods, labels) = place_pods(file, &nodes, &mut manifests, before)?;
        let services = place_services(&mut manifests, &labels, before)?;
        let unknown = file.pods.keys().find(|name| !labels.contains_key(name));
        if let Some(name) = unknown {
            bail!("pods.{name}: the manifests have no such LocalWorkload (correct the name)");
        }
        let (mesh, warnings) = manifests.compile()?;
        let workloads = mesh.workloads.into_iter();
        let mut workloads: BTreeMap<WorkloadName, _> = workloads
            .map(|workload| (workload.name.clone(), workload))
            .collect();
        for pod in &mut pods {
            let workload = workloads.remove(&pod.workload);
            let workload = workload
                .with_context(|| format!("{}: the control plane leaves it out", pod.workload))?;
            pod.ports = workload.ports.iter().map(|port| port.port).collect();
            check_ports(pod, file.carried)?;
            pod.command = workload.command.clone();
        }
        Ok(Self {
            name: file.name.clone(),
            carried: file.carried,
            hooks: file.hooks,
            restart: file.restart,
            settings: file.settings.clone(),
            nodes,
            pods,
            services,
            warnings,
            manifests: Some(manifests),
        })
    }

    pub fn node(&self, name: &str) -> Option<&NodePlan> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }

    /// The pod of that name, `NAMESPACE/NAME`.
    pub fn pod(&self, name: &str) -> Option<&PodPlan> {
        let name = WorkloadName::parse(name).ok()?;
        self.pods.iter().find(|pod| pod.workload == name)
    }

    pub(super) fn pods_of<'p>(&'p self, node: &'p NodePlan) -> impl Iterator<Item = &'p PodPlan> {
        self.pods.iter().filter(|pod| pod.node == node.name)
    }
}

impl From<(NodeName, u16)> for NodePlan {
    fn from((name, number): (NodeName, u16)) -> Self {
        Self {
            name,
            settings: None,
            number,
        }
    }
}

impl PodPlan {
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        let is = |address: &IpAddr| address.is_ipv4() == (family == Family::V4);
        self.addresses.iter().copied().find(is)
    }

    /// Name of its Envoy's log and note.
    pub(super) fn envoy_name(&self) -> String {
        format!("envoy-{}", self.file_name())
    }

    /// Name of its program's log and note.
    pub(super) fn process_name(&self) -> String {
        format!("pod-{}", self.file_name())
    }

    /// Its name for files and folders: without a slash, and unique.
    pub(super) fn file_name(&self) -> String {
        file_name(&self.workload)
    }
}

fn file_name(name: &WorkloadName) -> String {
    format!("{}.{}", name.namespace, name.name)
}

type Labels = BTreeMap<WorkloadName, Vec<(String, String)>>;

/// Gives every LocalWorkload its node and addresses, in the plan and in the manifests.
fn place_pods(
    file: &File,
    nodes: &[NodePlan],
    manifests: &mut Manifests,
    before: Option<&Plan>,
) -> anyhow::Result<(Vec<PodPlan>, Labels)> {
    let mut pods = Vec::new();
    let mut labels = Labels::new();
    let mut numbers: Vec<Numbers<WorkloadName>> = nodes
        .iter()
        .map(|node| {
            let pods = before.into_iter().flat_map(|plan| plan.pods_of(node));
            pods.map(|pod| (pod.workload.clone(), pod.number)).collect()
        })
        .collect();
    let knows_addresses = knows_addresses();
    manifests.each("LocalWorkload", |mut object| {
        let workload = WorkloadName::new(&object.namespace, &object.name)?;
        let of_it = object.texts(["metadata", "labels"]);
        let has_envoy = has_envoy(&object);
        ensure!(
            labels.insert(workload.clone(), of_it).is_none(),
            "LocalWorkload {workload} is defined twice (rename one)"
        );
        let settings = file.pods.get(&workload).cloned().unwrap_or_default();
        let folder = object.folder.clone();
        let spec = object.spec()?;
        let node = node_of(&workload, spec, nodes)?;
        let number = numbers[usize::from(node.number) - 1].of(&workload);
        ensure!(
            usize::from(number) <= address::MAX_PODS,
            "node {} has more than {} pods (put some on another)",
            node.name,
            address::MAX_PODS
        );
        let mut families = settings.families;
        if has_envoy {
            // The packet filters that lead to an Envoy are of IPv4.
            families.retain(|family| *family == Family::V4);
            ensure!(
                !families.is_empty(),
                "pods.{workload}.families: a pod with an Envoy has an IPv4 address (add ipv4)"
            );
        }
        let addresses: Vec<IpAddr> = families
            .iter()
            .map(|family| address::pod(node.number, number, *family))
            .collect();
        let mesh_node = match file.carried {
            Carried::Pod => NodeName::parse(&file_name(&workload))?,
            Carried::Node | Carried::Nothing => node.name.clone(),
        };
        complete_pod(spec, &folder, &mesh_node, &addresses, knows_addresses);
        pods.push(PodPlan {
            workload,
            node: node.name.clone(),
            mesh_node,
            addresses,
            number,
            cpus: settings.cpus,
            enrolled: settings.enrolled && !has_envoy,
            has_envoy,
            ports: Vec::new(),
            command: None,
        });
        Ok(())
    })?;
    pods.sort_by(|one, other| one.workload.cmp(&other.workload));
    Ok((pods, labels))
}

/// Whether its manifest asks for an Envoy of its own.
fn has_envoy(object: &Object<'_>) -> bool {
    let mut annotations = object.texts(["metadata", "annotations"]).into_iter();
    annotations.any(|(key, value)| key == "heddle.dev/proxy" && value == "envoy")
}

/// The mesh's ports in the namespace of an enrolled pod: for connections of the pod, and for connections to it. A
/// pod's own proxy also listens on [`NODE_PORT`].
const TAKEN_PORTS: [u16; 2] = [15_001, 15_006];

/// A program cannot use a port on which the mesh listens in the same namespace.
fn check_ports(pod: &PodPlan, carried: Carried) -> anyhow::Result<()> {
    if carried == Carried::Nothing || !(pod.enrolled || pod.has_envoy) {
        return Ok(());
    }
    let of_its_proxy = (carried == Carried::Pod).then_some(NODE_PORT);
    let taken: Vec<u16> = TAKEN_PORTS.into_iter().chain(of_its_proxy).collect();
    let number = pod.ports.iter().position(|port| taken.contains(port));
    match number {
        None => Ok(()),
        Some(number) => bail!(
            "LocalWorkload {}: spec.ports[{number}].port: on {} the mesh itself listens in every pod that it \
             carries (let the program listen on another, or leave the pod out with pods.{}.enrolled: false)",
            pod.workload,
            pod.ports[number],
            pod.workload
        ),
    }
}

fn node_of<'n>(
    workload: &WorkloadName,
    spec: &Map<String, Value>,
    nodes: &'n [NodePlan],
) -> anyhow::Result<&'n NodePlan> {
    let names = || {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    };
    let written = spec.get("nodeName").and_then(Value::as_str);
    match (written.filter(|name| !name.is_empty()), nodes) {
        (Some(name), _) => nodes
            .iter()
            .find(|node| node.name.as_str() == name)
            .with_context(|| {
                let names = names();
                format!("LocalWorkload {workload}: spec.nodeName: the lab has no node {name:?} (it has {names})")
            }),
        (None, [only]) => Ok(only),
        (None, _) => bail!(
            "LocalWorkload {workload}: spec.nodeName: it does not say which node it is on (add one of {})",
            names()
        ),
    }
}

fn complete_pod(
    spec: &mut Map<String, Value>,
    folder: &Path,
    node: &NodeName,
    addresses: &[IpAddr],
    knows_addresses: bool,
) {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    spec.insert("nodeName".to_owned(), json!(node.as_str()));
    spec.insert("address".to_owned(), json!(texts[0]));
    spec.remove("addresses");
    if knows_addresses && texts.len() > 1 {
        spec.insert("addresses".to_owned(), json!(texts[1..]));
    }
    // A relative path is relative to the folder of the manifest, and the copy is in another folder.
    if spec.contains_key("command") {
        let written = spec.get("workingDir").and_then(Value::as_str);
        let folder: PathBuf = folder.join(written.unwrap_or_default());
        spec.insert("workingDir".to_owned(), json!(folder.to_string_lossy()));
    }
}

/// Whether the control plane of this build reads the second address of a workload.
fn knows_addresses() -> bool {
    let text = br#"{"apiVersion": "heddle.dev/v1alpha1", "kind": "LocalWorkload",
        "metadata": {"name": "a"},
        "spec": {"address": "10.0.0.1", "addresses": ["fd00::1"]}}"#;
    heddle_compile::load_text(Path::new("addresses.yaml"), text)
        .0
        .is_some()
}
