//! The streams of Envoys, and the catalog that they are told of.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::HashMap;
use heddle_envoy::{Catalog, Gone, Kind, Own, Session};
use heddle_model::WorkloadName;
use heddle_xds::delta::{Answer, Request, Response, TooMany};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::Board;

/// Changes of the mesh are collected for this time before Envoys are told: each change of a listener or of routes is one as a
/// whole.
const GATHER: Duration = Duration::from_millis(50);

/// The streams of Envoys. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Envoys {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    catalog: Mutex<Catalog>,
    open: Mutex<Open>,
    /// Told when the first stream opens: until then no mesh is followed.
    first: Notify,
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    /// The number of the last one.
    last: u64,
}

#[derive(Debug)]
struct Stream {
    session: Mutex<Session>,
    woken: Notify,
}

/// One Envoy's stream, open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    envoys: Envoys,
    number: u64,
    stream: Arc<Stream>,
}

impl Envoys {
    /// Follows the meshes of a board, as long as Envoys are connected. Never returns.
    pub(crate) async fn follow(&self, board: &Board) {
        let mut generations = board.generations();
        let mut followed = None;
        let mut rested = Instant::now();
        loop {
            if self.open().streams.is_empty() {
                self.shared.first.notified().await;
            }
            let newest = *generations.borrow_and_update();
            if followed != Some(newest)
                && let Some(mesh) = board.newest()
            {
                sleep_until(rested).await;
                rested = Instant::now() + GATHER;
                followed = Some(newest);
                let envoys = self.clone();
                let following = tokio::task::spawn_blocking(move || {
                    let changed = envoys.catalog().follow(mesh);
                    envoys.note(&changed);
                });
                // It fails only when the runtime ends.
                let _ended = following.await;
                continue;
            }
            tokio::select! {
                changed = generations.changed() => if changed.is_err() { return },
                () = self.shared.first.notified() => {}
            }
        }
    }

    /// Wakes the streams that a change concerns.
    fn note(&self, changed: &heddle_envoy::Changed) {
        let open: Vec<Arc<Stream>> = self.open().streams.values().cloned().collect();
        for stream in open {
            if stream.session().note(changed) {
                stream.woken.notify_one();
            }
        }
    }

    /// Opens the stream of a workload's Envoy.
    pub(super) fn open_stream(&self, workload: WorkloadName) -> OpenStream {
        let session = Session::new(Own::new(workload), None);
        let stream = Arc::new(Stream {
            session: Mutex::new(session),
            woken: Notify::new(),
        });
        let mut open = self.open();
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        self.shared.first.notify_one();
        OpenStream {
            envoys: self.clone(),
            number,
            stream,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is one step, so a poisoned lock is safe to use.
        self.shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        let catalog = self.shared.catalog.lock();
        catalog.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.stream.session()
    }

    /// Takes a message about a type of resource.
    pub(super) fn receive(&self, kind: Kind, request: Request) -> Result<Answer, TooMany> {
        let catalog = self.envoys.catalog();
        self.session().receive(kind, request, &catalog)
    }

    /// The next message, if there is something to say; nothing before the first mesh.
    pub(super) fn respond(&self) -> Result<Option<(Kind, Response<Bytes>)>, Gone> {
        let catalog = self.envoys.catalog();
        match catalog.is_empty() {
            true => Ok(None),
            false => self.session().respond(&catalog),
        }
    }

    /// Completes when there may be something to send since the last completion.
    pub(super) async fn woken(&self) {
        self.stream.woken.notified().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.envoys.open().streams.remove(&self.number);
    }
}
