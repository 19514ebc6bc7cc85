//! A Worker: one thread with its own runtime, connections, buffers, upstreams, configuration and statistics. It shares
//! none of these with another thread, so it needs no locks.

mod accept;
mod bound;
mod choose;
mod command;
mod cpu;
mod give;
mod looks;
mod scratch;
mod series;
mod shown;
mod thread;
mod timer;
mod unproven;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use heddle_intercept::{PodId, Sockets};
use heddle_model::WorkloadName;
use heddle_telemetry::{Collapse, LogSink, Registry, Seldom, TcpSeries};

use crate::clock::Millis;
use crate::door::Door;
use crate::entry::{Direct, Entry, What};
use crate::env::{Env, Used};
use crate::failure::Reason;
use crate::http2::Connections;
use crate::link::Links;
use crate::parcel::Arrival;
use crate::peers::{Peer, PeerStatus};
use crate::place::{Place, Pods, Way};
use crate::route::{Found, PortIndex, Snapshot};
use crate::traffic::Traffic;
use crate::upstream::{Endpoint, Upstreams};

pub(crate) use accept::Listener;
pub(crate) use bound::Bound;
pub(crate) use command::Command;
pub(crate) use looks::Looks;
pub(crate) use scratch::Scratch;
pub(crate) use series::RequestKey;
use series::{FlowKey, FlowSeries};
pub(crate) use thread::{Plan, WorkerHandle, spawn};
pub(crate) use unproven::Unproven;

/// How many of the next clients are checked for a reset, after one was found reset when its turn came.
const WARY: u32 = 256;

/// The function with which a Worker starts to carry an arrival.
pub(crate) type Receive = fn(&Rc<Worker>, Arrival);

/// The state that all tasks of a Worker share.
pub(crate) struct Worker {
    pub(crate) env: Rc<Env>,
    /// The configuration for new requests. A request in progress keeps its own.
    bound: RefCell<Rc<Bound>>,
    pub(crate) upstreams: Rc<Upstreams>,
    /// Links to other nodes, and connections that speak HTTP/2.
    pub(crate) links: Rc<Links>,
    pub(crate) http2: Rc<Connections>,
    /// Workloads that are dialled from inside their pods, and the holder that makes sockets there.
    pods: RefCell<Arc<Pods>>,
    sockets: RefCell<Option<Sockets>>,
    receive: Receive,
    pub(crate) looks: Looks,
    /// Connections from other nodes that have not proven an identity yet.
    pub(crate) unproven: Rc<Unproven>,
    /// Reused by every request; never borrowed across an await.
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) registry: Arc<Registry>,
    /// Reused by every sweep.
    cpu_used: RefCell<Vec<Used>>,
    /// `None` for a proxy that can have no access log.
    log: Option<RefCell<LogSink>>,
    /// Metric series of opaque connections.
    tcp: FlowSeries,
    /// When unused series are released next.
    series_due: Cell<Millis>,
    /// A series that was not used for this long is released.
    series_unused: Millis,
    /// Limit of series of requests, and of connections, in full detail.
    pub(crate) series_limit: usize,
    /// Limits how often accept errors are logged.
    pub(crate) cannot_accept: RefCell<Seldom>,
    /// Limits how often it is logged that the connection limit is reached.
    pub(crate) full: RefCell<Seldom<()>>,
    /// Limits how often connections to ports that no Service has are logged.
    pub(crate) said_of_ports: RefCell<Seldom<Reason>>,
    /// How many of the next clients are checked for a reset before any work is done for them.
    wary: Cell<u32>,
    shown: Arc<Mutex<Shown>>,
}

/// Every stage of a connection uses the environment: this makes its clock and buffers available as the Worker's own.
impl Deref for Worker {
    type Target = Env;

    fn deref(&self) -> &Env {
        &self.env
    }
}

/// What a Worker shows beside its statistics, updated at each sweep.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Nanoseconds of processor time, by caller.
    pub(crate) costs: Vec<(Arc<str>, u64)>,
    /// The state of connections with other nodes.
    pub(crate) peers: BTreeMap<Peer, PeerStatus>,
}

impl Worker {
    /// The configuration for a request that starts now.
    pub(crate) fn bound(&self) -> Rc<Bound> {
        Rc::clone(&self.bound.borrow())
    }

