//! State of the process: the mesh that is served, and all that depends on it.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_intercept::Event;
use heddle_model::{Mesh, Service, Shared, WorkloadName};
use heddle_proxy::{Observer, Proxy};
use heddle_telemetry::process::Probe;
use heddle_telemetry::{AccessLog, Registry, exposition};
use heddle_transport::Identities;

use super::addresses::Slot;
use super::door::MeshDoor;
use super::limits::Shares;
use super::listeners::{Changes, ListenerSpec, Listeners, Most};
use super::others::others;
use super::pods::Pods;
use super::replaced::Replaced;
use super::supervisor::Supervisor;
use super::{Change, Findings, Identity, LearnedView, Reload, metrics, start};
use crate::admin::{Answer, Ask, Question};
use crate::console::Console;
use crate::exit::Failure;
use crate::logging;
use crate::settings::Settings;
use crate::status::{
    ConfigDump, ConfigStatus, DrainStatus, Latencies, QosStatus, Status, UsageStatus,
    WorkloadStatus,
};
use crate::table;

/// Longest wait for the writer to write the last lines of the access log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Up to this many listeners that open at once are logged one by one; above it, only their number.
const LOGGED_LISTENERS: usize = 40;

/// Most Services that are named in the log when they are no longer served.
const NAMED_SERVICES: usize = 20;

/// Parts for [`Node::new`].
pub(super) struct NodeParts {
    pub(super) source: PathBuf,
    pub(super) metrics_at: Option<SocketAddr>,
    pub(super) shares: Shares,
    pub(super) registry: Arc<Registry>,
    pub(super) proxy: Proxy,
    /// `None` when workloads' commands are not run.
    pub(super) supervisor: Option<Supervisor>,
    pub(super) log: AccessLog,
    pub(super) mesh_socket: Option<TcpListener>,
    pub(super) identity: Option<Identity>,
    pub(super) learned: Option<LearnedView>,
    /// `None` without a holder of pods.
    pub(super) pods: Option<Pods>,
}

/// Services and metric series whose memory is worth giving back when they are forgotten.
const MANY_FORGOTTEN: usize = 100;

/// Owned by the main loop, changed between two events.
pub(super) struct Node {
    started: Instant,
    settings: Settings,
    source: PathBuf,
    metrics_at: Option<SocketAddr>,
    /// Most client connections at a time, as the proxy was configured.
    connections_limit: usize,
    registry: Arc<Registry>,
    log: AccessLog,
    /// `None`, like `supervisor`, once draining has begun.
    proxy: Option<Proxy>,
    supervisor: Option<Supervisor>,
    /// Reads the proxy's status, also while it drains.
    observer: Observer,
    /// When the remaining connections are cut, and the workloads' status at the start of the drain.
    draining: Option<(Instant, Vec<WorkloadStatus>)>,
    mesh: Mesh,
    /// Time at which the proxy got the mesh.
    applied: Instant,
    /// Services and metric series that were forgotten since memory was given back.
    forgotten: usize,
    /// Generations that a Worker may still serve.
    replaced: Replaced,
    listeners: Listeners,
    config: ConfigStatus,
    /// Findings of the last read of the mesh's source. `registered` is from the last read that had a mesh.
    findings: Findings,
    registered: BTreeSet<WorkloadName>,
    /// Opened at the start, while there are free descriptors.
    probe: Probe,
    /// The listener for other nodes.
    door: MeshDoor,
    identity: Option<Identity>,
    learned: Option<LearnedView>,
    pods: Option<Pods>,
    stdout: Console,
    /// Whether the table of listeners was printed.
    announced: bool,
}

impl Node {
    pub(super) fn new(parts: NodeParts, settings: Settings, stdout: Console) -> Self {
        Node {
            started: Instant::now(),
            source: parts.source,
            metrics_at: parts.metrics_at,
            connections_limit: parts.shares.clients,
            registry: parts.registry,
            log: parts.log,
            observer: parts.proxy.observer(),
            proxy: Some(parts.proxy),
            draining: None,
            supervisor: parts.supervisor,
            mesh: Mesh::default(),
            applied: Instant::now(),
            forgotten: 0,
            replaced: Replaced::default(),
            listeners: Listeners::new(Most {
                set: settings.listeners.max.size(),
                descriptors: parts.shares.listeners,
            }),
            config: ConfigStatus::default(),
            findings: Findings::default(),
            registered: BTreeSet::new(),
            probe: Probe::open(),
            door: MeshDoor::new(parts.mesh_socket),
            identity: parts.identity,
            learned: parts.learned,
            pods: parts.pods,
            stdout,
            announced: false,
            settings,
        }
    }

