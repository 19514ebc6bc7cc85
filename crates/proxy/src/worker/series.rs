//! The metric series that a Worker writes, found by numbers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_telemetry::{HttpSeries, TcpSeries};

use crate::route::RuleIndex;
use crate::traffic::TrafficKey;

/// Which series a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestKey {
    pub(crate) traffic: TrafficKey,
    /// The port that was called; `u32::MAX` when there is none.
    pub(crate) port: u32,
    /// The rule that matched.
    pub(crate) rule: Option<RuleIndex>,
}

/// Which series a flow belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) traffic: TrafficKey,
    /// What was called, as metrics name it.
    pub(crate) destination: Arc<str>,
}

pub(crate) type RequestSeries = SeriesTable<RequestKey, HttpSeries>;
pub(crate) type FlowSeries = SeriesTable<FlowKey, TcpSeries>;

/// The series that were written a while ago.
#[derive(Debug)]
pub(crate) struct SeriesTable<K, S>(RefCell<HashMap<K, HeldSeries<S>, RandomState>>);

#[derive(Debug)]
struct HeldSeries<S> {
    series: Arc<S>,
    /// Whether it was asked for since the last look.
    used: Cell<bool>,
}

impl<K, S> Default for SeriesTable<K, S> {
    fn default() -> Self {
        SeriesTable(RefCell::default())
    }
}

impl<K: Eq + Hash, S> SeriesTable<K, S> {
    /// Does something with the series of a key, which is taken from the registry by `ask` when the key is met for the
    /// first time.
    pub(crate) fn with<T>(
        &self,
        key: K,
        ask: impl FnOnce() -> Arc<S>,
        use_it: impl FnOnce(&Arc<S>) -> T,
    ) -> T {
        let mut table = self.0.borrow_mut();
        let held = table.entry(key).or_insert_with(|| HeldSeries {
            series: ask(),
            used: Cell::new(true),
        });
        held.used.set(true);
        use_it(&held.series)
    }

    /// Lets go of what was not asked for since this was said last.
    pub(crate) fn forget_unused(&self) {
        let mut table = self.0.borrow_mut();
        table.retain(|_, held| held.used.replace(false));
        if table.capacity() > 4 * table.len().max(16) {
            table.shrink_to_fit();
        }
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// What is held goes on in another table, and this one is empty.
    pub(crate) fn take(&self) -> Self {
        SeriesTable(RefCell::new(self.0.take()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
