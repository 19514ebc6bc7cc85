//! The handle of a running data plane.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heddle_intercept::{PodId, Sockets};
use heddle_model::{Class, Mesh, NodeName, WorkloadName};
use heddle_telemetry::{AccessLog, Registry};
use heddle_transport::Identities;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::manager::{self, ManagerHandle, Order, Roster, View};
use crate::peers::{Peer, PeerStatus};
use crate::permits::{CalledShares, Permits, ShareOwner};
use crate::place::Pods;
use crate::questions::Questions;
use crate::rooms::Keeper;
use crate::route::Snapshot;
use crate::{Entry, Settings};

#[cfg(test)]
mod tests;

/// The most unreachable nodes that one log message names; it always gives their number.
const NAMED_NODES: usize = 10;

/// A running data plane. Dropping it cuts every connection; [`Proxy::drain`] lets requests finish.
pub struct Proxy {
    manager: ManagerHandle,
    permits: Permits,
    /// Connection shares of the called workloads of the newest mesh.
    called: Mutex<CalledShares>,
    /// The newest configuration; the next one has from it what is the same.
    newest: Mutex<Arc<Snapshot>>,
    /// Request limits of endpoints, and the requests that wait for them; kept from one mesh to the next.
    rooms: Mutex<Keeper>,
    workers_limit: usize,
    questions: Option<Questions>,
    /// Nodes of the newest mesh that cannot be reached.
    unreached: Mutex<BTreeSet<NodeName>>,
    /// Dropped last: ends the Manager and its Workers.
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

/// A snapshot of the Workers' state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProxyStatus {
    /// The Workers that run now, retiring ones included.
    pub workers: Vec<WorkerStatus>,
    /// The limit of the number of Workers, of each class.
    pub workers_limit: usize,
}

/// Reads the state of a data plane, also while it drains.
#[derive(Clone)]
pub struct Observer {
    rosters: [Roster; 2],
    workers_limit: usize,
}

/// A snapshot of one Worker's state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// The Worker's number, from 0.
    pub id: usize,
    /// The class of the callers whose connections it carries.
    pub class: Class,
    /// The kernel's ID of its thread; 0 until the thread runs.
    pub thread: i32,
    /// Whether it hands its connections to other Workers, in order to end.
    pub retiring: bool,
    /// Busy ratio, from 0 to 1, over the last second or so.
    pub busy: f64,
    /// Generation of the configuration that it uses.
    pub config_generation: i64,
    /// Client connections that are open now.
    pub connections_active: i64,
    /// Connections that it has handed over to other Workers.
    pub connections_moved: u64,
    /// Requests in progress.
    pub requests_active: i64,
    /// Connections to endpoints, including idle ones.
    pub upstream_connections_active: i64,
    /// Time spent working since it started, in milliseconds.
    pub busy_ms: u64,
    /// Processor time by caller, in milliseconds, as of the last second or so. The Worker's own work has the name `heddle`.
    pub cpu_by_source_ms: BTreeMap<String, u64>,
}

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy at the deadline and were cut.
    pub cut: usize,
}

