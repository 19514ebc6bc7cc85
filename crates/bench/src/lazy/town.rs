//! The lab: bookstores with lazy Envoys, with Envoys that know everything, and without Envoys.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_lab::lab::{Family, Lab, Plan, Pod, Programs};

use super::Tools;
use super::envoy::Envoy;
use crate::stage;

/// The port of every server, and of its Service.
pub(super) const PORT: u16 = 8080;
/// The servers of a bookstore; its front calls all of them.
pub(super) const SERVERS: [&str; 3] = ["details", "reviews", "ratings"];
/// The pod that calls them.
pub(super) const FRONT: &str = "front";
/// The bookstores: their namespace, their node, and whether their pods have Envoys.
const BOOKSTORES: [(&str, &str, bool); 4] = [
    (LAZY, "three", true),
    (FULL, "three", true),
    (ON_DEMAND, "one", false),
    (EAGER, "two", false),
];
pub(super) const LAZY: &str = "lazy";
pub(super) const FULL: &str = "full";
pub(super) const ON_DEMAND: &str = "demand";
pub(super) const EAGER: &str = "eager";
/// The pod whose Envoy is lazy, and never sends anything.
pub(super) const EMPTY: &str = "empty/front";
/// The gateways.
pub(super) const GATEWAYS: [&str; 2] = ["mesh/gate-one", "mesh/gate-two"];
/// The node that is the gateway at the end.
pub(super) const GATEWAY_NODE: &str = "two";
/// The timeout of every wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
/// The control plane's settings: pods, Services and load are in the mesh, the nodes' own addresses are not.
const CONTROL: &str =
    "mesh: {address_ranges: [10.0.0.0/9, 10.130.0.0/16, \"fd68:6c::/48\", \"fd68:6c:60::/64\"]}\n";
/// The node that knows everything.
const EAGER_NODE: &str = "node: {discovery: {mode: eager}}\n";

/// The lab, which is up. Fields are dropped in this order.
pub(super) struct Town {
    /// A server on a node, which is not in the mesh.
    _outside: Outside,
    pub(super) lab: Lab,
    _folder: tempfile::TempDir,
}

impl Town {
    /// Makes the lab, and waits until every front is answered by its servers.
    ///
    /// # Errors
    /// When something cannot be made or does not get ready.
    pub(super) fn up(tools: &Tools) -> anyhow::Result<Town> {
        let folder = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let file = |name: &str| folder.path().join(name);
        fs::create_dir(file("mesh"))?;
        fs::write(file("mesh/all.yaml"), manifests(&tools.lab))?;
        fs::write(file("mesh/gateways.yaml"), roles(Gateways::Envoys))?;
        fs::write(file("control.yaml"), CONTROL)?;
        fs::write(file("eager.yaml"), EAGER_NODE)?;
        let text = format!(
            "name: benchl{}\nnodes: [one, {{name: two, settings: eager.yaml}}, three]\nmanifests: mesh\n\
             carried: node\nsettings: control.yaml\n",
            std::process::id()
        );
        fs::write(file("lab.yaml"), text)?;
        let programs = Programs {
            lab: tools.lab.clone(),
            heddle: Some(tools.heddle.clone()),
            envoy: Some(tools.envoy.clone()),
            keep: false,
        };
        let plan = Plan::read(&file("lab.yaml"))?;
        let lab = Lab::up_with(&plan, &programs, &mut |what| eprintln!("  {what}"))?;
        let outside = Outside::start(&lab)?;
        let town = Town {
            _outside: outside,
            lab,
            _folder: folder,
        };
        for (namespace, ..) in BOOKSTORES {
            let is_answered = || town.is_answered(namespace).unwrap_or_default();
            wait_until(&format!("the bookstore {namespace} answers"), is_answered)?;
        }
        Ok(town)
    }

    /// From now on these are the gateways, as the lazy Envoy knows it.
    ///
    /// # Errors
    /// When it does not get to know them.
    pub(super) fn use_gateways(&self, gateways: Gateways) -> anyhow::Result<()> {
        let file = self.lab.folder().join("manifests/gateways.yaml");
        fs::write(file, roles(gateways))?;
        let envoy = self.envoy(&format!("{LAZY}/{FRONT}"))?;
        let count = match gateways {
            Gateways::Envoys => GATEWAYS.len(),
            Gateways::Node => 1,
        };
        let has_them = || {
            envoy
                .gateways()
                .is_ok_and(|known| (known - count as f64).abs() < 0.5)
        };
        wait_until("the lazy Envoy has the gateways", has_them)?;
        Ok(())
    }

