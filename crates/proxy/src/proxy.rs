//! The handle of a running data plane.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heddle_intercept::{PodId, Sockets};
use heddle_model::{Mesh, NodeName, WorkloadName};
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::Identities;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::manager::{self, ManagerHandle, Order, View};
use crate::peers::{Peer, PeerStatus};
use crate::permits::{CalledShares, Permits, ShareOwner};
use crate::place::Pods;
use crate::rooms::Keeper;
use crate::route::Snapshot;
use crate::{Entry, Settings};

#[cfg(test)]
mod tests;

/// Nodes that are named when they cannot be reached; of more the number is.
const NAMED_NODES: usize = 10;

/// A running data plane. Dropping it cuts every connection; [`Proxy::drain`] lets them finish.
pub struct Proxy {
    manager: ManagerHandle,
    permits: Permits,
    /// Shares of the workloads of the newest mesh.
    called: Mutex<CalledShares>,
    /// What endpoints take and which requests wait for them, from one mesh to the next.
    rooms: Mutex<Keeper>,
    workers_limit: usize,
    /// Nodes of the newest mesh that cannot be reached.
    unreached: Mutex<BTreeSet<NodeName>>,
    /// Dropped last, and with it the Manager and its Workers.
    _guard: ManagerGuard,
}

/// Ends the Manager when it is dropped.
struct ManagerGuard(Mailbox<Order>);

impl Drop for ManagerGuard {
    fn drop(&mut self) {
        self.0.send(Order::Drain {
            until: Instant::now(),
        });
    }
}

/// How the data plane is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProxyStatus {
    /// Each Worker.
    pub workers: Vec<WorkerStatus>,
    /// How many there may be.
    pub workers_limit: usize,
}

/// Looks at a data plane, also while it drains.
#[derive(Clone)]
pub struct Observer {
    roster: Arc<Mutex<Vec<View>>>,
    workers_limit: usize,
}

/// How a Worker is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Which one, from 0.
    pub id: usize,
    /// Whether it hands over what it has, to end.
    pub retiring: bool,
    /// The part of the time in which it has work, from 0 to 1, as of the last second or so.
    pub busy: f64,
    /// Generation of the configuration that it serves.
    pub config_generation: i64,
    /// Client connections open now.
    pub connections_active: i64,
    /// Connections that it has handed over to other Workers.
    pub connections_moved: u64,
    /// Requests under way.
    pub requests_active: i64,
    /// Connections to endpoints, idle ones included.
    pub upstream_connections_active: i64,
    /// Time spent working since it started, in milliseconds.
    pub busy_ms: u64,
    /// How that time was spent: milliseconds by caller, as of the last second or so.
    pub busy_by_source_ms: BTreeMap<String, u64>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when time ran out, and were cut.
    pub cut: usize,
}

impl Proxy {
    /// Starts the Manager and its Workers. They serve no client until there is a listener, and answer 503
    /// until there is a configuration.
    ///
    /// # Errors
    /// When a thread or a runtime cannot be made.
    pub fn start(
        settings: Settings,
        registry: Arc<Registry>,
        log: Option<AccessLog>,
    ) -> io::Result<Proxy> {
        let workers_limit = settings.workers.most();
        let bounds = settings.bounds;
        let permits = Permits::new(
            bounds.connections,
            bounds.connections_per_pod,
            bounds.connections_per_address,
        );
        let manager = manager::spawn(settings, registry, log, seed(), permits.clone())?;
        let guard = ManagerGuard(manager.orders.clone());
        Ok(Proxy {
            manager,
            permits,
            called: Mutex::default(),
            rooms: Mutex::new(Keeper::new(Instant::now())),
            workers_limit,
            unreached: Mutex::default(),
            _guard: guard,
        })
    }

    /// Serves every request that begins from now on by this configuration. Connections stay.
    pub fn apply(&self, mesh: &Mesh) {
        self.say_unreached(mesh);
        let mut snapshot = Snapshot::new(mesh);
        snapshot.called = self.shares_of(mesh);
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.furnish(mesh, &mut rooms, Instant::now());
        drop(rooms);
        self.order(Order::Apply(Arc::new(snapshot)));
    }

    /// Calls workloads of other nodes, and is called by them, as these from now on. Connections whose peer
    /// is not to be believed any more are closed, and so are those that were made with a certificate that
    /// has expired.
    pub fn identify(&self, identities: Arc<Identities>) {
        self.order(Order::Identify(identities));
    }

    /// Reaches these workloads of this node from within their pods from now on, and what the mesh does not
    /// know from within the pod that calls it. Connections that carry something stay as they are.
    pub fn pods(&self, pods: Arc<BTreeMap<WorkloadName, PodId>>) {
        self.order(Order::Pods(Arc::new(Pods(pods))));
    }

    /// Asks for sockets within pods here from now on. Without it nothing in a pod is reached.
    pub fn sockets(&self, sockets: Sockets) {
        self.order(Order::Sockets(sockets));
    }

    /// Accepts connections from a bound socket. An `id` that is in use replaces its listener.
    pub fn listen(&self, id: u64, socket: TcpListener, entry: Entry) {
        let pod = None;
        self.order(Order::Listen {
            id,
            socket,
            entry,
            pod,
        });
    }

    /// The same from a listener within a pod. What arrives there is delivered there, and what its programs
    /// dial outside of the mesh is dialled from there, also when the workload's pod is another one by now.
    pub fn listen_in(&self, pod: PodId, id: u64, socket: TcpListener, entry: Entry) {
        let pod = Some(pod);
        self.order(Order::Listen {
            id,
            socket,
            entry,
            pod,
        });
    }

