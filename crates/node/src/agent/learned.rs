//! What this node has told the control plane that it uses; the status reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use heddle_model::{Dependency, DependencyState, WorkloadName};

use crate::status::{LearnedState, LearnedStatus};

/// What was named, by what it is.
pub(super) type Book = BTreeMap<Dependency, Named>;

/// What a node has learned. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Learned(Arc<Mutex<Book>>);

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

impl Learned {
    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        // Each change is complete in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is learned, by name.
    pub(crate) fn status(&self) -> Vec<(Dependency, LearnedStatus)> {
        let now = Instant::now();
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        let book = self.lock();
        let each = book.iter().map(|(dependency, named)| {
            let status = LearnedStatus {
                name: dependency.to_string(),
                state: match named.state {
                    None => LearnedState::Asked,
                    Some(DependencyState::There) => LearnedState::There,
                    Some(DependencyState::Absent) => LearnedState::Absent,
                    Some(DependencyState::Refused) => LearnedState::Refused,
                },
                by: named.by.as_ref().map(ToString::to_string),
                for_s: seconds(named.since),
                unused_s: seconds(named.used),
                services: 0,
                endpoints: 0,
            };
            (dependency.clone(), status)
        });
        each.collect()
    }
}
