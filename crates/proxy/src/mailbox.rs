//! Orders from other threads to a thread of the data plane: a queue that one task reads.
//!
//! Orders come from the configuration, from the operator and from the Manager, never from traffic. Each kind replaces
//! earlier ones or is limited by the size of the configuration, so the queue needs no limit of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An order in a mailbox.
pub(crate) trait MailboxItem {
    /// Whether `before`, which has not been read yet, is obsolete because of this one.
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
    /// Queues an order and wakes the reader. The order replaces the last one in the queue if that is obsolete.
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

    /// Whether both have the same reader.
    pub(crate) fn is(&self, other: &Mailbox<O>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<O>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
