//! Where Workers get their series from, and where they are summed.
//!
//! The registry is locked when a Worker meets a label set for the first time and for the moment
//! in which a rendering copies the list of series; never for a request.

#[cfg(test)]
mod tests;

mod render;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use render::Snapshot;

use crate::{HttpLabels, HttpSeries, ManagerStats, TcpLabels, TcpSeries, WorkerStats};

/// How many label sets are told apart. Beyond it, source and route become `other`; beyond a
/// tenth more, so does the destination.
pub const MAX_LABEL_SETS: usize = 10_000;
const MAX_COLLAPSED: usize = MAX_LABEL_SETS / 10;
/// A full table is searched for unused label sets once in so many overflows: a search takes long
/// enough to be felt by the Worker that asks.
const LOOK_EVERY: u64 = 256;
const OTHER: &str = "other";

/// All series and all Workers of a process.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    http: BTreeMap<HttpLabels, Vec<Arc<HttpSeries>>>,
    tcp: BTreeMap<TcpLabels, Vec<Arc<TcpSeries>>>,
    /// Label sets that were collapsed because the table was full.
    overflows: u64,
    workers: Vec<Arc<WorkerStats>>,
    manager: Option<Arc<ManagerStats>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// The series of a label set for one Worker, which is its only writer until it drops it.
    ///
    /// Ask once and keep it: each call returns a series with no other holder, so a second call
    /// with equal labels gives a second series (rendered as one sum). A series that its writer
    /// has dropped keeps its counts and is handed out again. When [`MAX_LABEL_SETS`] are in use,
    /// the labels are collapsed and `heddle_metrics_overflow_total` grows.
    pub fn http_series(&self, labels: HttpLabels) -> Arc<HttpSeries> {
        self.lock().http_series(labels)
    }

    /// The series of opaque connections, likewise.
    pub fn tcp_series(&self, labels: TcpLabels) -> Arc<TcpSeries> {
        self.lock().tcp_series(labels)
    }

    /// The numbers of a new Worker; `reasons` are all the codes it may count in
    /// [`WorkerStats::requests_rejected`], by index, and `refusals` those of
    /// [`WorkerStats::handshakes_refused`].
    pub fn worker(
        &self,
        reasons: &'static [&'static str],
        refusals: &'static [&'static str],
    ) -> Arc<WorkerStats> {
        let mut inner = self.lock();
        let stats = Arc::new(WorkerStats::new(inner.workers.len(), reasons, refusals));
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

    /// A thread that panicked while it held the lock left nothing half done that matters here:
    /// every change is one insertion.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn http_series(&mut self, mut labels: HttpLabels) -> Arc<HttpSeries> {
        if self.is_full_for(&labels, MAX_LABEL_SETS) && self.overflows.is_multiple_of(LOOK_EVERY) {
            // Label sets that no Worker writes any more (a deleted route) make room.
            self.http
                .retain(|_, all| all.iter_mut().any(|one| Arc::get_mut(one).is_none()));
        }
        if self.is_full_for(&labels, MAX_LABEL_SETS) {
            self.overflows += 1;
            labels.source = OTHER.into();
            labels.route = OTHER.into();
            if self.is_full_for(&labels, MAX_LABEL_SETS + MAX_COLLAPSED) {
                labels.destination_service = OTHER.into();
            }
        }
        free_one(self.http.entry(labels).or_default())
    }

    fn tcp_series(&mut self, mut labels: TcpLabels) -> Arc<TcpSeries> {
        if self.tcp.len() >= MAX_LABEL_SETS && !self.tcp.contains_key(&labels) {
            self.overflows += 1;
            labels.source = OTHER.into();
            if self.tcp.len() >= MAX_LABEL_SETS + MAX_COLLAPSED && !self.tcp.contains_key(&labels) {
                labels.destination_service = OTHER.into();
            }
        }
        free_one(self.tcp.entry(labels).or_default())
    }

    fn is_full_for(&self, labels: &HttpLabels, bound: usize) -> bool {
        self.http.len() >= bound && !self.http.contains_key(labels)
    }
}

/// A series that no Worker writes.
fn free_one<S: Default>(all: &mut Vec<Arc<S>>) -> Arc<S> {
    // Exclusive access proves that the last writer is gone (and orders its writes before ours), so
    // the series may have a new one.
    if let Some(free) = all.iter_mut().position(|one| Arc::get_mut(one).is_some()) {
        return Arc::clone(&all[free]);
    }
    let series = Arc::new(S::default());
    all.push(Arc::clone(&series));
    series
}
