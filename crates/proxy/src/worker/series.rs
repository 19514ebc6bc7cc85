//! The metric series that a Worker updates, by key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_telemetry::{HttpSeries, TcpSeries};

use crate::route::RuleIndex;
use crate::traffic::TrafficKey;

/// Key of a request's series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestKey {
    pub(crate) traffic: TrafficKey,
    /// Index of the called port; `u32::MAX` if there is none.
    pub(crate) port: u32,
    pub(crate) rule: Option<RuleIndex>,
}

/// Key of an opaque connection's series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) traffic: TrafficKey,
    /// Name of the called destination in metrics.
    pub(crate) destination: Arc<str>,
}

pub(crate) type RequestSeries = SeriesTable<RequestKey, HttpSeries>;
pub(crate) type FlowSeries = SeriesTable<FlowKey, TcpSeries>;

/// The series that were used recently.
#[derive(Debug)]
pub(crate) struct SeriesTable<K, S>(RefCell<HashMap<K, HeldSeries<S>, RandomState>>);

#[derive(Debug)]
struct HeldSeries<S> {
    series: Arc<S>,
    /// Whether it was used since the last `forget_unused`.
    used: Cell<bool>,
}

impl<K, S> Default for SeriesTable<K, S> {
    fn default() -> Self {
        SeriesTable(RefCell::default())
    }
}

impl<K: Eq + Hash, S> SeriesTable<K, S> {
    /// Calls `use_it` with the series of a key. If the key is new, `ask` gets the series from the registry.
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

    /// Releases series that were not used since the last call.
    pub(crate) fn forget_unused(&self) {
        let mut table = self.0.borrow_mut();
        table.retain(|_, held| held.used.replace(false));
        if table.capacity() > 4 * table.len().max(16) {
            table.shrink_to_fit();
        }
    }

    /// Releases all series.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Moves all series to a new table; this one is empty afterwards.
    pub(crate) fn take(&self) -> Self {
        SeriesTable(RefCell::new(self.0.take()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
