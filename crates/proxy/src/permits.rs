//! How many client connections there may be, whichever thread accepts them and wherever they are: with a
//! Worker, on the way from one to another, or waiting for one. And how many of them one source may hold, so
//! that no source stops a node by the sheer number of its connections.
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
//! A threshold that moves with what is free needs no count of the sources (Choudhury and Hahne, "Dynamic
//! Queue Length Thresholds for Shared-Memory Packet Switches", 1998, with α = 1). Packets leave a switch by
//! themselves, connections do not: that is what the last eighth is for.
//!
//! A source is what the listener says: a workload. Where the listener serves any client, all that is known of a
//! client is its address, and each address is a source there ([`Sources`]).

mod sources;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_model::WorkloadName;
use sources::AddressPlace;

pub(crate) use sources::Sources;

/// One part in so many of a bound is kept for sources that hold few.
const KEPT: usize = 8;
/// Few is one part in so many of a bound …
const FEW: usize = 64;
/// … and so many at most.
const MOST_FEW: usize = 32;
/// How long nothing more is said of a source that has its share, in seconds.
const SAY_EVERY_S: u64 = 10;

/// Whether a source that holds so many of a bound may take one more while so many are free. `fixed` takes the
/// place of what moves with that.
pub(crate) fn may_take(bound: usize, free: usize, held: usize, fixed: Option<usize>) -> bool {
    match fixed {
        _ if free == 0 => false,
        Some(most) if held >= most => false,
        Some(_) => free > bound / KEPT || held < few(bound),
        None => held < most(bound, free, None),
    }
}

/// What a source may hold of a bound while so many are free.
fn most(bound: usize, free: usize, fixed: Option<usize>) -> usize {
    fixed.unwrap_or_else(|| free.saturating_sub(bound / KEPT).max(few(bound)))
}

fn few(bound: usize) -> usize {
    (bound / FEW).clamp(1, MOST_FEW)
}

/// What is left of a bound that all threads share. It is touched when a connection comes or goes, never
/// for a request.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    bound: usize,
    /// What a source may hold, if that does not move.
    fixed: Option<usize>,
    /// The same of an address.
    fixed_address: Option<usize>,
    left: AtomicUsize,
    /// The shares of callers, as long as there are listeners or connections of theirs: a caller may have a listener
    /// for each Service.
    callers: Mutex<HashMap<WorkloadName, Weak<Share>, RandomState>>,
}

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShareOwner {
    /// Any source: only the bound of all holds.
    Any,
    /// What the programs of a workload dial.
    Caller(WorkloadName),
    /// What comes to a pod from outside of the mesh.
    Strangers(WorkloadName),
    /// What comes to a workload from other nodes.
    Nodes(WorkloadName),
    /// What comes from other nodes and calls nothing that is here.
    Astray,
    /// What other nodes call by and many streams share: links, and connections of HTTP/2. All of them together, so
    /// that they leave as many connections to all others.
    Links,
}

/// What one source holds.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<All>,
    owner: ShareOwner,
    held: AtomicUsize,
    refusals: Refusals,
}

/// What is said of connections that were refused.
#[derive(Debug)]
struct Refusals {
    /// Since when it is counted how often nothing was said.
    since: Instant,
    said: AtomicU64,
    count: AtomicU64,
}

/// The right of one connection to be open, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    share: Arc<Share>,
    /// Its place among those of its address, where addresses are told apart.
    place: Option<AddressPlace>,
}

/// The same of one that has a permit, towards a source that was not known when it got that.
#[derive(Debug)]
pub(crate) struct SharePermit {
    share: Arc<Share>,
}

/// The shares of what other nodes call here.
#[derive(Debug, Clone, Default)]
pub(crate) struct CalledShares {
    pub(crate) workloads: HashMap<WorkloadName, Arc<Share>, RandomState>,
    /// That of everything else together; `None` before there is a mesh.
    pub(crate) astray: Option<Arc<Share>>,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// All are taken.
    All,
    /// The source has its share.
    Share,
    /// The client's address has its share of what comes in there.
    Address,
}

