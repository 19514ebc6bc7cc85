//! Hands out series to Workers, and sums them.
//!
//! The registry is locked when a Worker meets a label set for the first time and while a
//! [`Snapshot`] sums the series; never for a request.

#[cfg(test)]
mod tests;

mod cpu;
mod kept;
mod render;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cpu::CpuTimes;
use heddle_model::Class;
use kept::Kept;
pub use render::Snapshot;

use crate::{HttpLabels, HttpSeries, ManagerStats, TcpSeries, TrafficLabels, WorkerStats};

/// A full table is searched for unused label sets only once in this many overflows, because the search noticeably
/// delays the Worker that asks.
const LOOK_EVERY: u64 = 256;
const OTHER: &str = "other";

/// Limits of the number of series, and of how long unused ones are kept.
#[derive(Debug, Clone, Copy)]
pub struct SeriesBounds {
    /// Limit of label sets, for requests and for connections each. Default 2,000. Beyond it, all labels but the
    /// Service become `other`; beyond a tenth more, so does the Service.
    pub label_sets: usize,
    /// How long a label set is still exposed after the last Worker dropped it, so that it is scraped once more.
    /// Default 10 minutes. Then it is removed, and starts from 0 if it is used again.
    pub unused: Duration,
}

impl Default for SeriesBounds {
    fn default() -> Self {
        SeriesBounds {
            label_sets: 2_000,
            unused: Duration::from_secs(600),
        }
    }
}

/// All series, and the metrics of all Workers, of a process.
#[derive(Debug, Default)]
pub struct Registry {
    bounds: SeriesBounds,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    http: BTreeMap<HttpLabels, Kept<HttpSeries>>,
    tcp: BTreeMap<TrafficLabels, Kept<TcpSeries>>,
    cpu: CpuTimes,
    /// How often labels were collapsed because the table was full.
    overflows: u64,
    workers: Vec<Arc<WorkerStats>>,
    manager: Option<Arc<ManagerStats>>,
}

impl Registry {
    /// An empty registry with the default bounds.
    pub fn new() -> Self {
        Registry::default()
    }

    /// An empty registry with the given bounds.
    pub fn with_bounds(bounds: SeriesBounds) -> Self {
        Registry {
            bounds,
            inner: Mutex::default(),
        }
    }

    /// The bounds with which the registry was made.
    pub fn bounds(&self) -> SeriesBounds {
        self.bounds
    }

    /// The series of a label set for one Worker, which is its only writer until it drops it.
    ///
    /// Call this once and keep the series: each call returns a series without another holder, so a second call
    /// with equal labels gives a second series (rendered as one sum). A series that its writer has dropped keeps
    /// its counts and is handed out again, until it has been unused for [`SeriesBounds::unused`]. When the limit of
    /// label sets is reached, the labels are collapsed and `heddle_metrics_overflow_total` grows. A Worker that has met
    /// more label sets than that asks for less [`Detail`].
    pub fn http_series(&self, labels: HttpLabels) -> Arc<HttpSeries> {
        let inner = &mut *self.lock();
        let (http, overflows) = (&mut inner.http, &mut inner.overflows);
        series(http, overflows, self.bounds, labels)
    }

    /// The series of opaque connections; otherwise like [`Registry::http_series`].
    pub fn tcp_series(&self, labels: TrafficLabels) -> Arc<TcpSeries> {
        let inner = &mut *self.lock();
        let (tcp, overflows) = (&mut inner.tcp, &mut inner.overflows);
        series(tcp, overflows, self.bounds, labels)
    }

