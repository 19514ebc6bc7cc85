//! Nodes and pods for a test: a lab that runs while the test needs it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heddle_intercept::Exclude;
use heddle_intercept::request::{self, PodState, Request};
use heddle_lab::lab::{self, Family, Lab, LabName, Node, Note, Plan, Pod, Programs};
use heddle_skips::skipped;
use tempfile::TempDir;

use crate::capture::Capture;
use crate::counters::Counters;

/// Timeout of every wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The description of a lab: manifests, and settings of pods that manifests do not have.
#[derive(Default)]
pub(crate) struct Scene {
    manifests: Vec<(String, String)>,
    pods: String,
    /// Further lines of the lab's file.
    more: String,
    /// Whether a keeper restarts nodes and control plane when they end.
    is_kept: bool,
    has_envoys: bool,
    /// The file of settings of the control plane.
    settings: Option<String>,
}

impl Scene {
    /// A pod with a service account of its own name.
    pub(crate) fn pod(self, name: &str, node: &str) -> Scene {
        self.account(name).workload(name, node, name, "")
    }

    /// Uses packet-filter hooks on all nodes.
    pub(crate) fn filtered(mut self) -> Scene {
        self.more += "hooks: nft\n";
        self
    }

    /// Uses a keeper, which restarts nodes and the control plane.
    pub(crate) fn kept(mut self) -> Scene {
        self.is_kept = true;
        self
    }

    /// A pod with only IPv6.
    pub(crate) fn pod_of_six(mut self, name: &str, node: &str) -> Scene {
        self.pods += &format!("  shop/{name}: {{families: [ipv6]}}\n");
        self.pod(name, node)
    }

    /// A pod with only IPv4.
    pub(crate) fn pod_of_four(mut self, name: &str, node: &str) -> Scene {
        self.pods += &format!("  shop/{name}: {{families: [ipv4]}}\n");
        self.pod(name, node)
    }

    /// A pod that is not enrolled when the lab starts.
    pub(crate) fn outsider(mut self, name: &str, node: &str) -> Scene {
        self.pods += &format!("  shop/{name}: {{enrolled: false}}\n");
        self.pod(name, node)
    }

    /// A strict pod: anonymous callers are refused, and its own connections are refused while no proxy serves it.
    pub(crate) fn strict(self, name: &str, node: &str) -> Scene {
        let labels = ", heddle.dev/mode: strict";
        self.account(name).workload(name, node, name, labels)
    }

    /// A pod with an Envoy of its own; `more` are further annotations, such as `, lazy-xds: \"true\"`.
    pub(crate) fn with_envoy(mut self, name: &str, node: &str, account: &str, more: &str) -> Scene {
        self.has_envoys = true;
        let text = format!(
            "apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}, annotations: {{heddle.dev/proxy: envoy{more}}}}}
spec: {{nodeName: {node}, serviceAccountName: {account}}}
"
        );
        self.manifest(&format!("pod-{name}"), &text)
    }

    /// The settings of the control plane.
    pub(crate) fn settings(mut self, text: &str) -> Scene {
        self.settings = Some(text.to_owned());
        self
    }

    /// A pod with the service account of another pod.
    pub(crate) fn pod_of(self, name: &str, node: &str, account: &str) -> Scene {
        self.workload(name, node, account, "")
    }

    pub(crate) fn account(self, name: &str) -> Scene {
        let text = format!(
            "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: shop}}
"
        );
        self.manifest(&format!("account-{name}"), &text)
    }

    fn workload(self, name: &str, node: &str, account: &str, labels: &str) -> Scene {
        let text = format!(
            "apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}{labels}}}}}
spec: {{nodeName: {node}, serviceAccountName: {account}}}
"
        );
        self.manifest(&format!("pod-{name}"), &text)
    }

    /// A Service of the pod with the same name, with ports such as `{port: 80, appProtocol: http}`.
    pub(crate) fn service(self, name: &str, ports: &str) -> Scene {
        self.service_of(name, ports, "")
    }

    /// A Service without a cluster address.
    pub(crate) fn headless(self, name: &str, ports: &str) -> Scene {
        self.service_of(name, ports, "clusterIP: None, ")
    }

    /// A Service with only IPv6.
    pub(crate) fn service_of_six(self, name: &str, ports: &str) -> Scene {
        self.service_of(name, ports, "ipFamilies: [IPv6], ")
    }

