//! The open streams of nodes: each is woken when something changes that concerns its node.
//!
//! ```text
//!   a mesh ──▶ Catalog ──▶ Streams: does it concern the node? ── yes ──▶ woken: looks at the catalog, sends
//!                                                           └─ no ──▶ sleeps on, and is up to date
//! ```
//!
//! So a change costs time for each node that it concerns, and next to none for the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use tokio::sync::Notify;

use super::changed::Changed;
use super::nodes::Standing;
use super::subscriptions::Subscriptions;

/// The open streams. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    open: Arc<Mutex<OpenStreams>>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    streams: HashMap<u64, Arc<Stream>>,
    /// The number of the last one.
    last: u64,
}

#[derive(Debug)]
struct Stream {
    subscriptions: Mutex<Subscriptions>,
    woken: Notify,
    standing: Standing,
}

/// One node's stream, open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Streams,
    number: u64,
    stream: Arc<Stream>,
}

impl Streams {
    /// Opens a stream, which notes in `standing` what its node has. It has to look at the catalog once before it sleeps.
    pub(super) fn open(&self, subscriptions: Subscriptions, standing: Standing) -> OpenStream {
        let stream = Arc::new(Stream {
            subscriptions: Mutex::new(subscriptions),
            woken: Notify::new(),
            standing,
        });
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        OpenStream {
            streams: self.clone(),
            number,
            stream,
        }
    }

    /// Wakes the streams that the newest generation concerns: all, if it is not known what has changed.
    pub(super) fn follow(&self, generation: u64, changed: Option<&Changed>) {
        // A stream may have to wait for another one's look: no stream is kept from opening meanwhile. One that opens now
        // looks by itself.
        let open: Vec<Arc<Stream>> = self.lock().streams.values().cloned().collect();
        for stream in open {
            let mut subscriptions = stream.subscriptions();
            match subscriptions.skip_unless_concerned(generation, changed) {
                true => stream.standing.set(subscriptions.settled()),
                false => stream.woken.notify_one(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        // Each change is one step, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    /// What the node wants and has.
    pub(super) fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.stream.subscriptions()
    }

    /// Notes what the node has, if it has all that it wants.
    pub(super) fn note_settled(&self) {
        // Locked until it is noted: otherwise a newer state that is noted meanwhile would be replaced.
        let subscriptions = self.subscriptions();
        self.stream.standing.set(subscriptions.settled());
    }

    /// Completes when there may be something to send since the last completion.
    pub(super) async fn woken(&self) {
        self.stream.woken.notified().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.lock().streams.remove(&self.number);
    }
}
