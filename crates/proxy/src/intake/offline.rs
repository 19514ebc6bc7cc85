//! The Workers for offline callers, as other Workers see them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Intake;

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

    /// One of them: that with the most room.
    pub(crate) fn choose(&self) -> Option<Intake> {
        let intakes = self.lock();
        intakes.iter().max_by_key(|intake| intake.room()).cloned()
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
