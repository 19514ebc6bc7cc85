//! Limits the number of client connections, whichever thread accepts them and wherever they are: with a Worker, on the
//! way between two Workers, or waiting for one. Also limits how many of them one source may hold, so that no source can
//! stop a node by the number of its connections.
//!
//! ```text
//!   bound ┬─────────────────────┐
//!         │ held, by all        │
//!         ├─────────────────────┤
//!         │ free                │ a source holds at most as many as are free here, so that the next one
//!         │                     │ finds some as well …
//!         ├─────────────────────┤
//!         │ the last eighth     │ … and these are for sources that hold only a few
//!       0 └─────────────────────┘
//! ```
//!
//! A threshold that moves with the free number needs no count of the sources (Choudhury and Hahne, "Dynamic Queue
//! Length Thresholds for Shared-Memory Packet Switches", 1998, with α = 1). Packets leave a switch by themselves, but
//! connections do not: that is why the last eighth is reserved.
//!
//! The listener determines the source: a workload. If the listener serves any client, only the client's address is
//! known, and each address is a source there ([`Sources`]).

mod sources;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_model::{ServiceAccountName, WorkloadName};
use sources::AddressPlace;

pub(crate) use sources::Sources;

/// One part in this many of the limit is reserved for sources that hold few connections.
const KEPT: usize = 8;
/// Few connections are one part in this many of the limit …
const FEW: usize = 64;
/// … and at most this many.
const MOST_FEW: usize = 32;
/// One part in this many of what a gateway's workload may hold is the most for one of its callers, unless that is less
/// than a few.
const LAZY_PART: usize = 4;
/// Minimum time between two log messages about one source that has its share, in seconds.
const SAY_EVERY_S: u64 = 10;

/// Whether a source that holds `held` of `bound` permits may take one more while `free` are free. `fixed` replaces the
/// share that moves with `free`.
pub(crate) fn may_take(bound: usize, free: usize, held: usize, fixed: Option<usize>) -> bool {
    match fixed {
        _ if free == 0 => false,
        Some(most) if held >= most => false,
        Some(_) => free > bound / KEPT || held < few(bound),
        None => held < most(bound, free, None),
    }
}

/// How many of `bound` permits a source may hold while `free` are free.
fn most(bound: usize, free: usize, fixed: Option<usize>) -> usize {
    fixed.unwrap_or_else(|| free.saturating_sub(bound / KEPT).max(few(bound)))
}

/// How many of what a gateway's workload may hold one lazy caller may hold.
fn most_of_lazy(bound: usize, free: usize, fixed: Option<usize>) -> usize {
    let most = most(bound, free, fixed);
    (most / LAZY_PART).max(few(bound).min(most.div_ceil(2)))
}

fn few(bound: usize) -> usize {
    (bound / FEW).clamp(1, MOST_FEW)
}

/// The connection limit that all threads share. It is updated when a connection opens or closes, never for a request.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    bound: usize,
    /// Fixed limit for each source, in place of the moving share.
    fixed: Option<usize>,
    /// Fixed limit for each client address.
    fixed_address: Option<usize>,
    left: AtomicUsize,
    /// The shares of callers, kept while they have listeners or connections: a caller may have one listener for each
    /// Service.
    callers: Mutex<HashMap<ShareOwner, Weak<Share>, RandomState>>,
}

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ShareOwner {
    /// Any source: only the limit of all connections applies.
    Any,
    /// Connections that the programs of a workload open.
    Caller(WorkloadName),
    /// Connections to a pod from outside of the mesh.
    Strangers(WorkloadName),
    /// Connections to a workload from other nodes.
    Nodes(WorkloadName),
    /// Connections of the lazy callers with an account to this node as their gateway: a part of what the gateway's
    /// workload has.
    Lazy(ServiceAccountName),
    /// Connections from other nodes that call nothing on this node.
    Astray,
    /// Connections of calling nodes that many streams share: links, and HTTP/2 connections. All of them together form
    /// one source, so that as many connections are left for all others.
    Links,
}

