//! The metric series that a Worker updates, by key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_telemetry::{Detail, HttpSeries, TcpSeries};

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

/// A key of which parts can be left out.
pub(crate) trait SeriesKey: Eq + Hash {
    /// The key with this much detail.
    fn with(self, detail: Detail) -> Self;
}

impl SeriesKey for RequestKey {
    fn with(self, detail: Detail) -> Self {
        match detail {
            Detail::Full => self,
            Detail::Service => RequestKey {
                traffic: self.traffic.without_ends(),
                rule: None,
                ..self
            },
            Detail::Least => RequestKey {
                traffic: self.traffic.without_ends(),
                port: 0,
                rule: None,
            },
        }
    }
}

impl SeriesKey for FlowKey {
    fn with(self, detail: Detail) -> Self {
        match detail {
            Detail::Full => self,
            Detail::Service => FlowKey {
                traffic: self.traffic.without_ends(),
                ..self
            },
            Detail::Least => FlowKey {
                traffic: self.traffic.without_ends(),
                destination: "".into(),
            },
        }
    }
}

pub(crate) type RequestSeries = SeriesTable<RequestKey, HttpSeries>;
pub(crate) type FlowSeries = SeriesTable<FlowKey, TcpSeries>;

/// The series that were used recently. Callers of other nodes choose the names that they are counted by, so a table that
/// is full continues with keys of less detail.
#[derive(Debug)]
pub(crate) struct SeriesTable<K, S>(RefCell<Tables<K, S>>);

#[derive(Debug)]
struct Tables<K, S> {
    full: Table<K, S>,
    by_service: Table<K, S>,
    least: Table<K, S>,
}

type Table<K, S> = HashMap<K, HeldSeries<S>, RandomState>;

#[derive(Debug)]
struct HeldSeries<S> {
    series: Arc<S>,
    /// Whether it was used since the last `forget_unused`.
    used: Cell<bool>,
}

impl<K, S> Default for Tables<K, S> {
    fn default() -> Self {
        Tables {
            full: Table::default(),
            by_service: Table::default(),
            least: Table::default(),
        }
    }
}

impl<K, S> Default for SeriesTable<K, S> {
    fn default() -> Self {
        SeriesTable(RefCell::default())
    }
}

impl<K: SeriesKey, S> Tables<K, S> {
    /// The table for a key, and the detail that it has there. At most `limit` keys are kept in full, and a tenth as many
    /// by Service.
    fn place(&mut self, key: K, limit: usize) -> (&mut Table<K, S>, K, Detail) {
        if self.full.len() < limit {
            return (&mut self.full, key, Detail::Full);
        }
        let key = key.with(Detail::Service);
        if self.by_service.len() < limit / 10 || self.by_service.contains_key(&key) {
            return (&mut self.by_service, key, Detail::Service);
        }
        (&mut self.least, key.with(Detail::Least), Detail::Least)
    }

    fn each(&mut self) -> [&mut Table<K, S>; 3] {
        [&mut self.full, &mut self.by_service, &mut self.least]
    }
}

impl<K: SeriesKey, S> SeriesTable<K, S> {
    /// Calls `use_it` with the series of a key. If the key is new, `ask` gets the series from the registry, with the
    /// detail that a table of at most `limit` keys has room for.
    pub(crate) fn with<T>(
        &self,
        key: K,
        limit: usize,
        ask: impl FnOnce(Detail) -> Arc<S>,
        use_it: impl FnOnce(&Arc<S>) -> T,
    ) -> T {
        if let Some(held) = self.0.borrow().full.get(&key) {
            held.used.set(true);
            return use_it(&held.series);
        }
        use_it(&self.held(key, limit, ask))
    }

    /// The series of a key that is not known in full.
    #[cold]
    fn held(&self, key: K, limit: usize, ask: impl FnOnce(Detail) -> Arc<S>) -> Arc<S> {
        let mut tables = self.0.borrow_mut();
        let (table, key, detail) = tables.place(key, limit);
        let held = table.entry(key).or_insert_with(|| HeldSeries {
            series: ask(detail),
            used: Cell::new(true),
        });
        held.used.set(true);
        Arc::clone(&held.series)
    }

    /// Releases series that were not used since the last call.
    pub(crate) fn forget_unused(&self) {
        for table in self.0.borrow_mut().each() {
            table.retain(|_, held| held.used.replace(false));
            if table.capacity() > 4 * table.len().max(16) {
                table.shrink_to_fit();
            }
        }
    }

    /// Releases all series.
    pub(crate) fn clear(&self) {
        self.0.take();
    }

    /// Moves all series to a new table; this one is empty afterwards.
    pub(crate) fn take(&self) -> Self {
        SeriesTable(RefCell::new(self.0.take()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        let mut tables = self.0.borrow_mut();
        tables.each().iter().all(|table| table.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SeriesKey for (u32, u32) {
        fn with(self, detail: Detail) -> Self {
            match detail {
                Detail::Full => self,
                Detail::Service => (0, self.1),
                Detail::Least => (0, 0),
            }
        }
    }

    #[test]
    fn a_table_that_is_full_continues_with_less_detail_and_few_series() {
        const LIMIT: usize = 20;
        let table = SeriesTable::<(u32, u32), Cell<u32>>::default();
        let asked = RefCell::new(Vec::new());
        let count = |key| {
            let ask = |detail| {
                asked.borrow_mut().push(detail);
                Arc::default()
            };
            table.with(key, LIMIT, ask, |series| series.set(series.get() + 1));
        };
        // Each caller once, of three Services.
        (0..1_000).for_each(|caller| count((caller, caller % 3)));
        let asked = asked.take();
        let of = |detail| asked.iter().filter(|other| **other == detail).count();
        assert_eq!(of(Detail::Full), LIMIT);
        assert_eq!(of(Detail::Service), LIMIT / 10);
        assert_eq!(of(Detail::Least), 1);
        // No request is lost, and what is known keeps its own series.
        count((7, 1));
        let tables = table.0.borrow();
        let sum = |table: &Table<(u32, u32), Cell<u32>>| -> u32 {
            table.values().map(|held| held.series.get()).sum()
        };
        assert_eq!(tables.full[&(7, 1)].series.get(), 2);
        let all = [&tables.full, &tables.by_service, &tables.least];
        assert_eq!(all.map(sum).iter().sum::<u32>(), 1_001);
    }

    #[test]
    fn what_is_not_used_makes_room() {
        let table = SeriesTable::<(u32, u32), ()>::default();
        let place = |key| {
            let mut found = Detail::Full;
            let ask = |detail| {
                found = detail;
                Arc::default()
            };
            table.with(key, 1, ask, |_| ());
            found
        };
        assert_eq!(place((1, 1)), Detail::Full);
        assert_eq!(place((2, 1)), Detail::Least);
        table.forget_unused();
        table.forget_unused();
        assert!(table.is_empty());
        assert_eq!(place((2, 1)), Detail::Full);
    }
}
