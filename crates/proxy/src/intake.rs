//! How connections come to a Worker from other threads: a bounded queue with one reader.
//!
//! ```text
//!   Manager, other Workers                          the Worker
//!   put, put, put ─▶ ┌───────────────┐
//!   wake (once)    ─▶│ at most bound │─▶ take (all at once)
//!                    └───────────────┘
//!                      close ─▶ what was left goes back to the thread that closed it
//! ```
//!
//! It is locked when a connection arrives or moves, never for a request. A queue that is full or
//! closed gives back what was put: the sender finds another place for it.
//!
//! The Manager takes no more out of a listener's queue than there is room for; until there is, clients wait where they
//! are, in the kernel. What moves leaves room for that: what a Worker has already can stay there.

mod sessions;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::parcel::Arrival;
use crate::sync::{Arc, Mutex, MutexGuard, lock};

pub(crate) use sessions::Sessions;

/// Connections that may wait for a Worker.
pub(crate) const INTAKE_BOUND: usize = 256;

/// Where a Worker's connections come in.
pub(crate) type Intake = Inlet<Arrival>;

/// The queue, and the handle that each thread has of it.
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
    /// An open queue for at most `bound`.
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

    /// Puts one in. The reader is not woken: that is for [`wake`](Self::wake), once for a batch.
    ///
    /// # Errors
    /// Gives back what finds the queue full or closed.
    pub(crate) fn put(&self, item: T) -> Result<(), T> {
        self.put_beside(item, 0)
    }

    /// The same, if so many more would find room.
    ///
    /// # Errors
    /// Gives back what finds too little room, or the queue closed.
    pub(crate) fn put_beside(&self, item: T, more: usize) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.room() <= more {
            return Err(item);
        }
        inner.queue.push_back(item);
        Ok(())
    }

    /// How many it takes now.
    pub(crate) fn room(&self) -> usize {
        self.lock().room()
    }

    /// Wakes the reader if it waits.
    pub(crate) fn wake(&self) {
        let reader = self.lock().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Takes everything, onto the end of `out`; waits while there is nothing.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, out: &mut Vec<T>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.queue.is_empty() {
            inner.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        out.extend(inner.queue.drain(..));
        Poll::Ready(())
    }

    /// Takes nothing more; returns what was not taken yet.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = self.lock();
        inner.open = false;
        inner.queue.drain(..).collect()
    }

    /// Takes again.
    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    fn lock(&self) -> MutexGuard<'_, InletState<T>> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests;