impl Permits {
    /// As many as `bound`, of which a source holds its share, or at most `fixed`; an address its share, or at most
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

    /// The share of a source that holds nothing yet.
    pub(crate) fn share(&self, owner: ShareOwner) -> Arc<Share> {
        Arc::new(Share {
            all: Arc::clone(&self.all),
            owner,
            held: AtomicUsize::new(0),
            refusals: Refusals::new(),
        })
    }

    /// The share of what a workload dials, by whichever listener.
    pub(crate) fn caller(&self, workload: &WorkloadName) -> Arc<Share> {
        let callers = self.all.callers.lock();
        let mut callers = callers.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.get(workload).and_then(Weak::upgrade) {
            return known;
        }
        callers.retain(|_, share| share.strong_count() > 0);
        let share = self.share(ShareOwner::Caller(workload.clone()));
        callers.insert(workload.clone(), Arc::downgrade(&share));
        share
    }

    /// Those of addresses that hold nothing yet, which together are this source.
    pub(crate) fn sources(&self, together: ShareOwner) -> Arc<Sources> {
        Sources::new(self.share(together), self.all.fixed_address)
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

    /// Counts one more. Returns how many there were, unless something was said a moment ago.
    fn one_more(&self, now: Instant) -> Option<u64> {
        let count = 1 + self.count.fetch_add(1, Ordering::Relaxed);
        let time = 1 + now.saturating_duration_since(self.since).as_secs() / SAY_EVERY_S;
        (self.said.swap(time, Ordering::Relaxed) != time).then_some(count)
    }
}

impl Share {
    /// A permit.
    ///
    /// # Errors
    /// When all are taken, or the source has its share.
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

    /// Counts a connection that has a permit to this source as well. `None`: it has its share.
    pub(crate) fn share_permit(self: &Arc<Self>) -> Option<SharePermit> {
        let held = self.held.fetch_add(1, Ordering::Relaxed);
        // What the connection has already is free to it.
        let left = self.all.left.load(Ordering::Relaxed).saturating_add(1);
        if self.allows(left, held) {
            let share = Arc::clone(self);
            return Some(SharePermit { share });
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn allows(&self, left: usize, held: usize) -> bool {
        let All { bound, fixed, .. } = *self.all;
        match self.owner {
            ShareOwner::Any => true,
            // They are those of all nodes, not of one pod.
            ShareOwner::Links => may_take(bound, left, held, None),
            _ => may_take(bound, left, held, fixed),
        }
    }

    /// How many it may hold by now, and how many of these it does not.
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

    /// Says that a connection was refused since the source has its share, unless that was said a moment ago.
    pub(crate) fn say_spent(&self, now: Instant) {
        let Some(refused) = self.refusals.one_more(now) else {
            return;
        };
        let held = self.held.load(Ordering::Relaxed);
        let of = self.all.bound;
        let (workload, whose) = match &self.owner {
            // Of links it is said whose is refused.
            ShareOwner::Any | ShareOwner::Links => return,
            ShareOwner::Caller(workload) => (workload, "connections that a workload opens"),
            ShareOwner::Strangers(workload) => {
                (workload, "connections to a pod from outside of the mesh")
            }
            ShareOwner::Nodes(workload) => (workload, "connections to a workload from other nodes"),
            ShareOwner::Astray => {
                tracing::warn!(
                    held,
                    refused,
                    of,
                    "connections from other nodes that call nothing here are refused: together they hold a \
                     share of the node's; look which node opens so many, and whether it knows the mesh of today"
                );
                return;
            }
        };
        tracing::warn!(
            %workload,
            held,
            refused,
            of,
            "{whose} are refused: it holds its share of the node's; look what opens so many, or raise \
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
