//! State of the process: the mesh that nodes are sent, and the answers of the admin interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heddle_authority::{Authority, UnixTime};
use heddle_control::{Board, Counters, Envoys, Nodes, Present};
use heddle_model::report::{Report, Tally};
use heddle_model::{Mesh, NodeName, SpiffeId};
use heddle_node::admin::{Answer, Ask, Question};
use heddle_node::settings::Settings;
use heddle_node::status::{ConfigDump, ConfigStatus, UsageStatus};
use heddle_telemetry::exposition;
use heddle_telemetry::process::Probe;
use heddle_transport::Clock;
use tokio::sync::watch;

use super::door::Door;
use super::orders::Orders;
use super::{envoys, metrics, orders};
use crate::order::{ControlStatus, NodeStatus};
use crate::registry::Followed;
use crate::report;

/// Parts for [`Plane::new`].
pub(super) struct PlaneParts {
    pub(super) settings: Settings,
    pub(super) dir: PathBuf,
    pub(super) state: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) metrics_at: Option<SocketAddr>,
    pub(super) authority: Arc<Authority>,
    pub(super) clock: Arc<Clock>,
    pub(super) nodes: Nodes,
    pub(super) board: Board,
    pub(super) envoys: Envoys,
    pub(super) door: Arc<Door>,
    pub(super) counters: Arc<Counters>,
    /// The registry, if one is followed.
    pub(super) registry: Option<Followed>,
}

/// What is known of a mesh that was put up for the nodes.
pub(super) struct PutUp {
    generation: u64,
    services: usize,
    workloads: usize,
    policies: usize,
}

impl PutUp {
    /// Puts a mesh up for the nodes. Blocks while it is encoded.
    pub(super) fn put(board: &Board, mesh: Mesh) -> PutUp {
        let put = PutUp {
            generation: mesh.generation,
            services: mesh.services.len(),
            workloads: mesh.workloads.len(),
            policies: mesh.policies.len(),
        };
        board.put(mesh);
        put
    }
}

/// Owned by the main loop, changed between two events.
pub(super) struct Plane {
    parts: PlaneParts,
    started: Instant,
    draining: bool,
    config: ConfigStatus,
    /// Counts of the registry's providers at the last compilation.
    tally: Tally,
    /// Connected nodes without a workload that were logged.
    said_idle: BTreeSet<NodeName>,
    /// Opened at the start, while there are free descriptors.
    probe: Probe,
}

impl Plane {
    pub(super) fn new(parts: PlaneParts) -> Plane {
        Plane {
            parts,
            started: Instant::now(),
            draining: false,
            config: ConfigStatus::default(),
            tally: Tally::default(),
            said_idle: BTreeSet::new(),
            probe: Probe::open(),
        }
    }

    /// Takes note of a mesh that was put up for the nodes, or that the folder as a whole is refused.
    pub(super) fn folder_changed(&mut self, put: Option<&PutUp>, report: &Report) {
        report::say_new(report, &self.config.problems);
        self.config.problems = report.problems.iter().map(ToString::to_string).collect();
        self.config.stale = report.is_refused;
        self.config.note_refused(report);
        self.tally = report.registry.clone();
        if report.is_refused {
            tracing::error!(
                generation = self.config.generation,
                "the folder was refused, nodes keep the last good state"
            );
        }
        let Some(&PutUp {
            generation,
            services,
            workloads,
            policies,
        }) = put
        else {
            return;
        };
        self.config.generation = generation;
        self.config.services = services;
        // Providers come and go all the time.
        match report.is_same_folder {
            true => tracing::debug!(generation, services, workloads, "put up"),
            false => {
                let nodes = self.parts.board.placed().len();
                tracing::info!(generation, services, workloads, policies, nodes, "put up");
            }
        }
    }

    /// Changes whenever [`Plane::nodes_changed`] has to be called.
    pub(super) fn watch_present(&self) -> watch::Receiver<Arc<Present>> {
        self.parts.nodes.watch_present()
    }

    /// Handles nodes that came or went. A new node without workloads is logged: its name may be mistyped.
    pub(super) fn nodes_changed(&mut self) {
        let present = self.parts.nodes.present();
        self.said_idle.retain(|name| present.contains_key(name));
        for node in present.keys() {
            if !self.parts.board.has_workloads(node) && self.said_idle.insert(node.clone()) {
                tracing::warn!(
                    %node,
                    "a node is present that no LocalWorkload is on: is that the name that its nodeName says?"
                );
            }
        }
    }