    /// Whether requests that start now still use this snapshot.
    pub(crate) fn follows(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.bound.borrow().snapshot, snapshot)
    }

    /// The access log, if it has a target at present.
    pub(crate) fn access_log(&self) -> Option<&RefCell<LogSink>> {
        self.log.as_ref().filter(|log| log.borrow().is_on())
    }

    /// The metric series of opaque connections of `traffic` to `destination`.
    pub(crate) fn tcp_series(
        &self,
        traffic: Traffic<'_>,
        destination: &Arc<str>,
    ) -> Arc<TcpSeries> {
        let key = FlowKey {
            traffic: traffic.key(),
            destination: Arc::clone(destination),
        };
        let ask = |detail| {
            let guards = &self.snapshot().guards;
            let labels = traffic.labels(guards, destination);
            self.registry.tcp_series(labels.with(detail))
        };
        self.tcp.with(key, self.series_limit, ask, Arc::clone)
    }

    /// Releases series that are no longer used, when it is time. The registry forgets them after a while.
    fn forget_series(&self, now: Millis) {
        if now < self.series_due.get() {
            return;
        }
        self.series_due.set(now.saturating_add(self.series_unused));
        self.gate.forget_accounts();
        self.tcp.forget_unused();
        self.bound().series.forget_unused();
    }

    /// When series are to be released next, if any are held.
    fn series_due(&self) -> Option<Millis> {
        let is_empty = self.tcp.is_empty() && self.bound.borrow().series.is_empty();
        (!is_empty).then(|| self.series_due.get())
    }

    /// The endpoint that the calling node, or the client itself, has chosen.
    ///
    /// # Errors
    /// When it is not on this node any more, or does not have the requested identity.
    pub(crate) fn chosen(
        &self,
        bound: &Bound,
        port: PortIndex,
        door: &Door,
    ) -> Result<Rc<Endpoint>, Reason> {
        let chosen = match &door.entry {
            Entry::Inbound(inbound) => {
                let (endpoint, account) = (inbound.endpoint, &inbound.account);
                let entry = bound.snapshot.port(port);
                let hosted = Some(endpoint).filter(|_| entry.hosts(endpoint, account));
                // A stock proxy has not chosen this endpoint: another one is as good.
                let next = || entry.next_hosted(account).filter(|_| inbound.is_stock);
                hosted.or_else(next).and_then(|at| bound.at(port, at))
            }
            Entry::Direct(direct) => return self.direct(bound, port, direct, door.pod),
            _ => None,
        };
        chosen.map(Rc::clone).ok_or(Reason::EndpointGone)
    }

    /// The endpoint at the address that a client has dialled, and how it is reached.
    fn direct(
        &self,
        bound: &Bound,
        port: PortIndex,
        direct: &Direct,
        listener: Option<PodId>,
    ) -> Result<Rc<Endpoint>, Reason> {
        let pods = self.pods();
        let caller = direct.caller.as_ref();
        let way = match (direct.workload(), &direct.what) {
            (Some(workload), _) if !is_there(bound, direct, workload) => {
                return Err(Reason::EndpointGone);
            }
            // A connection that has arrived at a pod must be dialled inside the pod: from anywhere else it would be
            // intercepted and arrive there again, endlessly.
            (Some(workload), _) if caller.is_none() => {
                let pod = listener.or_else(|| pods.of(workload));
                Way::Inside(pod.ok_or(Reason::PodGone)?)
            }
            (Some(workload), _) => pods.of(workload).map_or(Way::Here, Way::Inside),
            // Dialled from outside of the pod, it could reach destinations that the pod cannot.
            (None, What::Outside) => {
                let pod = listener.or_else(|| pods.of(caller?));
                Way::Outside(pod.ok_or(Reason::PodGone)?)
            }
            (None, _) => {
                let endpoint = bound.at(port, direct.endpoint);
                return endpoint.map(Rc::clone).ok_or(Reason::EndpointGone);
            }
        };
        let address = direct.endpoint;
        // It may be one of the port's endpoints.
        bound.use_port(port);
        Ok(self.upstreams.endpoint(&Place { address, way }))
    }

    /// Workloads whose traffic is intercepted on this node.
    pub(crate) fn pods(&self) -> Arc<Pods> {
        Arc::clone(&self.pods.borrow())
    }

    /// The holder that makes sockets inside pods.
    pub(crate) fn sockets(&self) -> Option<Sockets> {
        self.sockets.borrow().clone()
    }

    /// Whether a new client is checked for a reset before any work is done for it: while other tasks wait for their
    /// turn, and for the next few clients after some were found reset.
    pub(crate) fn is_wary(&self) -> bool {
        let wary = self.wary.get();
        self.wary.set(wary.saturating_sub(1));
        wary > 0 || self.gate.is_crowded()
    }

    /// Counts clients that had reset their connection before their turn came.
    pub(crate) fn count_abandoned(&self, clients: u64) {
        if clients > 0 {
            self.stats.connections_abandoned.add(clients);
            self.wary.set(WARY);
        }
    }

    /// Starts to carry an arrival.
    pub(crate) fn receive(self: &Rc<Self>, arrival: Arrival) {
        (self.receive)(self, arrival);
    }

    /// Client connections that are open now, plus links that other nodes have opened.
    pub(crate) fn connections(&self) -> usize {
        let clients = usize::try_from(self.stats.connections_active.get()).unwrap_or(0);
        clients + self.links.called_count()
    }
}

/// Whether a workload of this node still has the address that a client has dialled: traffic to any other address would
/// leave the pod in cleartext. An address that the mesh does not know belongs to the workload if the connection to it
/// has arrived at the workload.
fn is_there(bound: &Bound, direct: &Direct, workload: &WorkloadName) -> bool {
    let addresses = &bound.snapshot.addresses;
    let has_arrived = || {
        let is_outside = addresses.find(direct.endpoint) == Found::Outside;
        direct.caller.is_none() && addresses.has(workload) && is_outside
    };
    addresses.is_of(direct.endpoint.ip(), workload) || has_arrived()
}
