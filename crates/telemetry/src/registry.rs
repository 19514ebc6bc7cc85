//! Where Workers get their series from, and where they are summed.
//!
//! The registry is locked when a Worker meets a label set for the first time and for the moment
//! in which a rendering copies the list of series; never for a request.

#[cfg(test)]
mod tests;

mod kept;
mod render;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kept::Kept;
pub use render::Snapshot;

use crate::{HttpLabels, HttpSeries, ManagerStats, TcpSeries, TrafficLabels, WorkerStats};

/// A full table is searched for unused label sets once in so many overflows: a search takes long
/// enough to be felt by the Worker that asks.
const LOOK_EVERY: u64 = 256;
const OTHER: &str = "other";

/// How many series there may be, and for how long they are kept.
#[derive(Debug, Clone, Copy)]
pub struct SeriesBounds {
    /// How many label sets of requests, and of connections, are told apart. Beyond it, all but the Service becomes
    /// `other`; beyond a tenth more, so does the Service.
    pub label_sets: usize,
    /// For how long a label set is shown after the last Worker has let go of it, so that it is scraped once more: then
    /// it is gone, and begins anew if it comes back.
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

/// All series and all Workers of a process.
#[derive(Debug, Default)]
pub struct Registry {
    bounds: SeriesBounds,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    http: BTreeMap<HttpLabels, Kept<HttpSeries>>,
    tcp: BTreeMap<TrafficLabels, Kept<TcpSeries>>,
    /// Label sets that were collapsed because the table was full.
    overflows: u64,
    workers: Vec<Arc<WorkerStats>>,
    manager: Option<Arc<ManagerStats>>,
}

impl Registry {
    /// An empty registry with the usual bounds.
    pub fn new() -> Self {
        Registry::default()
    }

    /// An empty registry.
    pub fn with_bounds(bounds: SeriesBounds) -> Self {
        Registry {
            bounds,
            inner: Mutex::default(),
        }
    }

    /// How many series there may be, and for how long they are kept.
    pub fn bounds(&self) -> SeriesBounds {
        self.bounds
    }

    /// The series of a label set for one Worker, which is its only writer until it drops it.
    ///
    /// Ask once and keep it: each call returns a series with no other holder, so a second call
    /// with equal labels gives a second series (rendered as one sum). A series that its writer
    /// has dropped keeps its counts and is handed out again, until it has been unused for the time of the
    /// [`SeriesBounds`]. When as many label sets as may be are in use, the labels are collapsed and
    /// `heddle_metrics_overflow_total` grows.
    pub fn http_series(&self, labels: HttpLabels) -> Arc<HttpSeries> {
        let inner = &mut *self.lock();
        let (http, overflows) = (&mut inner.http, &mut inner.overflows);
        series(http, overflows, self.bounds.label_sets, labels)
    }

    /// The series of opaque connections, likewise.
    pub fn tcp_series(&self, labels: TrafficLabels) -> Arc<TcpSeries> {
        let inner = &mut *self.lock();
        let (tcp, overflows) = (&mut inner.tcp, &mut inner.overflows);
        series(tcp, overflows, self.bounds.label_sets, labels)
    }

    /// The numbers of a new Worker; `refusals` are all the codes of [`WorkerStats::handshakes_refused`], by index.
    pub fn worker(&self, refusals: &'static [&'static str]) -> Arc<WorkerStats> {
        let mut inner = self.lock();
        let stats = Arc::new(WorkerStats::new(inner.workers.len(), refusals));
        inner.workers.push(Arc::clone(&stats));
        stats
    }

    /// Connections from clients that were turned away so far, by Workers and the Manager.
    pub fn connections_refused(&self) -> u64 {
        let inner = self.lock();
        let workers = inner.workers.iter().map(|w| w.connections_refused.get());
        let manager = inner.manager.iter().map(|m| m.connections_refused.get());
        workers.chain(manager).sum()
    }

    /// The numbers of the Manager of the Workers; one for each process.
    pub fn manager(&self) -> Arc<ManagerStats> {
        let stats = Arc::new(ManagerStats::default());
        self.lock().manager = Some(Arc::clone(&stats));
        stats
    }

    /// Drops the label sets that have been unused for long enough at `now`.
    fn forget_unused(&self, now: Instant) {
        let unused = self.bounds.unused;
        let inner = &mut *self.lock();
        inner.http.retain(|_, kept| kept.stays(now, unused));
        inner.tcp.retain(|_, kept| kept.stays(now, unused));
    }

    /// A thread that panicked while it held the lock left nothing half done that matters here:
    /// every change is one insertion.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Labels of which there may be too many.
trait Collapse: Ord {
    /// The same with `other` for all but the Service.
    fn collapse(&mut self);
    /// The same with `other` for the Service, too.
    fn collapse_whole(&mut self);
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

fn series<L: Collapse, S: Default>(
    table: &mut BTreeMap<L, Kept<S>>,
    overflows: &mut u64,
    bound: usize,
    mut labels: L,
) -> Arc<S> {
    let is_full = |table: &BTreeMap<L, Kept<S>>, labels: &L, bound: usize| {
        table.len() >= bound && !table.contains_key(labels)
    };
    if is_full(table, &labels, bound) && overflows.is_multiple_of(LOOK_EVERY) {
        // Label sets that no Worker writes any more (a deleted route) make room.
        table.retain(|_, kept| kept.is_used());
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