    /// Serves the mesh from now on. The proxy gets it before its listeners open, and processes start once the listeners
    /// that they call are open.
    fn serve(&mut self, mesh: Mesh) {
        let Some(proxy) = &self.proxy else { return };
        proxy.apply(&mesh);
        self.applied = Instant::now();
        self.replaced.note(self.mesh.generation, self.applied);
        let gone = no_longer_served(&self.mesh, &mesh);
        // Workloads may call hundreds of destinations in a second that they have not called before.
        let is_learned = mesh.named != self.mesh.named && mesh.generation == self.mesh.generation;
        self.forgotten += (self.mesh.services.len()).saturating_sub(mesh.services.len());
        self.mesh = mesh;
        self.config.generation = self.mesh.generation;
        self.config.services = self.mesh.services.len();
        let (opened, closed) = match &mut self.pods {
            // A caller is identified by its pod: no addresses per caller are needed.
            Some(pods) => {
                pods.follow(&self.mesh, proxy);
                (0, 0)
            }
            None => self.follow_listeners(),
        };
        self.let_nodes_in();
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.follow(&self.mesh, &self.listeners.status(&self.mesh));
        }
        let (generation, services) = (self.mesh.generation, self.mesh.services.len());
        match is_learned {
            true => tracing::debug!(
                generation,
                services,
                "serving what was learned or forgotten"
            ),
            false => tracing::info!(
                generation,
                services,
                workloads = self.mesh.workloads.len(),
                opened,
                closed,
                "serving"
            ),
        }
        if let Some(gone) = gone {
            tracing::info!("no longer served: {gone}");
        }
        if self.pods.is_none() && !std::mem::replace(&mut self.announced, true) {
            let listeners = self.listeners.status(&self.mesh);
            self.stdout
                .line(table::first_listeners(&listeners).into_bytes());
        }
    }

    /// Applies a change from the mesh's source.
    ///
    /// # Errors
    /// When the source has failed for good.
    pub(super) fn change(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::Folder(mesh, findings) => {
                self.folder_changed(mesh.map(|mesh| *mesh), *findings);
            }
            Change::Mesh(mesh) => self.serve(*mesh),
            Change::Identities(identities, in_force) => {
                self.identify(identities);
                // The waiting task may be gone.
                let _ = in_force.send(());
            }
            Change::Failed(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Uses these identities for calls in both directions from now on.
    fn identify(&mut self, identities: Arc<Identities>) {
        let Some(proxy) = &self.proxy else { return };
        proxy.identify(identities);
        self.door.is_identified = true;
        self.let_nodes_in();
    }

    fn let_nodes_in(&mut self) {
        let is_known = self.mesh.generation > 0 && self.pods.as_ref().is_none_or(Pods::is_recalled);
        if let (Some(proxy), true) = (&self.proxy, is_known) {
            self.door.open(proxy);
        }
    }

    /// Handles an event from the holder of the pods.
    pub(super) fn pod(&mut self, event: Event) {
        if let (Some(pods), Some(proxy)) = (&mut self.pods, &self.proxy) {
            pods.happened(event, &self.mesh, proxy);
            self.let_nodes_in();
        }
    }

    /// Whether a mesh is served that has not changed for this long.
    pub(super) fn serves_since(&self, settled: Duration) -> bool {
        self.mesh.generation > 0 && self.applied.elapsed() >= settled
    }

    /// Drops metric series that nothing uses, also where nothing reads the metrics. Each has a histogram.
    pub(super) fn forget_series(&mut self, now: Instant) {
        self.forgotten += self.registry.forget_unused(now);
    }

    /// Whether to give back the memory of Services that were forgotten, once: when the mesh has become so much
    /// smaller, and has not changed for this long.
    pub(super) fn take_forgotten(&mut self, settled: Duration) -> bool {
        let is_time = self.forgotten >= MANY_FORGOTTEN && self.applied.elapsed() >= settled;
        if is_time {
            self.forgotten = 0;
        }
        is_time
    }

    /// Serves pods whose wait is over.
    pub(super) fn look_at_pods(&mut self) {
        if let (Some(pods), Some(proxy)) = (&mut self.pods, &self.proxy) {
            pods.look(&self.mesh, proxy);
        }
    }

    /// Serves the folder's new mesh, or keeps the old one when the folder has errors.
    fn folder_changed(&mut self, mesh: Option<Mesh>, findings: Findings) {
        self.config.problems.clone_from(&findings.problems);
        let report = findings.report.as_ref();
        self.config.stale = report.is_some_and(|report| report.is_refused);
        if let Some(report) = report {
            self.config.note_refused(report);
        }
        if self.config.stale {
            tracing::error!(
                generation = self.mesh.generation,
                "the folder was refused, the last good state is still served"
            );
        }
        if mesh.is_some() {
            self.registered.clone_from(&findings.registered);
            self.listeners.only_call(findings.registered.clone());
        }
        self.findings = findings;
        if let Some(mesh) = mesh {
            self.serve(mesh);
        }
    }

    /// Whether the proxy still runs, or is draining.
    pub(super) fn is_alive(&self) -> bool {
        self.proxy.as_ref().is_none_or(Proxy::is_running)
    }

    pub(super) fn has_listener_problems(&self) -> bool {
        !self.config.listener_problems.is_empty()
    }

    /// Retries listeners that could not be opened.
    pub(super) fn retry_listeners(&mut self) {
        let (opened, _) = self.follow_listeners();
        if opened > 0 {
            tracing::info!(opened, "listeners opened after all");
        }
    }

    /// Reads the settings again and applies those of the log and the access log. A file of an access log that stays
    /// the same is reopened; the writer logs the result.
    pub(super) fn reload(&mut self, reload: &Reload) -> Answer {
        let before = self.settings.access_log.clone();
        let mut wanted = self.settings.clone();
        let has_more = match reload() {
            Ok(now) => wanted.take_logs(&now),
            Err(error) => {
                tracing::error!("the settings stay as they were: {error}");
                self.log.reopen();
                return Answer::text(
                    500,
                    "the settings are refused, and stay as they were; the log has the reason",
                );
            }
        };
        if wanted.access_log == before {
            self.log.reopen();
        } else if let Err(error) = start::write_log(&self.log, &wanted) {
            tracing::error!("the access log stays as it was: {error:#}");
            wanted.access_log = before;
        }
        if wanted.log.level != self.settings.log.level {
            tracing::warn!(level = ?wanted.log.level, "the level of this log is another from now on");
            logging::set_level(wanted.log.level);
        }
        if has_more {
            tracing::warn!("other settings have changed, too: they take effect at the next start");
        }
        self.settings = wanted;
        match self.log.is_on() {
            true => Answer::text(200, "requested; the log has the result"),
            false => Answer::text(200, "there is no access log"),
        }
    }

    pub(super) fn answer(&self, ask: Ask) {
        let answer = match ask.question {
            Question::Status => Answer::json(&self.status()),
            Question::Workers => Answer::json(&self.observer.status()),
            Question::Latencies => Answer::json(&Latencies::of(&self.registry)),
            Question::Config => Answer::json(&ConfigDump {
                settings: &self.settings,
                mesh: &self.mesh,
                denied: self
                    .identity
                    .as_ref()
                    .map_or_else(Vec::new, |own| (own.denied)()),
            }),
            Question::Metrics => self.metrics(),
            Question::Ready if self.is_ready() => Answer::text(200, "ready"),
            Question::Ready => Answer::text(503, "not ready"),
            Question::Order(_) => Answer::text(404, "this heddle is no control plane"),
            // Only a process that drains gets here: it keeps its settings.
            Question::LogReopen => {
                self.log.reopen();
                Answer::text(200, "requested; the log has the result")
            }
        };
        // The client that asked may be gone.
        let _gone = ask.answer.send(answer);
    }

    /// Lets requests finish, then stops the processes that serve them. The node goes on answering questions meanwhile.
    pub(super) fn drain(&mut self) -> impl Future<Output = ()> + use<> {
        let grace = self.settings.drain.timeout_ms.duration();
        if let Some(pods) = &self.pods {
            pods.stopping();
        }
        self.draining = Some((Instant::now() + grace, self.workloads()));
        let (proxy, supervisor, log) =
            (self.proxy.take(), self.supervisor.take(), self.log.clone());
        async move {
            if let Some(proxy) = proxy {
                let drained = proxy.drain(grace).await;
                if drained.cut > 0 {
                    tracing::warn!(
                        cut = drained.cut,
                        "connections were cut: requests and opaque connections that were not over \
                         within drain.timeout_ms"
                    );
                }
            }
            if let Some(supervisor) = supervisor {
                supervisor.stop().await;
            }
            if !log.wait_written(LAST_LINES) {
                tracing::warn!("the last lines of the access log were not written in time");
            }
        }
    }

    /// Opens and closes listeners as the mesh wants. Returns the numbers of opened and closed ones.
    fn follow_listeners(&mut self) -> (usize, usize) {
        let Some(proxy) = &self.proxy else {
            return (0, 0);
        };
        let Changes {
            open,
            close,
            problems,
            ..
        } = self.listeners.follow(&self.mesh);
        let counts = (open.len(), close.len());
        for id in close {
            proxy.unlisten(id);
        }
        for (id, socket, entry) in open {
            if counts.0 <= LOGGED_LISTENERS
                && let Ok(address) = socket.local_addr()
            {
                tracing::info!(%address, "listening for {}", entry.slot);
            }
            proxy.listen(id, socket, proxy_entry(entry));
        }
        for problem in problems
            .iter()
            .filter(|p| !self.config.listener_problems.contains(p))
        {
            tracing::error!("{problem}");
        }
        self.config.listener_problems = problems;
        counts
    }

    /// Readiness is judged where requests are served: every Worker has a configuration, and takes a new one in good
    /// time. Until then it serves the one before, which is no reason to send traffic elsewhere.
    pub(super) fn is_ready(&self) -> bool {
        let now = Instant::now();
        let may_serve = |generation| {
            generation == self.mesh.generation || self.replaced.is_recent(generation, now)
        };
        self.proxy.as_ref().is_some_and(|proxy| {
            proxy.is_running()
                && proxy.status().workers.iter().all(|worker| {
                    match u64::try_from(worker.config_generation) {
                        Ok(0) | Err(_) => false,
                        Ok(generation) => may_serve(generation),
                    }
                })
        })
    }

    fn status(&self) -> Status {
        let usage = self.probe.read();
        let proxy = self.observer.status();
        let identity = self.identity.as_ref().map(|own| (own.status)());
        let own = identity.as_ref().map(|identity| identity.node.as_str());
        let nodes = others(&self.mesh, own, &self.observer.peers(), Instant::now());
        let open = |worker: &heddle_proxy::WorkerStatus| worker.connections_active;
        let drain = self.draining.as_ref().map(|(until, _)| DrainStatus {
            connections: proxy.workers.iter().map(open).sum(),
            left_ms: u64::try_from(until.saturating_duration_since(Instant::now()).as_millis())
                .unwrap_or(u64::MAX),
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            ready: self.is_ready(),
            draining: drain.is_some(),
            drain,
            folder: self.source.clone(),
            identity,
            registry: self.findings.registry.as_ref().map(|status| status()),
            interception: self.pods.as_ref().map(Pods::status),
            // `heddle up` runs no agent.
            qos: self
                .identity
                .is_some()
                .then(|| QosStatus::of(&self.settings))
                .flatten(),
            metrics: self.metrics_at,
            connections_limit: self.connections_limit,
            connections_refused: self.registry.connections_refused(),
            config: self.config.clone(),
            nodes,
            discovery: self.learned.as_ref().map(|learned| learned(&self.mesh)),
            listeners: self.listeners.status(&self.mesh),
            workloads: match &self.draining {
                Some((_, workloads)) => workloads.clone(),
                None => self.workloads(),
            },
            proxy: serde_json::to_value(proxy).unwrap_or_default(),
            usage: UsageStatus {
                resident_bytes: usage.resident_bytes,
                cpu_ms: usage.cpu_us.map(|us| us / 1_000),
                threads: usage.threads,
                open_fds: usage.open_fds,
                max_fds: usage.max_fds,
            },
        }
    }

    fn workloads(&self) -> Vec<WorkloadStatus> {
        let workload = |workload: &Shared<heddle_model::Workload>| WorkloadStatus {
            name: workload.name.to_string(),
            address: workload.address,
            ports: workload.ports.iter().map(|port| port.port).collect(),
            registered: self.registered.contains(&workload.name),
            uncalled: self.findings.uncalled.contains(&workload.name),
            process: self
                .supervisor
                .as_ref()
                .and_then(|all| all.status(&workload.name)),
        };
        self.mesh.workloads.iter().map(workload).collect()
    }

    fn metrics(&self) -> Answer {
        let (counted, status) = (self.registry.snapshot(), self.status());
        let usage = self.probe.read();
        Answer {
            status: 200,
            content_type: exposition::CONTENT_TYPE,
            body: exposition::render(move |encoder| {
                counted.encode(encoder)?;
                metrics::encode(encoder, &status)?;
                usage.encode(encoder)
            }),
        }
    }
}

/// Services of `before` that are not in `now`, by name up to [`NAMED_SERVICES`]; `None` when there are none.
fn no_longer_served(before: &Mesh, now: &Mesh) -> Option<String> {
    // Both are sorted by name.
    let mut still = now.services.iter().peekable();
    let is_gone = |service: &&Shared<Service>| {
        while still.next_if(|one| one.name < service.name).is_some() {}
        still.next_if(|one| one.name == service.name).is_none()
    };
    let gone = before.services.iter().filter(is_gone);
    let gone: Vec<String> = gone.map(|service| service.name.to_string()).collect();
    let (named, others) = gone.split_at(gone.len().min(NAMED_SERVICES));
    match others.len() {
        0 if named.is_empty() => None,
        0 => Some(named.join(", ")),
        others => Some(format!("{} and {others} others", named.join(", "))),
    }
}

fn proxy_entry(entry: ListenerSpec) -> heddle_proxy::Entry {
    match entry.slot {
        Slot::Service { service, caller } => heddle_proxy::Entry::Service {
            caller,
            service,
            port: entry.port,
        },
        Slot::ForwardProxy { caller } => heddle_proxy::Entry::ForwardProxy { caller },
    }
}
