//! The Workers for offline callers, as other Workers see them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Intake;
use crate::listener::BATCH;

/// The intakes of the Workers for offline callers, and a way to ask for such a Worker. Used when another node begins a
/// link, never for a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfflineWorkers {
    intakes: Arc<Mutex<Vec<Intake>>>,
    wanted: Arc<Notify>,
}

impl OfflineWorkers {
    /// The Workers from now on.
    pub(crate) fn set(&self, intakes: Vec<Intake>) {
        *self.lock() = intakes;
    }

    /// One of them that has room for a moved connection: that with the most. A Worker that gets no processor has none.
    pub(crate) fn choose(&self) -> Option<Intake> {
        let intakes = self.lock();
        let rooms = intakes.iter().map(|intake| (intake.room(), intake));
        let (room, most) = rooms.max_by_key(|(room, _)| *room)?;
        // As many places are kept for new connections.
        (room > BATCH).then(|| most.clone())
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
        assert!(workers.choose().is_none());
        let (full, roomy) = (Intake::new(BATCH), Intake::new(BATCH + 1));
        workers.set(vec![full.clone()]);
        // It would be handed back, and chosen again at once.
        assert!(workers.choose().is_none());
        workers.set(vec![full, roomy]);
        assert_eq!(
            workers.choose().map(|intake| intake.room()),
            Some(BATCH + 1)
        );
    }
}