/// The connections that one source holds.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<All>,
    owner: ShareOwner,
    held: AtomicUsize,
    refusals: Refusals,
}

/// Counts refused connections, and limits how often they are logged.
#[derive(Debug)]
struct Refusals {
    /// Start of the intervals of [`SAY_EVERY_S`]; `said` is the number of the last one with a log message.
    since: Instant,
    said: AtomicU64,
    count: AtomicU64,
}

/// The permission of one connection to be open, returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    share: Arc<Share>,
    /// Its entry for the client address, at a listener that tells addresses apart.
    place: Option<AddressPlace>,
}

/// Counts a connection, which has a permit, to a second source that was not known when it got the permit. Returned on
/// drop.
#[derive(Debug)]
pub(crate) struct SharePermit {
    share: Arc<Share>,
}

/// The shares of the workloads that other nodes call on this node.
#[derive(Debug, Clone, Default)]
pub(crate) struct CalledShares {
    pub(crate) workloads: HashMap<WorkloadName, Arc<Share>, RandomState>,
    /// The share of all calls to anything else; `None` before there is a mesh.
    pub(crate) astray: Option<Arc<Share>>,
}

/// Why a permit is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// The connection limit is reached.
    All,
    /// The source has used up its share.
    Share,
    /// The client's address has used up its share of this listener's connections.
    Address,
}

impl Permits {
    /// `bound` permits. A source gets its share of them, or at most `fixed`; an address its share, or at most
    /// `fixed_address`.
    pub(crate) fn new(bound: usize, fixed: Option<usize>, fixed_address: Option<usize>) -> Self {
        Permits {
            all: Arc::new(All {
                bound,
                fixed,
                fixed_address,
                left: AtomicUsize::new(bound),
                callers: Mutex::default(),
            }),
        }
    }

    /// A new share, of a source that holds nothing yet.
    pub(crate) fn share(&self, owner: ShareOwner) -> Arc<Share> {
        self.all.share(owner)
    }

    /// The share of the connections that a workload opens, through all of its listeners.
    pub(crate) fn caller(&self, workload: &WorkloadName) -> Arc<Share> {
        self.all.caller(ShareOwner::Caller(workload.clone()))
    }

    /// Shares for the client addresses of one listener, which together form the source `together`.
    pub(crate) fn sources(&self, together: ShareOwner) -> Arc<Sources> {
        Sources::new(self.share(together), self.all.fixed_address)
    }
}

impl All {
    fn share(self: &Arc<Self>, owner: ShareOwner) -> Arc<Share> {
        Arc::new(Share {
            all: Arc::clone(self),
            owner,
            held: AtomicUsize::new(0),
            refusals: Refusals::new(),
        })
    }

    /// The one share of a caller.
    fn caller(self: &Arc<Self>, owner: ShareOwner) -> Arc<Share> {
        let callers = self.callers.lock();
        let mut callers = callers.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.get(&owner).and_then(Weak::upgrade) {
            return known;
        }
        callers.retain(|_, share| share.strong_count() > 0);
        let share = self.share(owner.clone());
        callers.insert(owner, Arc::downgrade(&share));
        share
    }
}

