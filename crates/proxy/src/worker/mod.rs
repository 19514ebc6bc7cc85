//! A Worker: one thread with its own runtime, connections, buffers, upstreams, configuration and
//! numbers. Nothing of it is shared with another thread, so nothing is locked.

mod accept;
mod bound;
mod choose;
mod command;
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
use heddle_telemetry::{LogSink, Registry, Seldom, TcpSeries};

use crate::clock::Millis;
use crate::door::Door;
use crate::entry::{Direct, Entry, What};
use crate::env::Env;
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

/// Clients that are looked at after one that was gone when its turn came.
const WARY: u32 = 256;

/// How a Worker begins to carry what comes to it.
pub(crate) type Receive = fn(&Rc<Worker>, Arrival);

/// What the tasks of a Worker share among themselves.
pub(crate) struct Worker {
    pub(crate) env: Rc<Env>,
    /// The configuration that new requests are served by. A request under way keeps its own.
    bound: RefCell<Rc<Bound>>,
    pub(crate) upstreams: Upstreams,
    /// Links to other nodes, and connections that speak HTTP/2.
    pub(crate) links: Rc<Links>,
    pub(crate) http2: Rc<Connections>,
    /// Workloads that are reached from within their pods, and the holder that makes sockets there.
    pods: RefCell<Arc<Pods>>,
    sockets: RefCell<Option<Sockets>>,
    receive: Receive,
    pub(crate) looks: Looks,
    /// Connections from other nodes that have not proven who they are.
    pub(crate) unproven: Rc<Unproven>,
    /// Reused by every request, between two awaits only.
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) registry: Arc<Registry>,
    /// `None` while no access log is wanted.
    pub(crate) log: Option<RefCell<LogSink>>,
    /// What is counted of opaque connections.
    tcp: FlowSeries,
    /// When series that are not written any more are looked for.
    series_due: Cell<Millis>,
    /// A series that was not written for so long is let go.
    series_unused: Millis,
    /// What was said of connections that could not be accepted.
    pub(crate) cannot_accept: RefCell<Seldom>,
    /// Whether it was said that there are as many clients as may be.
    pub(crate) full: RefCell<Seldom<()>>,
    /// What was said of ports that no Service has.
    pub(crate) said_of_ports: RefCell<Seldom<Reason>>,
    /// So many of the next clients are looked at before anything is begun for them.
    wary: Cell<u32>,
    shown: Arc<Mutex<Shown>>,
}

/// Every stage of a connection has to do with the environment: it names its clock and its buffers as the Worker's.
impl Deref for Worker {
    type Target = Env;

    fn deref(&self) -> &Env {
        &self.env
    }
}

/// What a Worker shows of itself beside its numbers, brought up to date at each sweep.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Nanoseconds of work by the caller on whose account it was.
    pub(crate) costs: Vec<(Arc<str>, u64)>,
    /// How it stands with other nodes.
    pub(crate) peers: BTreeMap<Peer, PeerStatus>,
}

impl Worker {
    /// The configuration for a request that begins now.
    pub(crate) fn bound(&self) -> Rc<Bound> {
        Rc::clone(&self.bound.borrow())
    }

