//! How other threads speak to a thread of the data plane: orders in a queue that one task reads.
//!
//! Orders come from the configuration, from the operator and from the Manager, never from traffic, and
//! each kind replaces or is bounded by what the configuration holds: the queue needs no bound of its
//! own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What stands in a mailbox.
pub(crate) trait MailboxItem {
    /// Whether `before`, which has not been read, is not needed once this has come.
    fn replaces(&self, before: &Self) -> bool;
}

/// The sending side and the queue.
#[derive(Debug)]
pub(crate) struct Mailbox<O> {
    inner: Arc<Mutex<MailboxState<O>>>,
}

#[derive(Debug)]
struct MailboxState<O> {
    queue: VecDeque<O>,
    reader: Option<Waker>,
}

impl<O> Clone for Mailbox<O> {
    fn clone(&self) -> Self {
        Mailbox {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<O> Default for Mailbox<O> {
    fn default() -> Self {
        Mailbox {
            inner: Arc::new(Mutex::new(MailboxState {
                queue: VecDeque::new(),
                reader: None,
            })),
        }
    }
}

impl<O: MailboxItem> Mailbox<O> {
    /// Queues an order and wakes the reader.
    pub(crate) fn send(&self, order: O) {
        let mut inner = self.lock();
        if inner
            .queue
            .back()
            .is_some_and(|before| order.replaces(before))
        {
            inner.queue.pop_back();
        }
        inner.queue.push_back(order);
        let reader = inner.reader.take();
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The next order.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<O> {
        let mut inner = self.lock();
        match inner.queue.pop_front() {
            Some(order) => Poll::Ready(order),
            None => {
                inner.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether both lead to the same reader.
    pub(crate) fn is(&self, other: &Mailbox<O>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<O>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
