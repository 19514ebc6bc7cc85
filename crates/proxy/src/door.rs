//! The view that a connection has of its listener: the destination, and the source of its permit. It moves between
//! threads together with the connection.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use heddle_intercept::PodId;
use heddle_model::Namespace;

use crate::entry::{Entry, Forwarded, Inbound};
use crate::permits::{Permit, PermitRefusal, Permits, Share, ShareOwner, SharePermit, Sources};

/// The source of unidentified callers in metrics and logs.
const UNIDENTIFIED: &str = "unidentified";

/// Hashes owners and sources to `source_id`. Keyed at random, since other nodes choose some of the names.
static SOURCES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a source's name.
pub(crate) fn source_id(name: &str) -> u64 {
    SOURCES.hash_one(name)
}

/// Where a listener's connections get their permits.
#[derive(Debug)]
enum Shares {
    /// All connections share one source.
    One(Arc<Share>),
    /// Each client address has its own share.
    Each(Arc<Sources>),
}

/// The share to which connections of this listener count. For connections from other nodes, the workload's share is
/// known only after their handshake.
fn shares(entry: &Entry, permits: &Permits) -> Shares {
    match (entry, entry.caller()) {
        (_, Some(caller)) => Shares::One(permits.caller(caller)),
        (Entry::Arriving { workload }, None) => {
            Shares::Each(permits.sources(ShareOwner::Strangers(workload.clone())))
        }
        (Entry::Service { .. }, None) => Shares::Each(permits.sources(ShareOwner::Any)),
        _ => Shares::One(permits.share(ShareOwner::Any)),
    }
}

/// Immutable data of a listener or of one connection, shared by all threads; it moves together with the connection.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) entry: Entry,
    /// Owner of the account to which work is charged: the workload that calls from this node, or the service account
    /// that another node has proven.
    pub(crate) owner: Arc<str>,
    /// The source in metrics and logs: the calling workload, as named by its node.
    pub(crate) source: Arc<str>,
    /// Hash of owner and source.
    pub(crate) source_id: u64,
    /// The identity that another node has proven, as text.
    pub(crate) proven: Option<Arc<str>>,
    /// The listener's own port.
    pub(crate) port: u16,
    /// The pod of the listener. Its connections are served in that pod to the end, even if the workload has another pod
    /// by then.
    pub(crate) pod: Option<PodId>,
    /// Where the listener's connections get their permits; `None` for the door of a single connection.
    shares: Option<Shares>,
    /// Count a connection from another node to the called workload's share, and to others', while the connection exists.
    share_permits: Option<Arc<[SharePermit]>>,
}

impl Door {
    /// The door of a listener.
    pub(crate) fn new(entry: Entry, port: u16, pod: Option<PodId>, permits: &Permits) -> Arc<Self> {
        let shares = shares(&entry, permits);
        Door::with(entry, port, pod, (Some(shares), None))
    }

    /// The door of one connection from another node, or of a stream, which has its own permit instead of a
    /// [`SharePermit`].
    pub(crate) fn inbound_of(inbound: Inbound, share_permit: Option<SharePermit>) -> Arc<Self> {
        let share_permits = share_permit.map(|one| Arc::from([one]));
        Door::with(Entry::Inbound(inbound), 0, None, (None, share_permits))
    }

    /// The door of one connection to this node as a gateway.
    pub(crate) fn forwarded_of(forwarded: Forwarded, share_permits: [SharePermit; 2]) -> Arc<Self> {
        let entry = Entry::Forwarded(forwarded);
        Door::with(entry, 0, None, (None, Some(Arc::from(share_permits))))
    }

