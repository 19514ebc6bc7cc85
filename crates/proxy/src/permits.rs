//! How many client connections there may be, whoever accepts them and wherever they are: with a Worker,
//! on the way from one to another, or waiting for one. And how many of them one source may hold, so that
//! nobody stops a node by the sheer number of its connections.
//!
//! ```text
//!   bound ┬─────────────────────┐
//!         │ held, by everybody  │
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

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use foldhash::fast::RandomState;
use heddle_model::WorkloadName;

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
    let few = (bound / FEW).clamp(1, MOST_FEW);
    let above = free.saturating_sub(bound / KEPT);
    match fixed {
        _ if free == 0 => false,
        Some(most) if held >= most => false,
        Some(_) => above > 0 || held < few,
        None => held < above.max(few),
    }
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
    left: AtomicUsize,
}

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody's in particular: only the bound of all holds.
    Anybody,
    /// What the programs of a pod dial.
    Caller(WorkloadName),
    /// What comes to a pod from outside of the mesh.
    Strangers(WorkloadName),
    /// What comes to a workload from other nodes.
    Nodes(WorkloadName),
    /// What comes from other nodes and calls nothing that is here.
    Astray,
    /// What other nodes call by and many streams share: links, and connections of HTTP/2. All of them together, so
    /// that they leave as many connections to everybody else.
    Links,
}

/// What one source holds.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<All>,
    holder: Holder,
    held: AtomicUsize,
    /// Since when it is counted how often nothing was said.
    since: Instant,
    said: AtomicU64,
    refused: AtomicU64,
}

/// The right of one connection to be open, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    share: Arc<Share>,
}

/// The same of one that has a permit, towards a source that was not known when it got that.
#[derive(Debug)]
pub(crate) struct Claim {
    share: Arc<Share>,
}

/// The shares of what other nodes call here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Called {
    pub(crate) workloads: HashMap<WorkloadName, Arc<Share>, RandomState>,
    /// That of everything else together; `None` before there is a mesh.
    pub(crate) astray: Option<Arc<Share>>,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// All are taken.
    All,
    /// The source has its share.
    Share,
}

impl Permits {
    /// As many as `bound`, of which a source holds its share, or at most `fixed`.
    pub(crate) fn new(bound: usize, fixed: Option<usize>) -> Self {
        Permits {
            all: Arc::new(All {
                bound,
                fixed,
                left: AtomicUsize::new(bound),
            }),
        }
    }

    /// The share of a source that holds nothing yet.
    pub(crate) fn share(&self, holder: Holder) -> Arc<Share> {
        Arc::new(Share {
            all: Arc::clone(&self.all),
            holder,
            held: AtomicUsize::new(0),
            since: Instant::now(),
            said: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }
}

impl Share {
    /// A permit.
    ///
    /// # Errors
    /// When all are taken, or the source has its share.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Permit, Spent> {
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
            }),
            Err(left) => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                Err(match left {
                    0 => Spent::All,
                    _ => Spent::Share,
                })
            }
        }
    }

    /// Counts a connection that has a permit to this source as well. `None`: it has its share.
    pub(crate) fn claim(self: &Arc<Self>) -> Option<Claim> {
        let held = self.held.fetch_add(1, Ordering::Relaxed);
        // What the connection has already is free to it.
        let left = self.all.left.load(Ordering::Relaxed).saturating_add(1);
        if self.allows(left, held) {
            let share = Arc::clone(self);
            return Some(Claim { share });
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn allows(&self, left: usize, held: usize) -> bool {
        let All { bound, fixed, .. } = *self.all;
        match self.holder {
            Holder::Anybody => true,
            // They are those of all nodes, not of one pod.
            Holder::Links => may_take(bound, left, held, None),
            _ => may_take(bound, left, held, fixed),
        }
    }

    /// Says that a connection was refused since the source has its share, unless that was said a moment ago.
    pub(crate) fn say_spent(&self, now: Instant) {
        let refused = 1 + self.refused.fetch_add(1, Ordering::Relaxed);
        let time = 1 + now.saturating_duration_since(self.since).as_secs() / SAY_EVERY_S;
        if self.said.swap(time, Ordering::Relaxed) == time {
            return;
        }
        let held = self.held.load(Ordering::Relaxed);
        let of = self.all.bound;
        let (workload, whose) = match &self.holder {
            // Of links it is said whose is refused.
            Holder::Anybody | Holder::Links => return,
            Holder::Caller(workload) => (workload, "connections that a pod opens"),
            Holder::Strangers(workload) => {
                (workload, "connections to a pod from outside of the mesh")
            }
            Holder::Nodes(workload) => (workload, "connections to a workload from other nodes"),
            Holder::Astray => {
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

impl Drop for Claim {
    fn drop(&mut self) {
        self.share.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