    /// Adds processor time of the proxy, in nanoseconds, to the callers that it was used for. At most
    /// [`SeriesBounds::label_sets`] callers are told apart; further ones are `other`.
    pub fn add_cpu<'s>(&self, used: impl IntoIterator<Item = (&'s Arc<str>, Class, u64)>) {
        let mut inner = self.lock();
        for (source, class, ns) in used {
            inner.cpu.add(source, class, ns, self.bounds.label_sets);
        }
    }

    /// The metrics of a new Worker. `refusals` are all reason codes of [`WorkerStats::handshakes_refused`], by index.
    pub fn worker(&self, refusals: &'static [&'static str]) -> Arc<WorkerStats> {
        let mut inner = self.lock();
        let stats = Arc::new(WorkerStats::new(inner.workers.len(), refusals));
        inner.workers.push(Arc::clone(&stats));
        stats
    }

    /// Client connections refused so far, by Workers and the Manager together.
    pub fn connections_refused(&self) -> u64 {
        let inner = self.lock();
        let workers = inner.workers.iter().map(|w| w.connections_refused.get());
        let manager = inner.manager.iter().map(|m| m.connections_refused.get());
        workers.chain(manager).sum()
    }

    /// The metrics of the Manager. Call it once per process: a second call replaces the first one's metrics.
    pub fn manager(&self) -> Arc<ManagerStats> {
        let stats = Arc::new(ManagerStats::default());
        self.lock().manager = Some(Arc::clone(&stats));
        stats
    }

    /// Drops label sets that at `now` have been unused for [`SeriesBounds::unused`], as each page of metrics does. Returns
    /// how many.
    pub fn forget_unused(&self, now: Instant) -> usize {
        let unused = self.bounds.unused;
        let inner = &mut *self.lock();
        let before = inner.http.len() + inner.tcp.len();
        inner.http.retain(|_, kept| kept.stays(now, unused));
        inner.tcp.retain(|_, kept| kept.stays(now, unused));
        inner.cpu.forget_unused(now, unused);
        before - (inner.http.len() + inner.tcp.len())
    }

    /// Ignores a poisoned lock: every change is a single insertion, so a thread that panicked cannot have left one
    /// half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of a label set is told apart; the rest is `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// All labels.
    Full,
    /// The Service alone.
    Service,
    /// No name of either end.
    Least,
}

/// Labels that are merged into `other` when there are too many label sets.
pub trait Collapse {
    /// Sets all labels but the Service to `other`.
    fn collapse(&mut self);
    /// Sets the Service to `other`, too.
    fn collapse_whole(&mut self);

    /// The labels with this much detail.
    #[must_use]
    fn with(mut self, detail: Detail) -> Self
    where
        Self: Sized,
    {
        if detail != Detail::Full {
            self.collapse();
        }
        if detail == Detail::Least {
            self.collapse_whole();
        }
        self
    }
}

impl Collapse for TrafficLabels {
    fn collapse(&mut self) {
        self.source = OTHER.into();
        self.source_principal = OTHER.into();
        self.destination_workload = OTHER.into();
    }

    fn collapse_whole(&mut self) {
        self.destination_service = OTHER.into();
    }
}

impl Collapse for HttpLabels {
    fn collapse(&mut self) {
        self.traffic.collapse();
        self.route = OTHER.into();
    }

    fn collapse_whole(&mut self) {
        self.traffic.collapse_whole();
    }
}

fn series<L: Collapse + Ord, S: Default>(
    table: &mut BTreeMap<L, Kept<S>>,
    overflows: &mut u64,
    bounds: SeriesBounds,
    mut labels: L,
) -> Arc<S> {
    let bound = bounds.label_sets;
    let is_full = |table: &BTreeMap<L, Kept<S>>, labels: &L, bound: usize| {
        table.len() >= bound && !table.contains_key(labels)
    };
    if is_full(table, &labels, bound) && overflows.is_multiple_of(LOOK_EVERY) {
        // Removes label sets that no Worker writes any more, such as those of a deleted route; not at once, since a
        // Worker drops all of its series when the configuration changes.
        let now = Instant::now();
        table.retain(|_, kept| kept.stays(now, bounds.unused / 10));
    }
    if is_full(table, &labels, bound) {
        *overflows += 1;
        labels.collapse();
        if is_full(table, &labels, bound + bound / 10) {
            labels.collapse_whole();
        }
    }
    table.entry(labels).or_default().free_one()
}
