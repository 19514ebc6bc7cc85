//! What this node has told the control plane that it uses; the status reads it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use heddle_model::{Dependency, DependencyState, Mesh};
use heddle_proxy::Asker;

use super::costs::Costs;
use crate::status::{DiscoveryStatus, LearnedState, LearnedStatus};

/// What was named, by what it is.
#[derive(Default)]
pub(super) struct Book {
    named: BTreeMap<Dependency, Named>,
    /// By the one that asked first.
    shares: BTreeMap<Asker, Share>,
}

/// How much of a book one asker has.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) all: usize,
    /// Of these, how many are not answered yet, and how many do not exist.
    pub(super) unanswered: usize,
    pub(super) absent: usize,
}

impl Share {
    /// How many there are in this state.
    fn of(&mut self, state: Option<DependencyState>) -> Option<&mut usize> {
        match state {
            None => Some(&mut self.unanswered),
            Some(DependencyState::Absent) => Some(&mut self.absent),
            Some(DependencyState::There | DependencyState::Unreadable) => None,
        }
    }
}

impl Book {
    /// Adds what is named now, in place of an entry of that name.
    pub(super) fn insert(&mut self, dependency: Dependency, named: Named) {
        self.remove(&dependency);
        if let Some(by) = &named.by {
            let share = self.shares.entry(by.clone()).or_default();
            share.all += 1;
            if let Some(count) = share.of(named.state) {
                *count += 1;
            }
        }
        self.named.insert(dependency, named);
    }

    pub(super) fn remove(&mut self, dependency: &Dependency) {
        let Some(named) = self.named.remove(dependency) else {
            return;
        };
        let share = named.by.as_ref().and_then(|by| self.shares.get_mut(by));
        let Some(share) = share else { return };
        share.all -= 1;
        if let Some(count) = share.of(named.state) {
            *count -= 1;
        }
        if let (0, Some(by)) = (share.all, &named.by) {
            self.shares.remove(by);
        }
    }

    /// Notes an answer. Nothing happens if it is about something that is not named.
    pub(super) fn answer(&mut self, dependency: &Dependency, state: DependencyState) {
        let Some(named) = self.named.get_mut(dependency) else {
            return;
        };
        let before = named.state.replace(state);
        let share = named.by.as_ref().and_then(|by| self.shares.get_mut(by));
        let Some(share) = share else { return };
        if let Some(count) = share.of(before) {
            *count -= 1;
        }
        if let Some(count) = share.of(Some(state)) {
            *count += 1;
        }
    }

    /// Notes that something is used. False if it is not named.
    pub(super) fn note_use(&mut self, dependency: &Dependency, now: Instant) -> bool {
        let named = self.named.get_mut(dependency);
        named.map(|named| named.used = now).is_some()
    }

    pub(super) fn has(&self, dependency: &Dependency) -> bool {
        self.named.contains_key(dependency)
    }

    /// What is named, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Dependency, &Named)> {
        self.named.iter()
    }

    /// Whether an answer is outstanding.
    pub(super) fn is_any_unanswered(&self) -> bool {
        self.shares.values().any(|share| share.unanswered > 0)
    }

    /// How much of it one has asked first.
    pub(super) fn share(&self, by: &Asker) -> Share {
        self.shares.get(by).copied().unwrap_or_default()
    }
}

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
    /// The one that asked first; `None` if that was in an earlier run.
    pub(super) by: Option<Asker>,
    since: Instant,
    pub(super) used: Instant,
    /// `None` until it is answered.
    pub(super) state: Option<DependencyState>,
}

impl Named {
    pub(super) fn new(by: Option<Asker>, now: Instant) -> Self {
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
