//! A listener as connections see it: what it means, and where they get their permits. It goes along with a connection that
//! moves to another thread.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use heddle_intercept::PodId;
use heddle_model::Namespace;

use crate::entry::{Entry, Inbound};
use crate::permits::{Permit, PermitRefusal, Permits, Share, ShareOwner, SharePermit, Sources};

/// The source of what is not identified, in metrics and logs.
const UNIDENTIFIED: &str = "unidentified";

/// By which sources are told apart in numbers; keyed, since other nodes name some of them.
static SOURCES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Where a listener's connections get their permits.
#[derive(Debug)]
enum Shares {
    /// All of them from one source.
    One(Arc<Share>),
    /// Each from its client's address.
    Each(Arc<Sources>),
}

/// To whose share counts what comes in there. Of what comes from other nodes that is known later.
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

/// What a listener means, for every thread: it goes along with a connection that moves.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) entry: Entry,
    /// On whose account its work is: the workload that calls from here, or the service account that another node has
    /// proven.
    pub(crate) owner: Arc<str>,
    /// The source in metrics and logs: the workload that calls, as its node names it.
    pub(crate) source: Arc<str>,
    /// Owner and source in a number.
    pub(crate) source_id: u64,
    /// The identity that another node has proven, as it is written.
    pub(crate) proven: Option<Arc<str>>,
    /// The listener's own port.
    pub(crate) port: u16,
    /// The pod that the listener is in: one that is released is served to its end there, whatever pod its
    /// workload has by then.
    pub(crate) pod: Option<PodId>,
    /// Where what comes in by a listener gets its permit.
    shares: Option<Shares>,
    /// What a connection from another node counts to, for as long as it is there.
    _share_permit: Option<SharePermit>,
}

impl Door {
    /// That of a listener.
    pub(crate) fn new(entry: Entry, port: u16, pod: Option<PodId>, permits: &Permits) -> Arc<Self> {
        let shares = shares(&entry, permits);
        Door::with(entry, port, pod, (Some(shares), None))
    }

    /// That of one connection from another node, or of a stream, which has a permit instead of a permit of its share.
    pub(crate) fn inbound_of(inbound: Inbound, share_permit: Option<SharePermit>) -> Arc<Self> {
        Door::with(Entry::Inbound(inbound), 0, None, (None, share_permit))
    }

    fn with(
        entry: Entry,
        port: u16,
        pod: Option<PodId>,
        (shares, share_permit): (Option<Shares>, Option<SharePermit>),
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
            _share_permit: share_permit,
        })
    }

    /// A permit for what a client opens by this listener.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn permit(&self, client: SocketAddr) -> Result<Permit, PermitRefusal> {
        match &self.shares {
            Some(Shares::One(share)) => share.take(),
            Some(Shares::Each(sources)) => sources.take(client.ip()),
            // Only listeners are accepted from.
            None => Err(PermitRefusal::All),
        }
    }

    /// Says that a client was refused since it has its share, unless that was said a moment ago.
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

    /// A door of one connection's own, to where it was going.
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
            _share_permit: None,
        })
    }

    /// What another node has chosen, if the connection comes from one.
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
