//! How other threads speak to a Worker: commands in a queue that one of its tasks reads.
//!
//! Commands come from the configuration and from the operator, never from traffic, and each kind
//! replaces or is bounded by what the configuration holds: the queue needs no bound of its own.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::Entry;
use crate::route::Snapshot;

/// What a Worker can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve new requests by this configuration.
    Apply(Arc<Snapshot>),
    /// Accept connections from this socket.
    Listen {
        id: u64,
        socket: TcpListener,
        entry: Entry,
    },
    /// Stop accepting; connections that were accepted go on.
    Unlisten { id: u64 },
    /// Accept nothing more, let each connection finish its request, and end by this time.
    Drain { until: Instant },
}

/// The sending side and the queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mailbox {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Command>,
    reader: Option<Waker>,
}

impl Mailbox {
    /// Queues a command and wakes the Worker.
    pub(crate) fn send(&self, command: Command) {
        let mut inner = self.lock();
        if let (Command::Apply(_), Some(Command::Apply(_))) = (&command, inner.queue.back()) {
            // Only the newest configuration counts.
            inner.queue.pop_back();
        }
        inner.queue.push_back(command);
        let reader = inner.reader.take();
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The next command.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Command> {
        let mut inner = self.lock();
        match inner.queue.pop_front() {
            Some(command) => Poll::Ready(command),
            None => {
                inner.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