    fn service_of(self, name: &str, ports: &str, families: &str) -> Scene {
        let text = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{{families}selector: {{app: {name}}}, ports: [{ports}]}}
"
        );
        self.manifest(&format!("service-{name}"), &text)
    }

    /// Adds a manifest file.
    pub(crate) fn manifest(mut self, name: &str, text: &str) -> Scene {
        self.manifests
            .push((format!("{name}.yaml"), text.to_owned()));
        self
    }

    /// Starts the lab. `None`, with a message, if that is not possible here.
    pub(crate) fn up(&self) -> Option<Stage> {
        if !rustix::process::geteuid().is_root() {
            skipped("a lab needs root (run the tests with sudo)");
            return None;
        }
        let mut programs = Programs::find().expect("heddle-lab, by cargo build -p heddle-lab");
        if self.has_envoys {
            programs.envoy = Some(heddle_skips::envoy()?);
        }
        assert!(
            programs.heddle.is_some(),
            "there is no heddle beside this test: cargo build -p heddle -p heddle-lab-program"
        );
        static LABS: AtomicU32 = AtomicU32::new(0);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("tt{}n{number}", std::process::id());
        let folder = tempfile::tempdir().expect("a folder");
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open_to_all).expect("permissions");
        let mesh = folder.path().join("mesh");
        fs::create_dir(&mesh).expect("a folder");
        for (file, text) in &self.manifests {
            fs::write(mesh.join(file), text).expect("a manifest");
        }
        let mut text = format!("name: {name}\nnodes: [one, two]\nmanifests: mesh\ncarried: node\n");
        text += match self.is_kept {
            true => "restart: always\n",
            false => "restart: never\n",
        };
        text += &self.more;
        if let Some(settings) = &self.settings {
            fs::write(folder.path().join("control.yaml"), settings).expect("settings");
            text += "settings: control.yaml\n";
        }
        if !self.pods.is_empty() {
            text += &format!("pods:\n{}", self.pods);
        }
        let file = folder.path().join("lab.yaml");
        fs::write(&file, text).expect("a file");
        let plan = Plan::read(&file).expect("a plan");
        let name = plan.name.clone();
        let lab = Lab::up_with(&plan, &programs, &mut |_| {}).unwrap_or_else(|error| {
            panic!("the lab {name} does not come up: {error:#}");
        });
        Some(Stage {
            lab: Some(lab),
            heddle: programs.heddle.unwrap_or_default(),
            heddle_lab: programs.lab,
            folder,
            name,
        })
    }
}

/// Nodes `one` and `two` and their pods, all in the namespace `shop`.
pub(crate) struct Stage {
    lab: Option<Lab>,
    heddle: PathBuf,
    heddle_lab: PathBuf,
    folder: TempDir,
    name: LabName,
}

impl Stage {
    pub(crate) fn lab(&self) -> &Lab {
        self.lab.as_ref().expect("a lab that is up")
    }

