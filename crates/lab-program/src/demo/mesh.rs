//! The mesh under demonstration: a `heddle control` and two `heddle node`, on loopback addresses of this
//! machine or in a lab of namespaces.

mod loopback;
mod pods;

use std::collections::BTreeSet;
use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::acts::{INTRUDER, READER};
use super::answers::{MeshNodeStatus, NodeCheck};
use super::metrics::MetricsReading;
use super::program::Program;

pub(super) use loopback::Loopback;
pub(super) use pods::{Pods, typed};

/// The nodes: the shopper and the page are on the first, what the page is made from on the second.
pub(super) const NODES: [&str; 2] = ["edge-1", "edge-2"];
/// How long a process may take until it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a change of the manifests may take until it is in effect.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// How long a node may take to say what it counts, and how much that is in bytes.
const METRICS_LIMIT: Duration = Duration::from_secs(5);
const METRICS_BYTES: usize = 4 * 1024 * 1024;
/// Certificates live for minutes, the shortest that there are: who stays sees them renewed, and the old
/// root dropped.
pub(super) const SETTINGS: &str = "control: {leaf_life_s: 300, backdate_s: 60}\n";
/// What `heddle check` ends with when an operator should look: it is still an answer.
pub(super) const DEGRADED: i32 = 6;

/// Where the mesh runs.
pub(super) enum Ground {
    /// Every workload at a loopback address of its own: no privilege is needed.
    Loopback(Loopback),
    /// Every workload in a pod: its programs know nothing of the mesh.
    Pods(Pods),
}

/// A running mesh.
pub(super) struct Mesh {
    pub(super) heddle: Program,
    pub(super) control_socket: PathBuf,
    nodes: Vec<DemoNode>,
    ground: Ground,
}

/// A running node.
pub(super) struct DemoNode {
    pub(super) name: &'static str,
    pub(super) socket: PathBuf,
    /// The workloads on it, as they are called in metrics.
    pub(super) workloads: BTreeSet<String>,
}

impl Mesh {
    /// A mesh on loopback addresses, or in pods, whose processes were started.
    pub(super) fn on(ground: Ground, heddle: Program) -> Self {
        let control_socket = match &ground {
            Ground::Loopback(processes) => processes.control_socket.clone(),
            Ground::Pods(pods) => pods.control_socket(),
        };
        Self {
            heddle,
            control_socket,
            nodes: Vec::new(),
            ground,
        }
    }