impl Refusals {
    fn new() -> Self {
        Refusals {
            since: Instant::now(),
            said: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Counts one more refusal. Returns how many there were, or `None` if that was logged a moment ago.
    fn one_more(&self, now: Instant) -> Option<u64> {
        let count = 1 + self.count.fetch_add(1, Ordering::Relaxed);
        let time = 1 + now.saturating_duration_since(self.since).as_secs() / SAY_EVERY_S;
        (self.said.swap(time, Ordering::Relaxed) != time).then_some(count)
    }
}

impl Share {
    /// Takes a permit.
    ///
    /// # Errors
    /// When the connection limit is reached, or the source has used up its share.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Permit, PermitRefusal> {
        let held = self.held.fetch_add(1, Ordering::Relaxed);
        let taken = self
            .all
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1).filter(|_| self.allows(left, held))
            });
        match taken {
            Ok(_) => Ok(Permit {
                share: Arc::clone(self),
                place: None,
            }),
            Err(left) => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                Err(match left {
                    0 => PermitRefusal::All,
                    _ => PermitRefusal::Share,
                })
            }
        }
    }

    /// Counts a connection that has a permit to this source as well. `None`: the source has used up its share.
    pub(crate) fn share_permit(self: &Arc<Self>) -> Option<SharePermit> {
        let held = self.held.fetch_add(1, Ordering::Relaxed);
        // The connection's own permit counts as free for it.
        let left = self.all.left.load(Ordering::Relaxed).saturating_add(1);
        if self.allows(left, held) {
            let share = Arc::clone(self);
            return Some(SharePermit { share });
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// The share of the lazy callers with that account, of what the gateway's workload has.
    pub(crate) fn of_lazy(&self, account: &ServiceAccountName) -> Arc<Share> {
        self.all.caller(ShareOwner::Lazy(account.clone()))
    }

    fn allows(&self, left: usize, held: usize) -> bool {
        let All { bound, fixed, .. } = *self.all;
        match self.owner {
            ShareOwner::Any => true,
            // Links belong to all nodes and not to one pod, so the limit for each pod does not apply.
            ShareOwner::Links => may_take(bound, left, held, None),
            ShareOwner::Lazy(_) => held < most_of_lazy(bound, left, fixed),
            _ => may_take(bound, left, held, fixed),
        }
    }

    /// The limit of this source at the moment, and how many permits of that limit it does not hold.
    fn room(&self) -> (usize, usize) {
        let All { bound, fixed, .. } = *self.all;
        let left = self.all.left.load(Ordering::Relaxed);
        if self.owner == ShareOwner::Any {
            return (bound, left);
        }
        let held = self.held.load(Ordering::Relaxed);
        let most = most(bound, left, fixed).min(held.saturating_add(left));
        (most, most.saturating_sub(held))
    }

    /// Logs that a connection was refused because the source has used up its share, unless that was logged a moment
    /// ago.
    pub(crate) fn say_spent(&self, now: Instant) {
        let Some(refused) = self.refusals.one_more(now) else {
            return;
        };
        let held = self.held.load(Ordering::Relaxed);
        let of = self.all.bound;
        let (workload, whose) = match &self.owner {
            // The refusal of a link is logged with its caller, elsewhere.
            ShareOwner::Any | ShareOwner::Links => return,
            ShareOwner::Caller(workload) => (workload, "connections that a workload opens"),
            ShareOwner::Strangers(workload) => {
                (workload, "connections to a pod from outside of the mesh")
            }
            ShareOwner::Nodes(workload) => (workload, "connections to a workload from other nodes"),
            ShareOwner::Lazy(account) => {
                tracing::warn!(
                    %account,
                    held,
                    refused,
                    of,
                    "connections of lazy callers to this node as their gateway are refused: their account has used up \
                     its share; find out what opens so many"
                );
                return;
            }
            ShareOwner::Astray => {
                tracing::warn!(
                    held,
                    refused,
                    of,
                    "connections from other nodes that call nothing here are refused: together they have \
                     used up their share of the node's; find out which node opens so many, and whether it has the \
                     newest mesh"
                );
                return;
            }
        };
        tracing::warn!(
            %workload,
            held,
            refused,
            of,
            "{whose} are refused: it has used up its share of the node's; find out what opens so many, or raise \
             proxy.bounds.connections (and ulimit -n), or set proxy.bounds.connections_per_pod"
        );
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.share.held.fetch_sub(1, Ordering::Relaxed);
        self.share.all.left.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        self.share.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