    /// Marks the process as draining.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn answer(&self, ask: Ask) {
        let answer = match ask.question {
            Question::Status => Answer::json(&self.status()),
            Question::Config => Answer::json(&ConfigDump {
                settings: &self.parts.settings,
                mesh: &self.parts.board.mesh().unwrap_or_default(),
                denied: self.denied(),
            }),
            Question::Metrics => self.metrics(),
            Question::Ready if self.is_ready() => Answer::text(200, "ready"),
            Question::Ready => Answer::text(503, "not ready"),
            Question::Workers => Answer::text(404, "a control plane has no workers"),
            Question::Latencies => Answer::text(404, "a control plane serves no requests"),
            Question::LogReopen => Answer::text(200, "there is no access log"),
            Question::Order(order) => {
                let order = match orders::parse(order) {
                    Ok(order) => order,
                    Err(answer) => {
                        let _gone = ask.answer.send(answer);
                        return;
                    }
                };
                // On a blocking thread, since it writes to the disk: the main loop must not wait.
                let (authority, nodes) =
                    (Arc::clone(&self.parts.authority), self.parts.nodes.clone());
                let (board, envoys) = (self.parts.board.clone(), self.parts.envoys.clone());
                let listen = self.parts.listen;
                let now = self.now();
                tokio::task::spawn_blocking(move || {
                    let orders = Orders {
                        authority: &authority,
                        nodes: &nodes,
                        board: &board,
                        envoys: &envoys,
                        listen,
                        now,
                    };
                    let answer = orders::execute(&orders, order);
                    // The client may be gone.
                    let _gone = ask.answer.send(answer);
                });
                return;
            }
        };
        let _gone = ask.answer.send(answer);
    }

    fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(self.parts.clock.now()))
    }

    /// Ready means that nodes can connect, join, and get their part of a mesh.
    pub(super) fn is_ready(&self) -> bool {
        let is_shown = self.parts.door.not_after() > self.parts.clock.now();
        !self.draining && self.parts.board.generation() > 0 && is_shown
    }

    fn status(&self) -> ControlStatus {
        let PlaneParts {
            authority, nodes, ..
        } = &self.parts;
        let now = self.now();
        let trust = authority.trust();
        let usage = self.probe.read();
        let registry = self.parts.registry.as_ref();
        let mesh = self.parts.board.newest().unwrap_or_default();
        let (envoys, gateways) = envoys::status(&mesh, &self.parts.envoys);
        ControlStatus {
            role: "control".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            ready: self.is_ready(),
            draining: self.draining,
            trust_domain: authority.trust_domain().to_string(),
            listen: self.parts.listen,
            metrics: self.parts.metrics_at,
            folder: self.parts.dir.clone(),
            state: self.parts.state.clone(),
            config: self.config.clone(),
            registry: registry.map(|registry| registry.status(&self.tally)),
            epoch: self.parts.board.epoch().to_owned(),
            mesh_generation: self.parts.board.generation(),
            root: orders::root_status(authority, nodes, now),
            tokens: authority.tokens(now).len(),
            denied: trust.denied.entries().len(),
            deny_generation: trust.denied.generation,
            nodes: self.nodes(now),
            envoys,
            gateways,
            usage: UsageStatus {
                resident_bytes: usage.resident_bytes,
                cpu_ms: usage.cpu_us.map(|us| us / 1_000),
                threads: usage.threads,
                open_fds: usage.open_fds,
                max_fds: usage.max_fds,
            },
        }
    }

    /// The identities on the deny-list, without expired entries.
    fn denied(&self) -> Vec<SpiffeId> {
        let denied = self.parts.authority.trust().denied;
        denied.identities(self.now()).cloned().collect()
    }

    /// Every node that is connected, holds a certificate, or has workloads.
    fn nodes(&self, now: UnixTime) -> Vec<NodeStatus> {
        let PlaneParts {
            authority, nodes, ..
        } = &self.parts;
        let mut all: BTreeMap<NodeName, NodeStatus> = BTreeMap::new();
        for (name, address) in nodes.present().iter() {
            all.entry(name.clone()).or_default().address = Some(*address);
        }
        for member in authority.members(now) {
            all.entry(member.node).or_default().certificate_until = Some(member.until);
        }
        for (name, workloads) in &self.parts.board.placed() {
            all.entry(name.clone()).or_default().workloads = *workloads;
        }
        let denied = authority.trust().denied;
        let status = all.into_iter().map(|(name, status)| {
            let confirmed = nodes.confirmed(&name);
            let mesh = nodes.mesh(&name);
            let id = SpiffeId::node(authority.trust_domain().clone(), name.clone());
            NodeStatus {
                also_at: nodes.also_at(&name),
                name: name.to_string(),
                mesh_generation: mesh.map(|mesh| mesh.generation),
                changed_generation: mesh.map(|mesh| mesh.marked),
                bundle: confirmed.map(|confirmed| confirmed.bundle),
                deny_list: confirmed.map(|confirmed| confirmed.denied),
                denied: denied.denies(&id, None, now).is_some(),
                ..status
            }
        });
        status.collect()
    }

    fn metrics(&self) -> Answer {
        let (status, usage) = (self.status(), self.probe.read());
        let counters = Arc::clone(&self.parts.counters);
        let door = Arc::clone(&self.parts.door);
        Answer {
            status: 200,
            content_type: exposition::CONTENT_TYPE,
            body: exposition::render(move |encoder| {
                metrics::encode(encoder, &status, &counters, &door)?;
                usage.encode(encoder)
            }),
        }
    }
}
