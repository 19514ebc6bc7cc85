//! A control plane with many Services, and one node.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tempfile::TempDir;

use crate::account::{self, Memory};
use crate::ask;
use crate::authority::Authority;
use crate::child::Confinement;
use crate::nodes::{self, MeshProcesses, NEAR, Site};

/// Endpoints of each Service.
pub(super) const ENDPOINTS: usize = 5;
/// Services in one file.
const IN_A_FILE: usize = 250;
/// The timeout until the node serves: a large mesh is compiled first.
const PATIENCE: Duration = Duration::from_secs(120);
/// The workloads of the node.
pub(super) const CALLER: &str = "lab/caller";
pub(super) const SCANNER: &str = "lab/scanner";

/// Number of stages so far: some are there at the same time, and the forward proxies of a node have fixed ports.
static STAGES: AtomicU8 = AtomicU8::new(0);

/// How much of the mesh the node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Eager,
    /// Forgets what was not used for so many seconds.
    OnDemand {
        forget_after_s: u32,
    },
}

/// A running mesh.
pub(super) struct Stage {
    mesh: MeshProcesses,
    _dir: TempDir,
}

impl Stage {
    /// Starts a mesh of this many Services, and waits until the node serves.
    ///
    /// # Errors
    /// When something does not start.
    pub(super) fn new(heddle: &Path, services: usize, mode: Mode) -> anyhow::Result<Stage> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        write_mesh(dir.path(), services, serve()?)?;
        let settings = dir.path().join("settings.yaml");
        // Listeners for each Service and caller are no part of what is measured: a node with pods has none.
        let (mode, forget_after_s) = match mode {
            Mode::Eager => ("eager", 600),
            Mode::OnDemand { forget_after_s } => ("on-demand", forget_after_s),
        };
        let text = format!(
            "node: {{discovery: {{mode: {mode}, forget_after_s: {forget_after_s}}}}}\nlisteners: {{max: 2}}\n"
        );
        fs::write(&settings, text)?;
        let site = Site {
            heddle,
            dir: dir.path(),
            place: &Confinement::default(),
            control_settings: None,
            settings: Some(&settings),
            apart: None,
            etcd: None,
            root: &Authority::new()?,
        };
        let mut mesh = MeshProcesses::start(&site, &[NEAR])?;
        let node = mesh.nodes.first_mut().context("a node")?;
        let (program, socket) = (node.heddle.clone(), node.socket.clone());
        node.child.wait_until(PATIENCE, || {
            let status: Value = serde_json::from_slice(&nodes::status(&program, &socket)?).ok()?;
            (status["ready"] == true && forward_proxy(&status, CALLER).is_some()).then_some(())
        })?;
        Ok(Stage { mesh, _dir: dir })
    }

    /// The status of the node.
    pub(super) fn status(&self) -> anyhow::Result<Value> {
        let node = self.mesh.nodes.first().context("a node")?;
        let status = nodes::status(&node.heddle, &node.socket).context("no status")?;
        Ok(serde_json::from_slice(&status)?)
    }

    /// The memory of the node's process.
    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        let node = self.mesh.nodes.first().context("a node")?;
        account::memory(node.child.pid())
    }

    /// A connection to the forward proxy of a workload.
    pub(super) fn connect(&self, caller: &str) -> anyhow::Result<Client> {
        let at = forward_proxy(&self.status()?, caller).context("no forward proxy")?;
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        Ok(Client(stream))
    }
}

/// A client of a forward proxy.
pub(super) struct Client(TcpStream);

impl Client {
    /// Sends a request to a Service. Returns the status of the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn get(&self, service: &str) -> anyhow::Result<u16> {
        let request = format!("GET http://{service}/ HTTP/1.1\r\nHost: {service}\r\n\r\n");
        ask::answer(&self.0, request.as_bytes())
    }
}

fn forward_proxy(status: &Value, caller: &str) -> Option<SocketAddr> {
    let mut listeners = status["listeners"].as_array()?.iter();
    let found = listeners.find(|one| one["kind"] == "forward-proxy" && one["caller"] == caller);
    found?["address"].as_str()?.parse().ok()
}

/// The name of a Service.
pub(super) fn service(number: usize) -> String {
    format!("s{number}")
}

fn write_mesh(dir: &Path, services: usize, port: u16) -> anyhow::Result<()> {
    let mesh = dir.join("mesh");
    fs::create_dir(&mesh)?;
    let mut workloads = String::new();
    let stage = STAGES.fetch_add(1, Relaxed);
    for (name, last) in [(CALLER, 1), (SCANNER, 2)] {
        let name = name.trim_start_matches("lab/");
        writeln!(
            workloads,
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: lab}}}}\n---\n\
             {{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{name: {name}, namespace: lab}}, spec: \
             {{nodeName: {NEAR}, address: 127.7.{stage}.{last}, serviceAccountName: {name}}}}}\n---"
        )?;
    }
    fs::write(mesh.join("workloads.yaml"), workloads)?;
    for first in (0..services).step_by(IN_A_FILE) {
        let mut text = String::new();
        for number in first..services.min(first + IN_A_FILE) {
            let name = service(number);
            let endpoints = (0..ENDPOINTS).map(|one| {
                let [_, a, b, c] = u32::try_from(number * ENDPOINTS + one)
                    .unwrap_or(0)
                    .to_be_bytes();
                format!("{{addresses: [127.{}.{b}.{c}]}}", 128 + a)
            });
            let endpoints: Vec<String> = endpoints.collect();
            let endpoints = endpoints.join(", ");
            let [_, _, a, b] = u32::try_from(number).unwrap_or(0).to_be_bytes();
            writeln!(
                text,
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: lab}}, spec: {{clusterIP: \
                 10.96.{a}.{b}, ports: [{{name: http, port: 80}}]}}}}\n---\n{{apiVersion: discovery.k8s.io/v1, kind: \
                 EndpointSlice, addressType: IPv4, metadata: {{name: {name}, namespace: lab, labels: \
                 {{kubernetes.io/service-name: {name}}}}}, endpoints: [{endpoints}], ports: [{{name: http, port: \
                 {port}}}]}}\n---"
            )?;
        }
        fs::write(mesh.join(format!("services-{first:06}.yaml")), text)?;
    }
    Ok(())
}

/// Answers requests at one port of all loopback addresses.
fn serve() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    thread::Builder::new().spawn(move || {
        for stream in listener.incoming().flatten() {
            // A thread that cannot be started shows as a request without an answer.
            let _ended = thread::Builder::new().spawn(move || answer_all(stream));
        }
    })?;
    Ok(port)
}

fn answer_all(mut stream: TcpStream) {
    let mut heads = Vec::new();
    let mut chunk = [0; 4_096];
    let _ = stream.set_nodelay(true);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        heads.extend_from_slice(&chunk[..count]);
        if heads.ends_with(b"\r\n\r\n") {
            heads.clear();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}