    /// Waits until both nodes have joined, each with a token of its own, and have what they need.
    ///
    /// # Errors
    /// A process ended, or is not ready in time.
    pub(super) async fn join(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let sockets = match &mut self.ground {
            Ground::Loopback(processes) => processes.join(&self.heddle, deadline).await?,
            Ground::Pods(pods) => pods.node_sockets()?,
        };
        let nodes = NODES.into_iter().zip(sockets);
        let nodes = nodes.map(|(name, socket)| DemoNode {
            name,
            socket,
            workloads: BTreeSet::new(),
        });
        self.nodes = nodes.collect();
        for name in NODES {
            while !(self.is_well(name).await? && self.is_without_latecomers(name)?) {
                if Instant::now() > deadline {
                    bail!("{name} is not ready within {START_LIMIT:?}");
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Whether a node knows by now that who comes later is not there yet.
    fn is_without_latecomers(&self, name: &str) -> anyhow::Result<bool> {
        let workloads = &self.node(name)?.workloads;
        let mut later = [INTRUDER, READER].into_iter();
        Ok(!later.any(|one| workloads.contains(one)))
    }

    /// The pods, if that is what there are.
    pub(super) fn pods(&self) -> Option<&Pods> {
        match &self.ground {
            Ground::Pods(pods) => Some(pods),
            Ground::Loopback(_) => None,
        }
    }

    pub(super) fn nodes(&self) -> &[DemoNode] {
        &self.nodes
    }

    /// The node of this name.
    ///
    /// # Errors
    /// It was not started.
    pub(super) fn node(&self, name: &str) -> anyhow::Result<&DemoNode> {
        let node = self.nodes.iter().find(|node| node.name == name);
        node.with_context(|| format!("there is no node {name}"))
    }

    /// What a node says of its listeners and workloads.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn status(&self, node: &str) -> anyhow::Result<MeshNodeStatus> {
        let socket = &self.node(node)?.socket;
        self.heddle.answer(&["status"], socket, &[]).await
    }

    /// What a node says of its identities.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn check(&self, node: &str) -> anyhow::Result<NodeCheck> {
        let socket = &self.node(node)?.socket;
        self.heddle.answer(&["check"], socket, &[DEGRADED]).await
    }

    /// Whether a node serves and has all its identities; remembers what is on it.
    ///
    /// # Errors
    /// It has ended.
    async fn is_well(&mut self, name: &str) -> anyhow::Result<bool> {
        match &mut self.ground {
            Ground::Loopback(processes) => processes.are_there()?,
            Ground::Pods(pods) => pods.are_there()?,
        }
        // Until it listens on its socket it says nothing at all.
        let (Ok(status), Ok(identities)) = (self.status(name).await, self.check(name).await) else {
            return Ok(false);
        };
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        let node = node.context("there is no such node")?;
        node.workloads = status.workloads.into_iter().map(|one| one.name).collect();
        Ok(status.ready && identities.are_well())
    }

    /// `heddle-lab` where a workload is, for what it asks.
    ///
    /// # Errors
    /// There is no such pod.
    pub(super) fn program_of(&self, workload: &str) -> anyhow::Result<Command> {
        let lab = env::current_exe().context("where is the running program?")?;
        match &self.ground {
            Ground::Loopback(_) => Ok(Command::new(lab)),
            Ground::Pods(pods) => pods.command(workload, lab),
        }
    }

    /// By which URL a workload calls a service: in a pod by its name, elsewhere by the address that stands for
    /// it and tells who calls.
    ///
    /// # Errors
    /// The node does not answer, or has no such address.
    pub(super) async fn url(
        &self,
        node: &str,
        workload: &str,
        service: &str,
    ) -> anyhow::Result<String> {
        let authority = match &self.ground {
            Ground::Loopback(_) => {
                let status = self.status(node).await?;
                status.address(Some(workload), service)?.to_string()
            }
            Ground::Pods(_) => super::screen::short(service).to_owned(),
        };
        Ok(format!("http://{authority}"))
    }

    /// Waits until a workload that was added is on a node, and says by which URL it calls `service`.
    ///
    /// # Errors
    /// It is not there in time.
    pub(super) async fn arrival(
        &mut self,
        node: &str,
        workload: &str,
        service: &str,
    ) -> anyhow::Result<String> {
        let begun = Instant::now();
        if let Ground::Pods(pods) = &self.ground {
            pods.enrol(workload)?;
        }
        loop {
            let is_well = self.is_well(node).await?;
            let is_there = self.node(node)?.workloads.contains(workload);
            match self.url(node, workload, service).await {
                Ok(url) if is_well && is_there => return Ok(url),
                Err(error) if begun.elapsed() > CHANGE_LIMIT => return Err(error),
                _ if begun.elapsed() > CHANGE_LIMIT => {
                    bail!("{node} has not {workload} with all its identities")
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Connects to an address of the mesh, as a client that is near the nodes and no workload.
    ///
    /// # Errors
    /// No process listens there.
    pub(super) async fn connect(&self, address: SocketAddr) -> anyhow::Result<TcpStream> {
        let stream = match &self.ground {
            Ground::Loopback(_) => TcpStream::connect(address).await?,
            Ground::Pods(pods) => TcpStream::from_std(pods.connect(address)?)?,
        };
        Ok(stream)
    }

    /// Reads what both nodes count.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn metrics(&self) -> anyhow::Result<MetricsReading> {
        let mut reading = MetricsReading::default();
        for node in &self.nodes {
            let page = timeout(METRICS_LIMIT, scrape(&node.socket)).await;
            let page = page.context("no answer in time").flatten();
            let page = page.with_context(|| format!("the metrics of {}", node.name))?;
            // What has no namespace is no workload: it is counted where it called.
            let calls_here =
                |source: &str| node.workloads.contains(source) || !source.contains('/');
            reading.add(node.name, &page, calls_here);
        }
        Ok(reading)
    }

    /// Waits until a node has taken a newer configuration than `generation`, and says how long that took.
    ///
    /// # Errors
    /// It does not in time.
    pub(super) async fn newer_than(&self, node: &str, generation: u64) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        while begun.elapsed() < CHANGE_LIMIT {
            if self.metrics().await?.generation(node) > generation {
                return Ok(begun.elapsed());
            }
            sleep(Duration::from_millis(10)).await;
        }
        bail!("what was edited is not in effect on {node} after {CHANGE_LIMIT:?}")
    }

    /// The end of what every process and its services have written.
    pub(super) fn last_words(&mut self) -> String {
        match &mut self.ground {
            Ground::Loopback(processes) => processes.last_words(),
            Ground::Pods(pods) => pods.last_words(),
        }
    }

    /// Ends every process, and waits until they have.
    ///
    /// # Errors
    /// One had already ended, does not end in time, or ends with an error; something cannot be removed.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self.ground {
            Ground::Loopback(processes) => processes.stop().await,
            Ground::Pods(pods) => pods.stop(),
        }
    }
}

/// The metrics page of the process at `socket`.
async fn scrape(socket: &Path) -> anyhow::Result<String> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/metrics")
        .header("host", "heddle")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        bail!("{}", response.status());
    }
    let body = Limited::new(response.into_body(), METRICS_BYTES).collect();
    let body = body.await;
    connection.abort();
    let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}
