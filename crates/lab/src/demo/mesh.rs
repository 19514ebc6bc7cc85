//! The mesh under demonstration: a `heddle control` and two `heddle node` of our own.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::sleep;

use super::answers::{ControlStatus, Identities, NodeStatus};
use super::metrics::Reading;
use super::process::Process;
use super::program::Program;
use super::shopper::Browser;

/// The nodes: the shopper and the page are on the first, what the page is made from on the second.
pub(super) const NODES: [&str; 2] = ["edge-1", "edge-2"];
/// How long a process may take until it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a change of the manifests may take until it is in effect.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Certificates live for minutes, the shortest that there are: who stays sees them renewed, and the old
/// root dropped.
const SETTINGS: &str = "control: {leaf_life_s: 300, backdate_s: 60}\n";
/// What `heddle check` ends with when somebody should look: it is still an answer.
pub(super) const DEGRADED: i32 = 6;

/// A running mesh.
pub(super) struct Mesh {
    pub(super) heddle: Program,
    scratch: PathBuf,
    control: Process,
    pub(super) control_socket: PathBuf,
    nodes: Vec<Node>,
    browser: Browser,
}

/// A running node.
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) socket: PathBuf,
    process: Process,
    /// Where the metrics are; known when it is ready.
    metrics: Option<SocketAddr>,
    /// The workloads on it, as they are called in metrics.
    pub(super) workloads: BTreeSet<String>,
}

