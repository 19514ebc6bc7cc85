//! What this node has told the control plane that it uses; the status reads it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use heddle_model::{Dependency, DependencyState, Mesh, WorkloadName};

use super::costs::Costs;
use crate::status::{DiscoveryStatus, LearnedState, LearnedStatus};

/// What was named, by what it is.
pub(super) type Book = BTreeMap<Dependency, Named>;

/// What a node has learned. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Learned(Arc<Shared>);

#[derive(Default)]
struct Shared {
    book: Mutex<Book>,
    asked: AtomicU64,
    forgotten: AtomicU64,
}

/// Something that the control plane was told the node uses.
pub(super) struct Named {
    /// The workload that asked first; `None` if that was in an earlier run.
    pub(super) by: Option<WorkloadName>,
    since: Instant,
    pub(super) used: Instant,
    /// `None` until it is answered.
    pub(super) state: Option<DependencyState>,
}

impl Named {
    pub(super) fn new(by: Option<WorkloadName>, now: Instant) -> Self {
        Named {
            by,
            since: now,
            used: now,
            state: None,
        }
    }
}

impl Named {
    /// When it was named.
    pub(super) fn since(&self) -> Instant {
        self.since
    }
}

impl Learned {
    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        // Each change is complete in itself.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something more was named to the control plane.
    pub(super) fn count_asked(&self) {
        self.0.asked.fetch_add(1, Relaxed);
    }

    /// Something was forgotten.
    pub(super) fn count_forgotten(&self) {
        self.0.forgotten.fetch_add(1, Relaxed);
    }

    /// Everything that is learned, by name, with what it costs of the mesh that the node has.
    pub(crate) fn status(&self, mesh: &Mesh) -> DiscoveryStatus {
        let costs = Costs::new(mesh);
        let now = Instant::now();
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        let book = self.lock();
        let learned = book.iter().map(|(dependency, named)| {
            let (services, endpoints) = costs.of(dependency);
            LearnedStatus {
                name: dependency.to_string(),
                state: match named.state {
                    None => LearnedState::Asked,
                    Some(DependencyState::There) => LearnedState::There,
                    Some(DependencyState::Absent) => LearnedState::Absent,
                    Some(DependencyState::Unreadable) => LearnedState::Unreadable,
                },
                by: named.by.as_ref().map(ToString::to_string),
                for_s: seconds(named.since),
                unused_s: seconds(named.used),
                services,
                endpoints,
            }
        });
        DiscoveryStatus {
            learned: learned.collect(),
            asked: self.0.asked.load(Relaxed),
            forgotten: self.0.forgotten.load(Relaxed),
        }
    }
}
