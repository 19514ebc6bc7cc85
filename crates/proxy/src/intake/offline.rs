//! The Workers for offline callers, as other Workers see them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Intake;
use crate::listener::BATCH;

/// The intakes of the Workers for offline callers, and a way to ask for such a Worker. Used when another node connects or
/// begins a link, never for a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfflineWorkers {
    intakes: Arc<Mutex<Vec<Intake>>>,
    wanted: Arc<Notify>,
}

/// Where a connection of an offline caller goes.
#[derive(Debug)]
pub(crate) enum OfflineRoom {
    /// There is no such Worker.
    NoWorker,
    /// No such Worker has room: they get no processor, or are flooded.
    Full,
    In(Intake),
}

impl OfflineWorkers {
    /// The Workers from now on.
    pub(crate) fn set(&self, intakes: Vec<Intake>) {
        *self.lock() = intakes;
    }

    /// The one of them that has the most room for a moved connection.
    pub(crate) fn choose(&self) -> OfflineRoom {
        let intakes = self.lock();
        let at_work = intakes.iter().filter(|intake| intake.is_open());
        let rooms = at_work.map(|intake| (intake.room(), intake));
        match rooms.max_by_key(|(room, _)| *room) {
            None => OfflineRoom::NoWorker,
            // As many places are kept for new connections.
            Some((room, most)) if room > BATCH => OfflineRoom::In(most.clone()),
            Some(_) => OfflineRoom::Full,
        }
    }

    /// Asks the Manager for a Worker.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Resolves when a Worker is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Ignores a poisoned lock: every change is a single assignment.
    fn lock(&self) -> MutexGuard<'_, Vec<Intake>> {
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_room_is_not_chosen() {
        let workers = OfflineWorkers::default();
        assert!(matches!(workers.choose(), OfflineRoom::NoWorker));
        let (full, roomy) = (Intake::new(BATCH), Intake::new(BATCH + 1));
        workers.set(vec![full.clone()]);
        // It would be handed back, and chosen again at once.
        assert!(matches!(workers.choose(), OfflineRoom::Full));
        workers.set(vec![full, roomy]);
        let OfflineRoom::In(chosen) = workers.choose() else {
            panic!("one has room");
        };
        assert_eq!(chosen.room(), BATCH + 1);
        // One that retires is none.
        let retiring = Intake::new(BATCH + 1);
        retiring.close();
        workers.set(vec![retiring]);
        assert!(matches!(workers.choose(), OfflineRoom::NoWorker));
    }
}