    fn with(
        entry: Entry,
        port: u16,
        pod: Option<PodId>,
        (shares, share_permits): (Option<Shares>, Option<Arc<[SharePermit]>>),
    ) -> Arc<Self> {
        let name = |name: Option<&dyn ToString>| -> Arc<str> {
            name.map_or_else(|| UNIDENTIFIED.into(), |name| name.to_string().into())
        };
        let (owner, source, proven) = match &entry {
            Entry::Mesh => {
                let mesh: Arc<str> = "mesh".into();
                (Arc::clone(&mesh), mesh, None)
            }
            Entry::Inbound(inbound) => {
                let id = inbound.caller.as_ref();
                let account = id.and_then(|id| id.service_account());
                let workload = inbound.workload.as_ref();
                (
                    name(account.map(|account| account as _)),
                    name(workload.map(|workload| workload as _)),
                    id.map(|id| id.to_string().into()),
                )
            }
            Entry::Forwarded(Forwarded { caller, .. }) => {
                let account = caller.service_account();
                (
                    name(account.map(|account| account as _)),
                    name(None),
                    Some(caller.to_string().into()),
                )
            }
            entry => {
                let caller = name(entry.caller().map(|caller| caller as _));
                (Arc::clone(&caller), caller, None)
            }
        };
        Arc::new(Door {
            source_id: SOURCES.hash_one((&*owner, &*source)),
            entry,
            owner,
            source,
            proven,
            port,
            pod,
            shares,
            share_permits,
        })
    }

    /// Takes a permit for a connection that a client opens through this listener.
    ///
    /// # Errors
    /// When no permit is available.
    pub(crate) fn permit(&self, client: SocketAddr) -> Result<Permit, PermitRefusal> {
        match &self.shares {
            Some(Shares::One(share)) => share.take(),
            Some(Shares::Each(sources)) => sources.take(client.ip()),
            // Not reached: only doors of listeners accept connections.
            None => Err(PermitRefusal::All),
        }
    }

    /// Logs that a client was refused because its share is used up, unless that was logged a moment ago.
    pub(crate) fn say_spent(&self, client: SocketAddr, spent: PermitRefusal, now: Instant) {
        match (&self.shares, spent) {
            (Some(Shares::One(share)), _) => share.say_spent(now),
            (Some(Shares::Each(sources)), PermitRefusal::Address) => {
                sources.say_address(client.ip(), self.port, now);
            }
            (Some(Shares::Each(sources)), _) => sources.say_spent(now),
            (None, _) => {}
        }
    }

    /// A door for one connection, which leads to its original destination.
    pub(crate) fn leading(&self, entry: Entry) -> Arc<Self> {
        Arc::new(Door {
            entry,
            owner: Arc::clone(&self.owner),
            source: Arc::clone(&self.source),
            source_id: self.source_id,
            proven: self.proven.clone(),
            port: self.port,
            pod: self.pod,
            shares: None,
            share_permits: self.share_permits.clone(),
        })
    }

    /// The destination of a connection from another node, or from a stock proxy.
    pub(crate) fn inbound(&self) -> Option<&Inbound> {
        match &self.entry {
            Entry::Inbound(inbound) => Some(inbound),
            _ => None,
        }
    }

    /// The caller for which this node is a gateway.
    pub(crate) fn forwarded(&self) -> Option<&Forwarded> {
        match &self.entry {
            Entry::Forwarded(forwarded) => Some(forwarded),
            _ => None,
        }
    }

    /// Whether the peer is another proxy, so that the client's own address is not known here.
    pub(crate) fn is_from_proxy(&self) -> bool {
        matches!(self.entry, Entry::Inbound(_) | Entry::Forwarded(_))
    }

    /// Whether the connection comes from another node, which has done for its caller what a node does for its clients.
    pub(crate) fn is_from_node(&self) -> bool {
        self.inbound().is_some_and(|inbound| !inbound.is_stock)
    }

    /// Whether another node or the client has already chosen the endpoint.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.entry, Entry::Inbound(_) | Entry::Direct(_))
    }

    /// The caller's namespace, by which names are looked up and consumer routes chosen.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        match &self.entry {
            Entry::Forwarded(forwarded) => {
                let account = forwarded.caller.service_account();
                account.map(|account| &account.namespace)
            }
            entry => entry.caller().map(|caller| &caller.namespace),
        }
    }
}
