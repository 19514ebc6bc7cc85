//! Listeners: sockets with a meaning. What a connection may be is decided by the socket that it
//! came in on, never by an address it came from.

mod socket;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use heddle_intercept::PodId;
use heddle_model::{Namespace, ServiceName, WorkloadName};
use heddle_telemetry::{Counter, Seldom};
use rustix::net::sockopt::set_socket_linger;

use crate::inbound::Inbound;
use crate::intercepted::Direct;
use crate::parcel::Parcel;
use crate::permits::{Claim, Holder, Permit, Permits, Share, Sources, Spent};
use crate::worker::{Millis, WorkKey, Worker};

pub(crate) use socket::{BATCH, Socket};

/// How long to wait when the kernel has no descriptor or memory for another connection, in
/// milliseconds.
pub(crate) const BACK_OFF_MS: Millis = 100;

/// The source of what nobody vouches for, in metrics and logs.
const UNIDENTIFIED: &str = "unidentified";

/// What a listener is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// One port of one Service, whatever host a request names.
    Service {
        /// Whose listener it is; `None` serves everybody, unidentified.
        caller: Option<WorkloadName>,
        /// The Service.
        service: ServiceName,
        /// Its port.
        port: u16,
    },
    /// A forward proxy: the request names the Service.
    ForwardProxy {
        /// Whose listener it is.
        caller: WorkloadName,
    },
    /// Connections from other nodes: each proves by mutual TLS who calls, and says whom.
    Mesh,
    /// What such a connection turned out to be: the proxy makes it of what was proven.
    Inbound(Inbound),
    /// What the programs of a pod dial, steered here: where each connection was going is asked of the kernel.
    Outbound {
        /// Whose pod it is.
        caller: WorkloadName,
    },
    /// What comes to a pod from outside of the mesh, steered here: nobody vouches for who calls.
    Arriving {
        /// Whose pod it is.
        workload: WorkloadName,
    },
    /// What a connection of these two turned out to be, when it was not going to a Service: the proxy makes
    /// it of where it was going.
    Direct(Direct),
}

impl Entry {
    /// The workload whose listener it is.
    pub fn caller(&self) -> Option<&WorkloadName> {
        match self {
            Entry::Service { caller, .. } => caller.as_ref(),
            Entry::ForwardProxy { caller } => Some(caller),
            Entry::Outbound { caller } => Some(caller),
            Entry::Direct(direct) => direct.caller.as_ref(),
            Entry::Mesh | Entry::Inbound(_) | Entry::Arriving { .. } => None,
        }
    }

    /// To whose share counts what comes in there. Of what comes from other nodes that is known later.
    fn shares(&self, permits: &Permits) -> Shares {
        match (self, self.caller()) {
            (_, Some(caller)) => Shares::One(permits.caller(caller)),
            (Entry::Arriving { workload }, None) => {
                Shares::Each(permits.sources(Holder::Strangers(workload.clone())))
            }
            (Entry::Service { .. }, None) => Shares::Each(permits.sources(Holder::Anybody)),
            _ => Shares::One(permits.share(Holder::Anybody)),
        }
    }
}

/// Where a listener's connections get their permits.
#[derive(Debug)]
enum Shares {
    /// All of them from one source.
    One(Arc<Share>),
    /// Each from its client's address.
    Each(Arc<Sources>),
}

/// What a listener means, for every thread: it goes along with a connection that moves.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) entry: Entry,
    /// The source in metrics and logs.
    pub(crate) source: Arc<str>,
    /// The listener's own port.
    pub(crate) port: u16,
    /// The pod that the listener is in: one that is released is served to its end there, whatever pod its
    /// workload has by then.
    pub(crate) pod: Option<PodId>,
    /// Where what comes in by a listener gets its permit.
    shares: Option<Shares>,
    /// What a connection from another node counts to, for as long as it is there.
    _claim: Option<Claim>,
}

impl Door {
    /// That of a listener.
    pub(crate) fn new(entry: Entry, port: u16, pod: Option<PodId>, permits: &Permits) -> Arc<Self> {
        let shares = entry.shares(permits);
        Door::with(entry, port, pod, (Some(shares), None))
    }

    /// That of one connection from another node, or of a stream, which has a permit instead of a claim.
    pub(crate) fn inbound_of(inbound: Inbound, claim: Option<Claim>) -> Arc<Self> {
        Door::with(Entry::Inbound(inbound), 0, None, (None, claim))
    }

    fn with(
        entry: Entry,
        port: u16,
        pod: Option<PodId>,
        (shares, claim): (Option<Shares>, Option<Claim>),
    ) -> Arc<Self> {
        let source = match &entry {
            Entry::Mesh => "mesh".into(),
            Entry::Inbound(inbound) => match &inbound.caller {
                Some(id) => id.service_account().map(ToString::to_string),
                None => None,
            }
            .map_or_else(|| UNIDENTIFIED.into(), Into::into),
            entry => match entry.caller() {
                Some(caller) => caller.to_string().into(),
                None => UNIDENTIFIED.into(),
            },
        };
        Arc::new(Door {
            entry,
            source,
            port,
            pod,
            shares,
            _claim: claim,
        })
    }