    /// Closes a listener; connections that it accepted go on.
    pub fn unlisten(&self, id: u64) {
        self.order(Order::Unlisten { id });
    }

    /// Closes a listener when `grace` is over and no client waits in its queue any more: none that the kernel
    /// has accepted until then is reset. What is returned resolves when it is closed here; it need not be
    /// awaited for that to happen. A copy of the socket elsewhere is open still, and queues.
    pub fn unlisten_drained(
        &self,
        id: u64,
        grace: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (done, closed) = oneshot::channel();
        self.order(Order::UnlistenDrained { id, grace, done });
        async move {
            // An error means that there was no such listener, or that the proxy has ended.
            let _ = closed.await;
        }
    }

    /// Lets every Worker hand its connections to the next one, whatever their loads: for tests and
    /// experiments that want connections to move.
    pub fn rotate(&self) {
        self.order(Order::Rotate);
    }

    /// The shares of what is called of a mesh: of what there was before, the same.
    fn shares_of(&self, mesh: &Mesh) -> CalledShares {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let CalledShares {
            workloads: known,
            astray,
        } = &mut *called;
        let astray = astray.take();
        let astray = astray.unwrap_or_else(|| self.permits.share(ShareOwner::Astray));
        let workloads = mesh.workloads.iter().map(|workload| {
            let name = workload.name.clone();
            let share = known.remove(&name);
            let share =
                share.unwrap_or_else(|| self.permits.share(ShareOwner::Nodes(name.clone())));
            (name, share)
        });
        let shares = CalledShares {
            workloads: workloads.collect(),
            astray: Some(astray),
        };
        called.clone_from(&shares);
        shares
    }

    /// Says which nodes cannot be reached, when that changes.
    fn say_unreached(&self, mesh: &Mesh) {
        let now: BTreeSet<NodeName> = mesh.unreached_nodes().into_iter().cloned().collect();
        let mut said = self
            .unreached
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *said != now && !now.is_empty() {
            let names: Vec<&str> = now.iter().take(NAMED_NODES).map(NodeName::as_str).collect();
            tracing::warn!(
                nodes = now.len(),
                "nodes whose endpoints cannot be reached, since they have not joined, or are away for \
                 long: {}",
                names.join(", ")
            );
        }
        *said = now;
    }

    fn order(&self, order: Order) {
        self.manager.orders.send(order);
    }

    /// Whether the Manager is there to accept connections and to obey. When it is not, which only a fault
    /// of ours explains, nothing but a new process helps.
    pub fn is_running(&self) -> bool {
        !self.manager.thread.is_finished()
    }

    /// What the Workers are doing now.
    pub fn status(&self) -> ProxyStatus {
        self.observer().status()
    }

    /// A handle that can tell that when the proxy has begun to drain, too.
    pub fn observer(&self) -> Observer {
        Observer {
            roster: Arc::clone(&self.manager.roster),
            workers_limit: self.workers_limit,
        }
    }

    /// Accepts nothing more, lets every connection finish its request, and ends. What is not
    /// finished after `grace` is cut.
    pub async fn drain(self, grace: Duration) -> Drained {
        self.order(Order::Drain {
            until: Instant::now() + grace,
        });
        // An error means that the Manager is gone already.
        let cut = self.manager.ended.await.unwrap_or(0);
        // It has told us that it ended: this does not wait.
        if self.manager.thread.join().is_err() {
            tracing::error!("the manager panicked");
        }
        Drained { cut }
    }
}

impl Observer {
    /// What the Workers are doing now; none when they have ended.
    pub fn status(&self) -> ProxyStatus {
        let roster = self.roster.lock();
        let roster = roster.unwrap_or_else(PoisonError::into_inner).clone();
        // One that has just come has no configuration for a moment, and no connection either.
        let configured = |view: &View| view.stats.config_generation.get() > 0;
        let any = roster.iter().any(configured);
        let workers = roster.iter().filter(|view| !any || configured(view));
        ProxyStatus {
            workers: workers.map(WorkerStatus::of).collect(),
            workers_limit: self.workers_limit,
        }
    }

    /// How this node stands with others, as of the last second or so.
    pub fn peers(&self) -> BTreeMap<Peer, PeerStatus> {
        let roster = self.roster.lock();
        let roster = roster.unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: BTreeMap<Peer, PeerStatus> = BTreeMap::new();
        for view in roster {
            let shown = view.shown.lock().unwrap_or_else(PoisonError::into_inner);
            for (peer, status) in &shown.peers {
                all.entry(*peer).or_default().add(status);
            }
        }
        all
    }
}

impl WorkerStatus {
    fn of(view: &View) -> Self {
        let stats = &view.stats;
        let shown = view.shown.lock().unwrap_or_else(PoisonError::into_inner);
        WorkerStatus {
            id: stats.id,
            retiring: view.retiring,
            busy: view.busy,
            config_generation: stats.config_generation.get(),
            connections_active: stats.connections_active.get(),
            connections_moved: stats.connections_moved.get(),
            requests_active: stats.requests_active.get(),
            upstream_connections_active: stats.upstream_connections_active.get(),
            busy_ms: stats.busy_ns.get() / 1_000_000,
            busy_by_source_ms: shown
                .costs
                .iter()
                .map(|(source, ns)| (source.to_string(), ns / 1_000_000))
                .collect(),
        }
    }
}

/// A seed for choosing endpoints. It need not be secret, only different in each process.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