impl Mesh {
    /// Starts the control plane on the manifests in `dir`. Everything that is kept or written goes into
    /// `scratch`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(heddle: &Path, dir: &Path, scratch: &Path) -> anyhow::Result<Self> {
        let heddle = Program::find(heddle)?;
        let at = |name: &str| scratch.join(name);
        let (socket, settings) = (at("control.sock"), at("control.yaml"));
        std::fs::write(&settings, SETTINGS)?;
        let mut arguments = vec![PathBuf::from("control"), dir.to_owned()];
        for (flag, value) in [
            ("--state", at("control")),
            ("--socket", socket.clone()),
            ("--config", settings),
            ("--listen", "127.0.0.1:0".into()),
            ("--metrics", "127.0.0.1:0".into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        let control = Process::start(&heddle, "heddle control", arguments, at("control.log"))?;
        Ok(Self {
            heddle,
            scratch: scratch.to_owned(),
            control,
            control_socket: socket,
            nodes: Vec::new(),
            browser: Browser::new(),
        })
    }

    /// Waits for the control plane, and has both nodes join, each with a token of its own.
    ///
    /// # Errors
    /// A process ended, or is not ready in time.
    pub(super) async fn join(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let control = loop {
            self.control.is_there()?;
            let socket = &self.control_socket;
            match self.heddle.answer(&["status"], socket, &[]).await {
                Ok(ControlStatus {
                    ready: true,
                    listen,
                }) => break listen,
                Err(error) if Instant::now() > deadline => return Err(error),
                _ if Instant::now() > deadline => bail!("heddle control is not ready"),
                _ => sleep(Duration::from_millis(50)).await,
            }
        };
        for name in NODES {
            let node = self.start_node(name, control).await?;
            self.nodes.push(node);
        }
        for node in &mut self.nodes {
            while !node.is_well(&self.heddle).await? {
                if Instant::now() > deadline {
                    bail!("{} is not ready within {START_LIMIT:?}", node.name);
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn start_node(&self, name: &'static str, control: SocketAddr) -> anyhow::Result<Node> {
        let socket = &self.control_socket;
        let token = ["token", "create", name];
        let token = self.heddle.ask(&token, socket, &[]).await?.stdout;
        let at = |end: &str| self.scratch.join(format!("{name}{end}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(at(".token"))?;
        file.write_all(token.as_bytes())?;
        let mut arguments: Vec<PathBuf> = vec!["node".into(), "--run".into()];
        for (flag, value) in [
            ("--name", name.into()),
            ("--control", control.to_string().into()),
            ("--listen", "127.0.0.1:0".into()),
            ("--token-file", at(".token")),
            ("--state", at("")),
            ("--socket", at(".sock")),
            ("--metrics", "127.0.0.1:0".into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        let what = format!("heddle node {name}");
        let process = Process::start(&self.heddle, &what, arguments, at(".log"))?;
        Ok(Node {
            name,
            socket: at(".sock"),
            process,
            metrics: None,
            workloads: BTreeSet::new(),
        })
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of this name.
    ///
    /// # Errors
    /// It was not started.
    pub(super) fn node(&self, name: &str) -> anyhow::Result<&Node> {
        let node = self.nodes.iter().find(|node| node.name == name);
        node.with_context(|| format!("there is no node {name}"))
    }

    /// What a node says of its listeners and workloads.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn status(&self, node: &str) -> anyhow::Result<NodeStatus> {
        self.node(node)?.status(&self.heddle).await
    }

    /// What a node says of its identities.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn check(&self, node: &str) -> anyhow::Result<Identities> {
        self.node(node)?.check(&self.heddle).await
    }

    /// Waits until a workload that was added is on a node, and says where it reaches `service`.
    ///
    /// # Errors
    /// It is not there in time.
    pub(super) async fn arrival(
        &mut self,
        node: &str,
        workload: &str,
        service: &str,
    ) -> anyhow::Result<SocketAddr> {
        let begun = Instant::now();
        loop {
            let index = self.nodes.iter().position(|known| known.name == node);
            let known = &mut self.nodes[index.context("there is no such node")?];
            let is_well = known.is_well(&self.heddle).await?;
            let status = known.status(&self.heddle).await?;
            match status.address(Some(workload), service) {
                Ok(address) if is_well => return Ok(address),
                Err(error) if begun.elapsed() > CHANGE_LIMIT => return Err(error),
                _ if begun.elapsed() > CHANGE_LIMIT => bail!("{node} has not all its identities"),
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Reads what both nodes count.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn metrics(&self) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        for node in &self.nodes {
            let address = node.metrics.context("a node serves no metrics")?;
            let url = format!("http://{address}/metrics");
            let page = self.browser.get(&url, "text/plain").await;
            let page = page.with_context(|| format!("the metrics of {}", node.name))?;
            // What has no namespace is no workload: whoever it is, it is counted where it called.
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
        let nodes = self.nodes.iter_mut().map(|node| &mut node.process);
        let all = nodes.chain([&mut self.control]).map(Process::last_words);
        all.collect::<Vec<_>>().join("\n")
    }

    /// Asks every process to finish, the nodes first, and waits until they have.
    ///
    /// # Errors
    /// One had already ended, does not end in time, or ends with an error.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        for node in self.nodes {
            outcome = outcome.and(node.process.stop().await);
        }
        outcome.and(self.control.stop().await)
    }
}

impl Node {
    async fn status(&self, heddle: &Program) -> anyhow::Result<NodeStatus> {
        heddle.answer(&["status"], &self.socket, &[]).await
    }

    async fn check(&self, heddle: &Program) -> anyhow::Result<Identities> {
        heddle.answer(&["check"], &self.socket, &[DEGRADED]).await
    }

    /// Whether it serves and has all its identities; remembers what is on it.
    ///
    /// # Errors
    /// It has ended.
    async fn is_well(&mut self, heddle: &Program) -> anyhow::Result<bool> {
        self.process.is_there()?;
        // Until it listens on its socket it says nothing at all.
        let (Ok(status), Ok(identities)) = (self.status(heddle).await, self.check(heddle).await)
        else {
            return Ok(false);
        };
        self.metrics = status.metrics;
        self.workloads = status.workloads.into_iter().map(|one| one.name).collect();
        Ok(status.ready && identities.are_well())
    }
}
