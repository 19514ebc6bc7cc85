//! A Worker: one thread with its own runtime, connections, buffers, upstreams, configuration and
//! numbers. Nothing of it is shared with another thread, so nothing is locked.

mod accept;
mod alarm;
mod blocks;
mod bound;
mod choose;
mod command;
mod gate;
mod heads;
mod looks;
mod moves;
mod outcome;
mod scratch;
mod shown;
mod thread;
mod timer;
mod trust;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use heddle_intercept::{PodId, Sockets};
use heddle_model::WorkloadName;
use heddle_telemetry::{LogSink, Registry, Seldom, TcpLabels, TcpSeries, WorkerStats};
use heddle_transport::{Identities, NoIdentity};
use heddle_wire::buffer::Pool;

use crate::balance::Random;
use crate::clock::{Clock, Millis, millis};
use crate::door::Door;
use crate::entry::Entry;
use crate::entry::{Direct, What};
use crate::failure::Reason;
use crate::http2::Connections;
use crate::intake::Intake;
use crate::intake::Sessions;
use crate::link::{Links, Places};
use crate::pace::Pace;
use crate::peers::{Peer, PeerStatus, Peers};
use crate::permits::Share;
use crate::place::Pods;
use crate::place::{Place, Way};
use crate::route::{Found, PortIndex};
use crate::settings::Settings;
use crate::upstream::{Endpoint, Upstreams};

pub(crate) use accept::Listener;
pub(crate) use alarm::{Alarm, Alarms};
pub(crate) use blocks::Blocks;
pub(crate) use bound::{Bound, SeriesKey};
pub(crate) use command::Command;
pub(crate) use gate::{Band, Gate, Member, Part, TaskId, WorkKey};
pub(crate) use heads::ADDED_BYTES;
use heads::HeadLimits;
pub(crate) use looks::Looks;
#[cfg(test)]
pub(crate) use moves::portion;
pub(crate) use moves::{Moves, Standing, Turn};
pub(crate) use outcome::Outcome;
pub(crate) use scratch::Scratch;
pub(crate) use thread::{Handle, Plan, spawn};

/// Clients that are looked at after one that was gone when its turn came.
const WARY: u32 = 256;

/// A source and a destination, as metrics name them.
type FromTo = (Arc<str>, Arc<str>);

