//! The intake of a Worker: a bounded queue with one reader, by which connections come from other threads.
//!
//! ```text
//!   Manager, other Workers                          the Worker
//!   put, put, put ─▶ ┌───────────────┐
//!   wake (once)    ─▶│ at most bound │─▶ take (all at once)
//!                    └───────────────┘
//!                      close ─▶ what was left goes back to the thread that closed it
//! ```
//!
//! The queue is locked when a connection arrives or moves, never for a request. A full or closed queue returns the
//! item, and the sender looks for another Worker.
//!
//! The Manager accepts no more connections than the queues have room for; until then, clients wait in the kernel's
//! backlog. Moved connections leave room for new ones, since they can stay on their Worker.

mod offline;
mod sessions;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::parcel::Arrival;
use crate::sync::{Arc, Mutex, MutexGuard, lock};

pub(crate) use offline::{OfflineWorkers, Placed};
pub(crate) use sessions::Sessions;

/// Limit of connections that wait for a Worker.
pub(crate) const INTAKE_BOUND: usize = 256;

/// The queue by which a Worker gets its connections.
pub(crate) type Intake = Inlet<Arrival>;

/// A bounded queue; each clone is a handle of the same queue.
#[derive(Debug)]
pub(crate) struct Inlet<T> {
    inner: Arc<Mutex<InletState<T>>>,
}

#[derive(Debug)]
struct InletState<T> {
    queue: VecDeque<T>,
    bound: usize,
    open: bool,
    reader: Option<Waker>,
}

impl<T> InletState<T> {
    fn room(&self) -> usize {
        match self.open {
            true => self.bound.saturating_sub(self.queue.len()),
            false => 0,
        }
    }
}

impl<T> Clone for Inlet<T> {
    fn clone(&self) -> Self {
        Inlet {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T> Inlet<T> {
    /// An open queue for at most `bound` items.
    pub(crate) fn new(bound: usize) -> Self {
        Inlet {
            inner: Arc::new(Mutex::new(InletState {
                queue: VecDeque::new(),
                bound,
                open: true,
                reader: None,
            })),
        }
    }

    /// Adds an item. The reader is not woken: call [`wake`](Self::wake) once for a batch.
    ///
    /// # Errors
    /// Returns the item if the queue is full or closed.
    pub(crate) fn put(&self, item: T) -> Result<(), T> {
        self.put_beside(item, 0)
    }

    /// Adds an item if `more` others would still find room after it.
    ///
    /// # Errors
    /// Returns the item if there is too little room, or the queue is closed.
    pub(crate) fn put_beside(&self, item: T, more: usize) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.room() <= more {
            return Err(item);
        }
        inner.queue.push_back(item);
        Ok(())
    }

    /// Number of items for which the queue has room.
    pub(crate) fn room(&self) -> usize {
        self.lock().room()
    }

    /// Whether its reader is at work.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open
    }

    /// Wakes the reader, if it waits.
    pub(crate) fn wake(&self) {
        let reader = self.lock().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Moves all items to the end of `out`; waits while the queue is empty.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, out: &mut Vec<T>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.queue.is_empty() {
            inner.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        out.extend(inner.queue.drain(..));
        Poll::Ready(())
    }

    /// Closes the queue, and returns the items that are left.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = self.lock();
        inner.open = false;
        inner.queue.drain(..).collect()
    }

    /// Opens the queue again.
    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    fn lock(&self) -> MutexGuard<'_, InletState<T>> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests;
