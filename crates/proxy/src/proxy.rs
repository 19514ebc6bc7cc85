//! The handle of a running data plane.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use heddle_model::Mesh;
use heddle_telemetry::{AccessLog, Registry};
use serde::Serialize;

use crate::route::Snapshot;
use crate::worker::{self, Command, Mailbox};
use crate::{Entry, Reason, Settings};

/// A running data plane. Dropping it cuts every connection; [`Proxy::drain`] lets them finish.
pub struct Proxy {
    worker: worker::Handle,
    /// Dropped last, and with it the Worker.
    _end: End,
}

/// Ends the Worker when it is dropped.
struct End(Mailbox);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send(Command::Drain {
            until: Instant::now(),
        });
    }
}

/// How the data plane is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProxyStatus {
    /// Each Worker.
    pub workers: Vec<WorkerStatus>,
}

/// How a Worker is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Which one, from 0.
    pub id: usize,
    /// Generation of the configuration that it serves.
    pub config_generation: i64,
    /// Client connections open now.
    pub connections_active: i64,
    /// Requests under way.
    pub requests_active: i64,
    /// Connections to endpoints, idle ones included.
    pub upstream_connections_active: i64,
    /// Time spent working since it started, in milliseconds.
    pub busy_ms: u64,
    /// How that time was spent: milliseconds by caller, as of the last second or so.
    pub busy_by_source_ms: BTreeMap<String, u64>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when time ran out, and were cut.
    pub cut: usize,
}

impl Proxy {
    /// Starts the Worker. It serves nobody until it has a listener, and answers 503 until it has a
    /// configuration.
    ///
    /// # Errors
    /// When its thread or runtime cannot be made.
    pub fn start(
        settings: Settings,
        registry: Arc<Registry>,
        log: Option<AccessLog>,
    ) -> io::Result<Proxy> {
        let stats = registry.worker(Reason::CODES);
        let seed = seed();
        let worker = worker::spawn(settings, registry, stats, log, seed)?;
        let end = End(worker.mailbox.clone());
        Ok(Proxy { worker, _end: end })
    }

    /// Serves every request that begins from now on by this configuration. Connections stay.
    pub fn apply(&self, mesh: &Mesh) {
        self.worker
            .mailbox
            .send(Command::Apply(Arc::new(Snapshot::new(mesh))));
    }

    /// Accepts connections from a bound socket. An `id` that is in use replaces its listener.
    pub fn listen(&self, id: u64, socket: TcpListener, entry: Entry) {
        self.worker
            .mailbox
            .send(Command::Listen { id, socket, entry });
    }

    /// Closes a listener; connections that it accepted go on.
    pub fn unlisten(&self, id: u64) {
        self.worker.mailbox.send(Command::Unlisten { id });
    }

    /// What the Workers are doing now.
    pub fn status(&self) -> ProxyStatus {
        let stats = &self.worker.stats;
        let shown = self
            .worker
            .shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ProxyStatus {
            workers: vec![WorkerStatus {
                id: stats.id,
                config_generation: stats.config_generation.get(),
                connections_active: stats.connections_active.get(),
                requests_active: stats.requests_active.get(),
                upstream_connections_active: stats.upstream_connections_active.get(),
                busy_ms: stats.busy_ns.get() / 1_000_000,
                busy_by_source_ms: shown
                    .costs
                    .iter()
                    .map(|(source, ns)| (source.to_string(), ns / 1_000_000))
                    .collect(),
            }],
        }
    }

    /// Accepts nothing more, lets every connection finish its request, and ends. What is not
    /// finished after `grace` is cut.
    pub async fn drain(self, grace: Duration) -> Drained {
        self.worker.mailbox.send(Command::Drain {
            until: Instant::now() + grace,
        });
        // An error means that the Worker is gone already.
        let cut = self.worker.ended.await.unwrap_or(0);
        // It has told us that it ended: this does not wait.
        if self.worker.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
        Drained { cut }
    }
}

/// A seed for choosing endpoints. It need not be secret, only different in each process.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