/// What the tasks of a Worker share among themselves.
pub(crate) struct Worker {
    pub(crate) settings: Settings,
    /// What is taken of a head, of a client or an endpoint and of another node.
    limits: HeadLimits,
    pub(crate) pool: Pool,
    /// Larger blocks, for bodies that fill the usual ones.
    pub(crate) wide_pool: Pool,
    pub(crate) clock: Clock,
    pub(crate) gate: Gate,
    pub(crate) alarms: Rc<Alarms>,
    pub(crate) upstreams: Upstreams,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stats: Arc<WorkerStats>,
    /// The configuration that new requests are served by. A request under way keeps its own.
    bound: RefCell<Rc<Bound>>,
    /// Whom this node can call and be called as; `None` where there are no other nodes.
    identities: RefCell<Option<Arc<Identities>>>,
    /// Workloads that are reached from within their pods, and whom to ask for sockets there.
    pods: RefCell<Arc<Pods>>,
    sockets: RefCell<Option<Sockets>>,
    /// Links to other nodes; which Worker has which session; and the way in to this one.
    pub(crate) links: Links,
    pub(crate) sessions: Sessions,
    /// What the links by which others call count to, of all Workers together, and how many this one takes.
    pub(crate) called_links: Arc<Share>,
    pub(crate) places: Places,
    /// Connections to other nodes that speak HTTP/2.
    pub(crate) http2: Connections,
    /// What is shown of other nodes.
    pub(crate) peers: Peers,
    pub(crate) intake: Intake,
    pub(crate) pace: Pace,
    pub(crate) looks: Looks,
    /// Connections from other nodes that have not proven who they are, and how many there may be.
    unproven: RefCell<trust::UnprovenOnes>,
    unproven_limit: Cell<usize>,
    /// Reused by every request, between two awaits only.
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) random: RefCell<Random>,
    /// `None` while no access log is wanted.
    pub(crate) log: Option<RefCell<LogSink>>,
    /// What is counted of opaque connections, by source and destination.
    tcp: RefCell<HashMap<FromTo, Arc<TcpSeries>, RandomState>>,
    moves: Moves,
    /// What was said of connections that could not be accepted.
    pub(crate) cannot_accept: RefCell<Seldom>,
    /// Whether it was said that there are as many clients as may be.
    pub(crate) full: RefCell<Seldom<()>>,
    /// What was said of other nodes that were refused, by its number.
    pub(crate) refused: RefCell<Seldom<usize>>,
    /// What was said of links by which others call.
    pub(crate) said_of_links: RefCell<Seldom<&'static str>>,
    /// What was said of ports that no Service has.
    pub(crate) said_of_ports: RefCell<Seldom<Reason>>,
    /// What was said of callers without an identity.
    pub(crate) no_identity: RefCell<Seldom<NoIdentity>>,
    /// When it was looked last whether a certificate has expired.
    expires_looked: Cell<Millis>,
    /// So many of the next clients are looked at before anything is begun for them.
    wary: Cell<u32>,
    draining: Cell<bool>,
    /// The time for draining is over: whoever's alarm rings gives up.
    cutting: Cell<bool>,
    shown: Arc<Mutex<Shown>>,
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

    /// The series of opaque connections from a source to a destination.
    pub(crate) fn tcp_series(&self, source: &Arc<str>, destination: &Arc<str>) -> Arc<TcpSeries> {
        let mut tcp = self.tcp.borrow_mut();
        let series = tcp
            .entry((Arc::clone(source), Arc::clone(destination)))
            .or_insert_with(|| {
                self.registry.tcp_series(TcpLabels {
                    source: Arc::clone(source),
                    destination_service: Arc::clone(destination),
                })
            });
        Arc::clone(series)
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
            // Dialled by anybody else it could reach what the pod cannot.
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

    /// Whom to ask for sockets within pods.
    pub(crate) fn sockets(&self) -> Option<Sockets> {
        self.sockets.borrow().clone()
    }

    /// Milliseconds from now, or never for a wait without limit.
    pub(crate) fn after(&self, wait: Duration) -> Millis {
        if wait.is_zero() {
            return Millis::MAX;
        }
        // The millisecond that has begun is not counted.
        self.clock
            .now_ms()
            .saturating_add(millis(wait))
            .saturating_add(1)
    }

    /// When a wait that began at `since`, here or on another Worker, has lasted for `wait`; never for a
    /// wait without limit.
    pub(crate) fn due(&self, since: Instant, wait: Duration) -> Millis {
        // Mostly it begins now.
        if wait.is_zero() || since == self.clock.now() {
            return self.after(wait);
        }
        let waited = self.clock.now().saturating_duration_since(since);
        let left = wait.saturating_sub(waited);
        match left.is_zero() {
            true => self.clock.now_ms(),
            // What both numbers are short of whole milliseconds would end the wait before its time, since it is
            // looked at whenever its connection moves.
            false => self
                .clock
                .now_ms()
                .saturating_add(millis(left))
                .saturating_add(2),
        }
    }

    /// What the task that runs is to do instead of waiting for its client: nothing, mostly.
    pub(crate) fn turn(&self) -> Option<Turn> {
        if !self.moves.are_wanted() && !self.draining.get() {
            return None;
        }
        if self.draining.get() {
            return Some(Turn::End);
        }
        let order = self.moves.take(self.gate.current()?)?;
        Some(Turn::Leave(order))
    }

    /// Whether connections are to be closed as soon as they are between two requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
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

    /// Whether this Worker is to end, as soon as what it carries allows.
    pub(crate) fn is_leaving(&self) -> bool {
        self.draining.get() || self.moves.is_retiring()
    }

    /// The same, by handing over what it carries to other Workers.
    pub(crate) fn is_retiring(&self) -> bool {
        self.moves.is_retiring()
    }

    /// Whether requests are given up because the time for draining is over.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.get()
    }

    /// Why a task gives up whose alarm has rung: what ran out, unless something else rang it.
    pub(crate) fn rang_for(&self, alarm: &Alarm, ran_out: Reason) -> Reason {
        if let Some(revoked) = alarm.take_revoked() {
            revoked
        } else if self.is_cutting() {
            Reason::Draining
        } else {
            ran_out
        }
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
        let nobodys = addresses.find(direct.endpoint) == Found::Outside;
        direct.caller.is_none() && addresses.has(workload) && nobodys
    };
    addresses.is_of(direct.endpoint.ip(), workload) || has_arrived()
}