    /// A permit for what a client opens by this listener.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn permit(&self, client: SocketAddr) -> Result<Permit, Spent> {
        match &self.shares {
            Some(Shares::One(share)) => share.take(),
            Some(Shares::Each(sources)) => sources.take(client.ip()),
            // Only listeners are accepted from.
            None => Err(Spent::All),
        }
    }

    /// Says that a client was refused since it has its share, unless that was said a moment ago.
    fn say_spent(&self, client: SocketAddr, spent: Spent, now: Instant) {
        match (&self.shares, spent) {
            (Some(Shares::One(share)), _) => share.say_spent(now),
            (Some(Shares::Each(sources)), Spent::Address) => {
                sources.say_address(client.ip(), self.port, now);
            }
            (Some(Shares::Each(sources)), _) => sources.say_spent(now),
            (None, _) => {}
        }
    }

    /// A door of one connection's own, to where it was going.
    pub(crate) fn leading(&self, entry: Entry) -> Arc<Self> {
        Arc::new(Door {
            entry,
            source: Arc::clone(&self.source),
            port: self.port,
            pod: self.pod,
            shares: None,
            _claim: None,
        })
    }

    /// Whom another node has chosen, if the connection comes from one.
    pub(crate) fn inbound(&self) -> Option<&Inbound> {
        match &self.entry {
            Entry::Inbound(inbound) => Some(inbound),
            _ => None,
        }
    }

    /// Whether the endpoint is not ours to choose: another node has chosen it, or the client itself.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.entry, Entry::Inbound(_) | Entry::Direct(_))
    }

    /// The namespace by which names are looked up and consumer routes chosen.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.entry.caller().map(|caller| &caller.namespace)
    }
}

/// A listener from which a Worker accepts for itself.
#[derive(Debug)]
pub(crate) struct Listener {
    closed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Listener {
    /// Starts accepting.
    ///
    /// # Errors
    /// When the socket cannot be used with the runtime.
    pub(crate) fn open(
        worker: &Rc<Worker>,
        socket: Arc<TcpListener>,
        door: Arc<Door>,
    ) -> io::Result<Rc<Listener>> {
        let socket = Socket::new(socket)?;
        let listener = Rc::new(Listener {
            closed: Cell::new(false),
            task: RefCell::new(None),
        });
        worker.gate.spawn(
            WorkKey::OWN,
            accept(Rc::clone(worker), Rc::clone(&listener), socket, door),
        );
        Ok(listener)
    }

    /// Stops accepting and closes the socket.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }
}

/// Accepts until the listener is closed.
async fn accept(worker: Rc<Worker>, listener: Rc<Listener>, socket: Socket, door: Arc<Door>) {
    loop {
        let batches = poll_fn(|cx| {
            *listener.task.borrow_mut() = Some(cx.waker().clone());
            if listener.closed.get() {
                return Poll::Ready(Ok(()));
            }
            let mut abandoned = 0;
            let polled =
                socket.poll_batch(cx, &mut abandoned, |client, peer| match door.permit(peer) {
                    Ok(permit) => worker.admit(Parcel::new(&door, client, peer, permit)),
                    Err(spent) => {
                        let refusing = Refusing {
                            refused: &worker.stats.connections_refused,
                            over_share: &worker.stats.connections_over_share,
                            full: &mut worker.full.borrow_mut(),
                            most: worker.settings.bounds.connections,
                            now: worker.clock.now(),
                        };
                        refusing.turn_away(&door, (&client, peer), spent);
                    }
                });
            worker.count_abandoned(abandoned);
            polled.map(Err)
        });
        let Err(error) = batches.await else {
            return;
        };
        // All listeners fail alike, and each of them many times a second.
        let now = worker.clock.now();
        if worker.cannot_accept.borrow_mut().is_due(&error, now) {
            tracing::warn!(%error, source = %door.source, "cannot accept; trying again");
        }
        let due = worker.clock.now_ms() + BACK_OFF_MS;
        worker.alarms.alarm().wait_until(due).await;
    }
}

/// What whoever accepts counts and says of clients that it turns away.
pub(crate) struct Refusing<'a> {
    pub(crate) refused: &'a Counter,
    pub(crate) over_share: &'a Counter,
    /// Whether it was said that there are as many clients as may be.
    pub(crate) full: &'a mut Seldom<()>,
    /// How many that is.
    pub(crate) most: usize,
    pub(crate) now: Instant,
}

impl Refusing<'_> {
    /// Turns a client away for which there is no permit: one that has its share by a reset, so that it knows at
    /// once and nothing of it stays here.
    pub(crate) fn turn_away(
        self,
        door: &Door,
        (client, peer): (&TcpStream, SocketAddr),
        spent: Spent,
    ) {
        self.refused.inc();
        match spent {
            Spent::Share | Spent::Address => {
                self.over_share.inc();
                // What cannot be reset is closed.
                let _closed = set_socket_linger(client, Some(Duration::ZERO));
                door.say_spent(peer, spent, self.now);
            }
            Spent::All if self.full.may_name((), self.now) => tracing::warn!(
                most = self.most,
                "clients are turned away: there are as many connections as may be; raise \
                 proxy.bounds.connections, or the limit of open files (ulimit -n) if that is what bounds \
                 them"
            ),
            Spent::All => {}
        }
    }
}