    /// Whether requests that begin now follow this one, too.
    pub(crate) fn follows(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.bound.borrow().snapshot, snapshot)
    }

    /// The series of flows of that traffic to a destination.
    pub(crate) fn tcp_series(
        &self,
        traffic: Traffic<'_>,
        destination: &Arc<str>,
    ) -> Arc<TcpSeries> {
        let key = FlowKey {
            traffic: traffic.key(),
            destination: Arc::clone(destination),
        };
        let ask = || {
            let guards = &self.snapshot().guards;
            (self.registry).tcp_series(traffic.labels(guards, destination))
        };
        self.tcp.with(key, ask, Arc::clone)
    }

    /// Lets go of series that are not written any more, when it is time. The registry forgets them after a while.
    fn forget_series(&self, now: Millis) {
        if now < self.series_due.get() {
            return;
        }
        self.series_due.set(now.saturating_add(self.series_unused));
        self.gate.forget_accounts();
        self.tcp.forget_unused();
        self.bound().series.forget_unused();
    }

    /// When that is to be done, if any are held.
    fn series_due(&self) -> Option<Millis> {
        let is_empty = self.tcp.is_empty() && self.bound.borrow().series.is_empty();
        (!is_empty).then(|| self.series_due.get())
    }

    /// The endpoint that another node has chosen, or the client itself.
    ///
    /// # Errors
    /// When it is not here, or does not have the identity that was asked for.
    pub(crate) fn chosen(
        &self,
        bound: &Bound,
        port: PortIndex,
        door: &Door,
    ) -> Result<Rc<Endpoint>, Reason> {
        let chosen = match &door.entry {
            Entry::Inbound(inbound) => {
                let (endpoint, account) = (inbound.endpoint, &inbound.account);
                let hosts = bound.snapshot.port(port).hosts(endpoint, account);
                bound.at(port, endpoint).filter(|_| hosts)
            }
            Entry::Direct(direct) => return self.direct(bound, port, direct, door.pod),
            _ => None,
        };
        chosen.map(Rc::clone).ok_or(Reason::EndpointGone)
    }

    /// What is at the address that a client has chosen, and how it is reached.
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
            // What has arrived at a pod, dialled from anywhere else, would arrive there again, and again.
            (Some(workload), _) if caller.is_none() => {
                let pod = listener.or_else(|| pods.of(workload));
                Way::Inside(pod.ok_or(Reason::PodGone)?)
            }
            (Some(workload), _) => pods.of(workload).map_or(Way::Here, Way::Inside),
            // Dialled from outside of the pod it could reach what the pod cannot.
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
        Ok(self.upstreams.endpoint(&Place { address, way }))
    }

    /// Workloads whose traffic is intercepted on this node.
    pub(crate) fn pods(&self) -> Arc<Pods> {
        Arc::clone(&self.pods.borrow())
    }

    /// The holder that is asked for sockets within pods.
    pub(crate) fn sockets(&self) -> Option<Sockets> {
        self.sockets.borrow().clone()
    }

    /// Whether a client is looked at before anything is begun for it: where others wait for their turn, and for a while
    /// after some had reset what they had just opened.
    pub(crate) fn is_wary(&self) -> bool {
        let wary = self.wary.get();
        self.wary.set(wary.saturating_sub(1));
        wary > 0 || self.gate.is_crowded()
    }

    /// Counts clients that had reset what they had just opened.
    pub(crate) fn count_abandoned(&self, clients: u64) {
        if clients > 0 {
            self.stats.connections_abandoned.add(clients);
            self.wary.set(WARY);
        }
    }

    /// Begins to carry what has come.
    pub(crate) fn receive(self: &Rc<Self>, arrival: Arrival) {
        (self.receive)(self, arrival);
    }

    /// Client connections open now, and links by which other nodes call.
    pub(crate) fn connections(&self) -> usize {
        let clients = usize::try_from(self.stats.connections_active.get()).unwrap_or(0);
        clients + self.links.called_count()
    }
}

/// Whether a workload of this node still has the address that a client has chosen: what goes to another
/// address leaves its pod, in the clear. One of which the mesh knows nothing is the workload's if what was
/// going there has arrived at it.
fn is_there(bound: &Bound, direct: &Direct, workload: &WorkloadName) -> bool {
    let addresses = &bound.snapshot.addresses;
    let has_arrived = || {
        let is_outside = addresses.find(direct.endpoint) == Found::Outside;
        direct.caller.is_none() && addresses.has(workload) && is_outside
    };
    addresses.is_of(direct.endpoint.ip(), workload) || has_arrived()
}
