//! The series of one label set, and how long they are kept without a writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// The series of one label set: one for each Worker that writes it, and those that have no writer at the moment.
#[derive(Debug)]
pub(super) struct Kept<S> {
    series: Vec<Arc<S>>,
    /// The first check at which no series had a writer, if that is still so.
    unused_since: Option<Instant>,
}

impl<S> Default for Kept<S> {
    fn default() -> Self {
        Kept {
            series: Vec::new(),
            unused_since: None,
        }
    }
}

impl<S: Default> Kept<S> {
    /// Returns a series without a writer, a new one if need be.
    pub(super) fn free_one(&mut self) -> Arc<S> {
        self.unused_since = None;
        // Exclusive access (`Arc::get_mut`) proves that the last writer is gone, and orders its writes before those
        // of the next one. So the series can be handed out again.
        let free = self.series.iter_mut().position(has_no_writer);
        if let Some(free) = free {
            return Arc::clone(&self.series[free]);
        }
        let series = Arc::new(S::default());
        self.series.push(Arc::clone(&series));
        series
    }
}

impl<S> Kept<S> {
    /// Whether at least one series has a writer.
    pub(super) fn is_used(&mut self) -> bool {
        !self.series.iter_mut().all(has_no_writer)
    }

    /// Whether to keep the label set at `now`: it has a writer, or was found without one less than `unused` ago.
    pub(super) fn stays(&mut self, now: Instant, unused: Duration) -> bool {
        if self.is_used() {
            self.unused_since = None;
            return true;
        }
        let since = *self.unused_since.get_or_insert(now);
        now.saturating_duration_since(since) < unused
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.series.iter().map(Arc::as_ref)
    }
}

fn has_no_writer<S>(one: &mut Arc<S>) -> bool {
    Arc::get_mut(one).is_some()
}