    /// The pod `NAMESPACE/NAME`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn pod(&self, name: &str) -> anyhow::Result<Pod<'_>> {
        self.lab.pod(name)
    }

    /// The Envoy of a pod.
    ///
    /// # Errors
    /// When it does not run.
    pub(super) fn envoy(&self, pod: &str) -> anyhow::Result<Envoy> {
        let pid = self.process(&format!("the Envoy of pod {pod}"))?;
        Ok(Envoy::new(pid, self.pod(pod)?.network()))
    }

    /// A process of the lab, by the lab's description of it.
    ///
    /// # Errors
    /// When it does not run.
    pub(super) fn process(&self, what: &str) -> anyhow::Result<u32> {
        let mut notes = self.lab.processes().into_iter();
        let note = notes.find(|note| note.what == what && note.runs());
        let note = note.with_context(|| format!("{what} does not run"))?;
        Ok(u32::try_from(note.pid)?)
    }

    /// The cluster address of a Service.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn address(&self, service: &str) -> anyhow::Result<IpAddr> {
        let mut services = self.lab.plan().services.iter();
        let found = services.find(|one| one.name.to_string() == service);
        let addresses = &found
            .with_context(|| format!("no {service}"))?
            .cluster_addresses;
        let address = addresses.iter().copied().find(IpAddr::is_ipv4);
        address.with_context(|| format!("{service} has no address"))
    }

    /// The load generator in the front of a bookstore, with the bookstore's servers as targets.
    ///
    /// # Errors
    /// When there is no such bookstore.
    pub(super) fn load(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        // In the pod's control group: node proxies know their pods by it.
        let mut command = self
            .pod(&format!("{namespace}/{FRONT}"))?
            .command("heddle-lab")?;
        command.arg("load").args(arguments);
        for server in SERVERS {
            let address = self.address(&format!("{namespace}/{server}"))?;
            command.args(["--target", &format!("{server}@{address}:{PORT}")]);
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// The load generator in the pod of the Envoy that knows nothing, with a server outside of the mesh as its target.
    ///
    /// # Errors
    /// When there is no such pod.
    pub(super) fn load_of_empty(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.pod(EMPTY)?.command("heddle-lab")?;
        command.arg("load").args(arguments);
        command.args([
            "--target",
            &format!("outside@{}", Outside::address(&self.lab)?),
        ]);
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Whether all servers of a bookstore answer its front.
    fn is_answered(&self, namespace: &str) -> anyhow::Result<bool> {
        let each = SERVERS.len().to_string();
        let arguments = ["--connections", &each, "--requests", &each];
        let output = self.load(namespace, &arguments)?.output()?;
        let outcome = stage::parse(&String::from_utf8_lossy(&output.stdout))?;
        Ok(outcome.errors.is_empty())
    }
}

/// A server on the node of the Envoys, outside of its pods.
struct Outside(Child);

impl Outside {
    fn start(lab: &Lab) -> anyhow::Result<Outside> {
        let mut command = lab.node("three")?.command("heddle-lab")?;
        command.args(["upstream", "--listen", &Outside::address(lab)?]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Outside(command.spawn()?))
    }

    fn address(lab: &Lab) -> anyhow::Result<String> {
        Ok(format!("{}:{PORT}", lab.node("three")?.address(Family::V4)))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits. A call of `park_timeout` alone may end early: threads of a scope that have ended unpark theirs.
pub(super) fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// Waits until something is so.
///
/// # Errors
/// When it is not in time.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while !is_so() {
        anyhow::ensure!(began.elapsed() < PATIENCE, "it does not come true: {what}");
        pause(Duration::from_millis(50));
    }
    Ok(began.elapsed())
}

fn account(name: &str, namespace: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {namespace}{more}}}\n"
    )
}

fn workload(name: &str, namespace: &str, more: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}{more}}}\nspec:\n{spec}"
    )
}

/// What the gateways are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gateways {
    /// Two Envoys.
    Envoys,
    /// The proxy of the node that knows everything.
    Node,
}

/// The accounts of gateways, of which those of one kind have the role.
fn roles(gateways: Gateways) -> String {
    let role = |of| match gateways == of {
        true => ", annotations: {heddle.dev/gateway: default}",
        false => "",
    };
    account("gateway", "mesh", role(Gateways::Envoys))
        + &account("node-gateway", "mesh", role(Gateways::Node))
}

fn manifests(program: &Path) -> String {
    let program = program.display();
    let with_envoy = ", annotations: {heddle.dev/proxy: envoy}";
    let spec = format!("  nodeName: {GATEWAY_NODE}\n  serviceAccountName: node-gateway\n");
    let mut text = workload("node-gate", "mesh", "", &spec);
    for (name, node) in [("gate-one", "one"), ("gate-two", "two")] {
        let spec = format!("  nodeName: {node}\n  serviceAccountName: gateway\n");
        text += &workload(name, "mesh", with_envoy, &spec);
    }
    for namespace in [LAZY, "empty"] {
        text += &format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}, annotations: {{lazy-xds: \"true\"}}}}\n"
        );
    }
    let empty = ("empty", "three", true);
    for (namespace, node, has_envoy) in BOOKSTORES.into_iter().chain([empty]) {
        let more = if has_envoy { with_envoy } else { "" };
        text += &account(FRONT, namespace, "");
        let spec = format!("  nodeName: {node}\n  serviceAccountName: {FRONT}\n");
        text += &workload(FRONT, namespace, more, &spec);
        for server in SERVERS.iter().filter(|_| namespace != "empty") {
            text += &account(server, namespace, "");
            let spec = format!(
                "  nodeName: {node}\n  serviceAccountName: {server}\n  ports: [{{port: {PORT}}}]\n  command: \
                 [\"{program}\", upstream, --listen, \"[::]:{PORT}\"]\n"
            );
            text += &workload(server, namespace, more, &spec);
            text += &format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {server}, namespace: {namespace}}}\n\
                 spec: {{selector: {{app: {server}}}, ports: [{{port: {PORT}, appProtocol: http}}]}}\n"
            );
        }
    }
    text
}