    /// A folder for files of programs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn pod(&self, name: &str) -> Pod<'_> {
        self.lab().pod(&format!("shop/{name}")).expect("a pod")
    }

    pub(crate) fn node(&self, name: &str) -> Node<'_> {
        self.lab().node(name).expect("a node")
    }

    /// The node that runs a pod.
    pub(crate) fn node_of(&self, pod: &str) -> &str {
        self.pod(pod).plan().node.as_str()
    }

    /// A pod's own address: IPv4 if it has one.
    pub(crate) fn address(&self, pod: &str) -> IpAddr {
        let plan = self.pod(pod).plan();
        let address = plan.address(Family::V4).or(plan.address(Family::V6));
        address.expect("an address")
    }

    /// A pod's own address of a family.
    pub(crate) fn address_of(&self, pod: &str, family: Family) -> IpAddr {
        let address = self.pod(pod).plan().address(family);
        address.unwrap_or_else(|| panic!("{pod} has no address of {family:?}"))
    }

    /// The cluster address of a Service, of a family.
    pub(crate) fn cluster_address(&self, service: &str, family: Family) -> IpAddr {
        let mut services = self.lab().plan().services.iter();
        let found = services.find(|one| one.name.name.as_str() == service);
        let addresses = &found.expect("a Service").cluster_addresses;
        let is_wanted = |one: &&IpAddr| one.is_ipv4() == (family == Family::V4);
        let address = addresses.iter().find(is_wanted);
        *address.expect("a cluster address of that family")
    }

    /// The address of a family from which a pod's node would connect to it.
    pub(crate) fn address_of_node(&self, pod: &str, family: Family) -> IpAddr {
        let to = self.address_of(pod, family).to_string();
        let mut ip = self.node(self.node_of(pod)).command("ip").expect("a node");
        let output = ip.args(["route", "get", &to]).output().expect("ip runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = said.split_whitespace().skip_while(|word| *word != "src");
        let source = words.nth(1).and_then(|word| word.parse().ok());
        source.unwrap_or_else(|| panic!("no source: {said}"))
    }

    /// A port at a pod's own address, not at its Service's.
    pub(crate) fn at(&self, pod: &str, port: u16) -> String {
        SocketAddr::new(self.address(pod), port).to_string()
    }

    /// Runs `heddle` on this machine.
    pub(crate) fn heddle(&self, arguments: &[&str]) -> Result<String, String> {
        said(&self.heddle, arguments)
    }

    /// Runs `heddle-lab` likewise, with the name of this lab as the last argument.
    pub(crate) fn heddle_lab(&self, arguments: &[&str]) -> Result<String, String> {
        said(
            &self.heddle_lab,
            &[arguments, &[self.name.as_str()]].concat(),
        )
    }

    /// The lab's record of a process.
    pub(crate) fn process(&self, what: &str) -> Note {
        let processes = self.lab().processes();
        let note = processes.into_iter().find(|note| note.what == what);
        note.unwrap_or_else(|| panic!("no {what}"))
    }

    /// Does what `heddle enroll` does, which returns before the pod is served.
    pub(crate) fn enroll(&self, pod: &str) -> io::Result<()> {
        let of = self.pod(pod);
        let netns = OwnedFd::from(File::open(of.network())?);
        let request = Request::Enroll {
            workload: of.plan().workload.clone(),
            netns: of.network(),
            exclude: Exclude::default(),
        };
        request::ask(&of.holder_socket(), &request, Some(&netns)).map(drop)
    }

    /// Does what `heddle unenroll` does, which returns while waiting connections are still accepted.
    pub(crate) fn release(&self, pod: &str) -> io::Result<()> {
        let of = self.pod(pod);
        let workload = of.plan().workload.clone();
        request::ask(&of.holder_socket(), &Request::Unenroll { workload }, None).map(drop)
    }

    /// The holder's state of a pod; `None` if the pod is not enrolled, or without a holder.
    pub(crate) fn state(&self, pod: &str) -> Option<PodState> {
        let of = self.pod(pod);
        let pods = request::ask(&of.holder_socket(), &Request::List, None)
            .ok()?
            .pods;
        let workload = &of.plan().workload;
        // A pod that was just released is listed as well; the last one is current.
        let own = pods.iter().filter(|one| one.workload == *workload);
        own.map(|one| one.state).next_back()
    }

    /// Waits until a pod is served.
    pub(crate) fn until_served(&self, pod: &str) {
        until(&format!("{pod} is served"), || {
            self.state(pod) == Some(PodState::Serving)
        });
    }

    /// The counters of a node's proxy.
    pub(crate) fn counters(&self, node: &str) -> Counters {
        let text = self.metrics(node);
        Counters::of(&text.unwrap_or_else(|error| panic!("the metrics of {node}: {error}")))
    }

    fn metrics(&self, node: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(self.node(node).admin_socket())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The log of a node's holder and proxy.
    pub(crate) fn log(&self, node: &str) -> String {
        let file = self.lab().folder().join(format!("logs/heddle-{node}.log"));
        fs::read_to_string(file).unwrap_or_default()
    }

    /// Captures all traffic between the nodes.
    pub(crate) fn hear_underlay(&self) -> Capture {
        let name = &self.name;
        Capture::start(Path::new(&format!("/run/netns/hl-{name}-underlay")))
    }

    /// Captures on a node's side of its pods' links.
    pub(crate) fn hear_node(&self, node: &str) -> Capture {
        Capture::start(&self.node(node).network())
    }

    /// The addresses of all pods.
    pub(crate) fn pod_addresses(&self) -> Vec<IpAddr> {
        let pods = self.lab().plan().pods.iter();
        pods.flat_map(|pod| pod.addresses.iter().copied()).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.lab().folder().join("logs");
            eprintln!("what was logged last, of {}:", logs.display());
            for node in ["one", "two"] {
                let log = self.log(node);
                let lines: Vec<&str> = log.lines().collect();
                let last = &lines[lines.len().saturating_sub(25)..];
                eprintln!("-- node {node}\n{}", last.join("\n"));
                if let Ok(text) = self.metrics(node) {
                    eprintln!("{}", Counters::of(&text).failures().join("\n"));
                }
            }
        }
        let Some(lab) = self.lab.take() else { return };
        drop(lab);
        let left = lab::labs().contains(&self.name);
        assert!(
            !left || std::thread::panicking(),
            "the lab {} is still there",
            self.name
        );
    }
}

/// The output of a program that succeeds, or else its error output.
fn said(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("heddle runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "it does not come true: {what}");
        pause(Duration::from_millis(10));
    }
    since.elapsed()
}

/// Waits, for load to run or to see that nothing happens.
pub(crate) fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
