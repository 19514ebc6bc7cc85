//! The turn of a request, or of a connection with opaque bytes, that waits until an endpoint may have another
//! connection.
//!
//! A Worker's part of the limit may be small: callers of one Worker are more than its part long before all Workers
//! together have reached the limit, and offline callers have a quarter of it. Such callers take turns.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use heddle_telemetry::WorkerStats;

use super::{Endpoint, Upstreams};
use crate::wait_queue::WaitQueue;

/// Limit of callers that wait for one endpoint on one Worker. Each of them holds a client connection, whose number is
/// limited as well.
pub(super) const MAX_WAITING: usize = 1024;

/// The connections of an endpoint, and the callers that wait for one.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Number of connections, including idle ones and those that are being made.
    count: Cell<u32>,
    waiting: RefCell<WaitQueue>,
    /// Number of turns: most of the time it is 0, and the queue is not looked at.
    turns: Cell<usize>,
    /// Number of the caller that joined last.
    last: Cell<usize>,
}

impl Open {
    pub(super) fn count(&self) -> usize {
        self.count.get() as usize
    }

    pub(super) fn one_more(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(super) fn one_less(&self) {
        self.count.set(self.count.get().saturating_sub(1));
        self.call();
    }

    /// Lets the first caller look again whether there is room.
    pub(super) fn call(&self) {
        if self.turns.get() > 0 {
            self.waiting.borrow().call();
        }
    }
}

/// A caller's place among those that wait for a connection to an endpoint. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Turn {
    endpoint: Rc<Endpoint>,
    id: usize,
    stats: Arc<WorkerStats>,
}

impl Upstreams {
    /// Whether a request may use the endpoint at once: it has an idle connection or may have another one, and no caller
    /// waits.
    pub(crate) fn has_room(&self, endpoint: &Endpoint) -> bool {
        endpoint.open.turns.get() == 0 && self.has_free(endpoint)
    }

    /// Whether fewer connections are in use than the endpoint may have. Idle ones do not count: they are used, or make
    /// room. More may be open than the limit, which falls while Workers come.
    fn has_free(&self, endpoint: &Endpoint) -> bool {
        let (open, limit) = (endpoint.open.count(), self.connections_per_endpoint.get());
        open < limit || open.saturating_sub(endpoint.idle.borrow().len()) < limit
    }

    /// Begins to wait for a connection to the endpoint. `None` if too many wait already.
    pub(crate) fn wait_for(&self, endpoint: &Rc<Endpoint>) -> Option<Turn> {
        let open = &endpoint.open;
        if open.turns.get() >= MAX_WAITING {
            return None;
        }
        open.turns.set(open.turns.get() + 1);
        let id = open.last.get().wrapping_add(1);
        open.last.set(id);
        self.stats.upstream_requests_waiting.inc();
        self.stats.upstream_requests_waited.inc();
        Some(Turn {
            endpoint: Rc::clone(endpoint),
            id,
            stats: Arc::clone(&self.stats),
        })
    }

    /// Ready when no caller has waited longer, and the endpoint may have another connection.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>, turn: &Turn) -> Poll<()> {
        let mut waiting = turn.endpoint.open.waiting.borrow_mut();
        waiting.wait(turn.id, cx.waker());
        match !waiting.has_before(turn.id) && self.has_free(&turn.endpoint) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.stats.upstream_requests_waiting.dec();
        let open = &self.endpoint.open;
        open.turns.set(open.turns.get().saturating_sub(1));
        let mut waiting = open.waiting.borrow_mut();
        if waiting.leave(self.id) {
            waiting.call();
        }
    }
}
