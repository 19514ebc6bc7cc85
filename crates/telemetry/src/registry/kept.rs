//! The series of one label set.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// The series of one label set, one for each Worker that writes it, and those that have no writer at the moment.
#[derive(Debug)]
pub(super) struct Kept<S> {
    series: Vec<Arc<S>>,
    /// Since when none has a writer, as far as that was looked at.
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
    /// A series that no Worker writes.
    pub(super) fn free_one(&mut self) -> Arc<S> {
        self.unused_since = None;
        // Exclusive access proves that the last writer is gone (and orders its writes before ours), so
        // the series may have a new one.
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
    /// Whether a Worker writes one of them.
    pub(super) fn is_used(&mut self) -> bool {
        !self.series.iter_mut().all(has_no_writer)
    }

    /// Whether it is to be kept at `now`, when it has been unused for less than this.
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