impl Proxy {
    /// Starts the Manager and its Workers. They accept no client until there is a listener, and answer 503 until there
    /// is a configuration.
    ///
    /// # Errors
    /// When a thread or a runtime cannot be created.
    pub fn start(
        settings: Settings,
        registry: Arc<Registry>,
        log: Option<AccessLog>,
    ) -> io::Result<Proxy> {
        let workers_limit = settings.workers.most();
        let (bounds, questions) = (settings.bounds, settings.questions.clone());
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
            newest: Mutex::new(Arc::new(Snapshot::new(&Mesh::default()))),
            rooms: Mutex::new(Keeper::new(Instant::now())),
            workers_limit,
            questions,
            unreached: Mutex::default(),
            _guard: guard,
        })
    }

    /// Applies this configuration to every request that starts from now on. Connections stay open.
    pub fn apply(&self, mesh: &Mesh) {
        let mut newest = (self.newest.lock()).unwrap_or_else(PoisonError::into_inner);
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut snapshot = newest.followed_by(mesh, |service, port, cluster| {
            let places = cluster.endpoints.iter();
            let addresses: Vec<SocketAddr> = places.map(|place| place.address).collect();
            cluster.rooms = rooms.rooms(service, port, &addresses, now);
        });
        rooms.forget(|service, port| snapshot.has(service, port));
        drop(rooms);
        snapshot.called = self.shares_of(mesh);
        self.say_unreached(&snapshot);
        let snapshot = Arc::new(snapshot);
        *newest = Arc::clone(&snapshot);
        if let Some(questions) = &self.questions {
            let used = Arc::clone(&snapshot);
            questions.serves(move || used.take_used());
        }
        self.order(Order::Apply(snapshot));
    }

    /// Uses these identities from now on, towards other nodes and for calls from them. Connections are closed if their
    /// peer is no longer trusted, or if the certificate that they were made with has expired.
    pub fn identify(&self, identities: Arc<Identities>) {
        self.order(Order::Identify(identities));
    }

    /// From now on these workloads of this node are dialled from inside their pods, and destinations outside of the
    /// mesh from inside the calling pod. Busy connections stay as they are.
    pub fn pods(&self, pods: Arc<BTreeMap<WorkloadName, PodId>>) {
        self.order(Order::Pods(Arc::new(Pods(pods))));
    }

    /// Sets the holder's client for sockets inside pods. Without it nothing is dialled inside a pod.
    pub fn sockets(&self, sockets: Sockets) {
        self.order(Order::Sockets(sockets));
    }

    /// Accepts connections from a bound socket. If `id` is in use, the new listener replaces the old one.
    pub fn listen(&self, id: u64, socket: TcpListener, entry: Entry) {
        let pod = None;
        self.order(Order::Listen {
            id,
            socket,
            entry,
            pod,
        });
    }

    /// Like [`Proxy::listen`], for a listener inside a pod. Connections that arrive there are delivered to that pod,
    /// and connections of its programs to destinations outside of the mesh are dialled from it, even if the workload
    /// has another pod by then.
    pub fn listen_in(&self, pod: PodId, id: u64, socket: TcpListener, entry: Entry) {
        let pod = Some(pod);
        self.order(Order::Listen {
            id,
            socket,
            entry,
            pod,
        });
    }

    /// Closes a listener. Connections that it has accepted continue.
    pub fn unlisten(&self, id: u64) {
        self.order(Order::Unlisten { id });
    }

    /// Closes a listener once `grace` is over and no client waits in its backlog: no connection that the kernel accepts
    /// until then is reset. The returned future resolves when the listener is closed here; closing does not depend on
    /// polling it. A copy of the socket in another process stays open and keeps queueing clients.
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

    /// Makes every Worker hand its connections to the next one, whatever their loads: for tests and experiments that
    /// need connections to move.
    pub fn rotate(&self) {
        self.order(Order::Rotate);
    }

    /// The connection shares of the called workloads of `mesh`. A workload that has a share already keeps it.
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

    /// Logs which nodes cannot be reached, whenever that set changes.
    fn say_unreached(&self, snapshot: &Snapshot) {
        let now: BTreeSet<NodeName> = snapshot.unreached().cloned().collect();
        let mut said = self
            .unreached
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *said != now && !now.is_empty() {
            let names: Vec<&str> = now.iter().take(NAMED_NODES).map(NodeName::as_str).collect();
            tracing::warn!(
                nodes = now.len(),
                "endpoints of these nodes cannot be reached, because the nodes have not joined, or have been away \
                 for long: {}",
                names.join(", ")
            );
        }
        *said = now;
    }

    fn order(&self, order: Order) {
        self.manager.orders.send(order);
    }

    /// Whether the Manager's thread still runs, so that connections are accepted and orders carried out. It ends early
    /// only through a bug of Heddle; then only a restart of the process helps.
    pub fn is_running(&self) -> bool {
        !self.manager.thread.is_finished()
    }

    /// The state of the Workers now.
    pub fn status(&self) -> ProxyStatus {
        self.observer().status()
    }

    /// Returns a handle that reports the same, also once the proxy drains.
    pub fn observer(&self) -> Observer {
        Observer {
            rosters: self.manager.rosters.clone(),
            workers_limit: self.workers_limit,
        }
    }

    /// Accepts nothing more, lets every connection finish its request, and ends. Connections that are not finished
    /// after `grace` are cut.
    pub async fn drain(self, grace: Duration) -> Drained {
        self.order(Order::Drain {
            until: Instant::now() + grace,
        });
        // An error means that the Manager has ended already.
        let cut = self.manager.ended.await.unwrap_or(0);
        // The Manager has reported its end, so this does not block.
        if self.manager.thread.join().is_err() {
            tracing::error!("the manager panicked");
        }
        Drained { cut }
    }
}

impl Observer {
    /// The Workers of all classes.
    fn roster(&self) -> Vec<View> {
        let lock = |roster: &Roster| {
            let roster = roster.lock().unwrap_or_else(PoisonError::into_inner);
            roster.clone()
        };
        self.rosters.iter().flat_map(lock).collect()
    }

    /// The state of the Workers now; empty once they have ended.
    pub fn status(&self) -> ProxyStatus {
        let roster = self.roster();
        // A Worker that has just started has no configuration for a moment, and no connection either.
        let configured = |view: &View| view.stats.config_generation.get() > 0;
        let any = roster.iter().any(configured);
        let workers = roster.iter().filter(|view| !any || configured(view));
        ProxyStatus {
            workers: workers.map(WorkerStatus::of).collect(),
            workers_limit: self.workers_limit,
        }
    }

    /// The state of connections with other nodes, as of the last second or so.
    pub fn peers(&self) -> BTreeMap<Peer, PeerStatus> {
        let roster = self.roster();
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
            class: view.class,
            thread: view.thread.load(Ordering::Relaxed),
            retiring: view.retiring,
            busy: view.busy,
            config_generation: stats.config_generation.get(),
            connections_active: stats.connections_active.get(),
            connections_moved: stats.connections_moved.get(),
            requests_active: stats.requests_active.get(),
            upstream_connections_active: stats.upstream_connections_active.get(),
            busy_ms: stats.busy_ns.get() / 1_000_000,
            cpu_by_source_ms: shown
                .costs
                .iter()
                .map(|(source, ns)| (source.to_string(), ns / 1_000_000))
                .collect(),
        }
    }
}

/// A seed for the choice of endpoints. It need not be secret, only different in each process.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
