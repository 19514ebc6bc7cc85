//! The mesh of the demo: a `heddle control` and two `heddle node`, on loopback addresses of this machine or in a lab
//! of namespaces.

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

/// The nodes: shopper and productpage are on the first, the services that productpage calls on the second.
pub(super) const NODES: [&str; 2] = ["edge-1", "edge-2"];
/// How long a process may take until it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Timeout until changed manifests are in effect.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Timeout and size limit for a node's metrics page.
const METRICS_LIMIT: Duration = Duration::from_secs(5);
const METRICS_BYTES: usize = 4 * 1024 * 1024;
/// Certificates are valid for 300 s, the shortest allowed life: with `--stay` a user sees them renewed, and the old
/// root dropped.
pub(super) const SETTINGS: &str = "control: {leaf_ttl_s: 300, backdate_s: 60}\n";
/// Exit code of `heddle check` when it reports problems; its output is still valid.
pub(super) const DEGRADED: i32 = 6;

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
    /// Names of the workloads on it, as in metrics.
    pub(super) workloads: BTreeSet<String>,
}

impl Mesh {
    /// A mesh whose processes were started, on loopback addresses or in pods.
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

    /// Waits until both nodes have joined, each with a token of its own, and have all their identities.
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

    /// Whether a node's workloads do not yet include those that the acts add later.
    fn is_without_latecomers(&self, name: &str) -> anyhow::Result<bool> {
        let workloads = &self.node(name)?.workloads;
        let mut later = [INTRUDER, READER].into_iter();
        Ok(!later.any(|one| workloads.contains(one)))
    }

    /// The pods, unless the mesh is on loopback.
    pub(super) fn pods(&self) -> Option<&Pods> {
        match &self.ground {
            Ground::Pods(pods) => Some(pods),
            Ground::Loopback(_) => None,
        }
    }

    pub(super) fn nodes(&self) -> &[DemoNode] {
        &self.nodes
    }

    /// # Errors
    /// It was not started.
    pub(super) fn node(&self, name: &str) -> anyhow::Result<&DemoNode> {
        let node = self.nodes.iter().find(|node| node.name == name);
        node.with_context(|| format!("there is no node {name}"))
    }

    /// Listeners and workloads of a node.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn status(&self, node: &str) -> anyhow::Result<MeshNodeStatus> {
        let socket = &self.node(node)?.socket;
        self.heddle.answer(&["status"], socket, &[]).await
    }

    /// Identities of a node.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn check(&self, node: &str) -> anyhow::Result<NodeCheck> {
        let socket = &self.node(node)?.socket;
        self.heddle.answer(&["check"], socket, &[DEGRADED]).await
    }

    /// Whether a node is ready and has all its identities; remembers its workloads.
    ///
    /// # Errors
    /// It has ended.
    async fn is_well(&mut self, name: &str) -> anyhow::Result<bool> {
        match &mut self.ground {
            Ground::Loopback(processes) => processes.are_there()?,
            Ground::Pods(pods) => pods.are_there()?,
        }
        // The calls fail until the node listens on its socket.
        let (Ok(status), Ok(identities)) = (self.status(name).await, self.check(name).await) else {
            return Ok(false);
        };
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        let node = node.context("there is no such node")?;
        node.workloads = status.workloads.into_iter().map(|one| one.name).collect();
        Ok(status.ready && identities.are_well())
    }

    /// The command `heddle-lab` for a workload, run in its pod or, on loopback, on this machine.
    ///
    /// # Errors
    /// No pod has that name.
    pub(super) fn program_of(&self, workload: &str) -> anyhow::Result<Command> {
        let lab = env::current_exe().context("cannot find the running program")?;
        match &self.ground {
            Ground::Loopback(_) => Ok(Command::new(lab)),
            Ground::Pods(pods) => pods.command(workload, lab),
        }
    }

    /// The URL by which a workload calls a service: in a pod it has the service's name, on loopback the address of
    /// the listener for this caller and service.
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

    /// Waits until an added workload is on a node; returns the URL by which it calls `service`.
    ///
    /// # Errors
    /// The workload is not on the node in time.
    pub(super) async fn arrival(
        &mut self,
        node: &str,
        workload: &str,
        service: &str,
    ) -> anyhow::Result<String> {
        let begun = Instant::now();
        if let Ground::Pods(pods) = &self.ground {
            pods.enroll(workload)?;
        }
        loop {
            let is_well = self.is_well(node).await?;
            let is_there = self.node(node)?.workloads.contains(workload);
            match self.url(node, workload, service).await {
                Ok(url) if is_well && is_there => return Ok(url),
                Err(error) if begun.elapsed() > CHANGE_LIMIT => return Err(error),
                _ if begun.elapsed() > CHANGE_LIMIT => {
                    bail!("{node} does not have {workload} with all its identities")
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Connects to an address of the mesh as a client outside the mesh.
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

    /// Reads the metrics of both nodes.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn metrics(&self) -> anyhow::Result<MetricsReading> {
        let mut reading = MetricsReading::default();
        for node in &self.nodes {
            let page = timeout(METRICS_LIMIT, scrape(&node.socket)).await;
            let page = page.context("no answer in time").flatten();
            let page = page.with_context(|| format!("the metrics of {}", node.name))?;
            // A source without a namespace is not a workload; its requests are counted only on the node it called.
            let calls_here =
                |source: &str| node.workloads.contains(source) || !source.contains('/');
            reading.add(node.name, &page, calls_here);
        }
        Ok(reading)
    }

    /// Waits until a node uses a newer configuration than `generation`; returns how long that took.
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
        bail!("the edit is not in effect on {node} after {CHANGE_LIMIT:?}")
    }

    /// The ends of the logs of all processes.
    pub(super) fn last_words(&mut self) -> String {
        match &mut self.ground {
            Ground::Loopback(processes) => processes.last_words(),
            Ground::Pods(pods) => pods.last_words(),
        }
    }

    /// Stops every process, and waits until all have ended.
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
