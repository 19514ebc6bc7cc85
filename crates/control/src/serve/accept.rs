//! From a listener to authenticated connections, none of them without bounds.
//!
//! ```text
//!   accept ──▶ handshake ──▶ identified? ── yes ──▶ served until its certificate expires
//!     │ one place  │ in time       └── no, but a place ──▶ served for a minute
//!     │ each       └── failed: counted, closed
//!     └── no place: waits
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::peer::{Peer, PeerStream};
use super::{Clock, Counters, ServeBounds};

/// How long to wait when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every connection goes through.
pub(super) struct Door {
    bounds: ServeBounds,
    clock: Clock,
    counters: Arc<Counters>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    unidentified: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(bounds: ServeBounds, clock: Clock, counters: Arc<Counters>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            connections: places(bounds.connections),
            handshakes: places(bounds.handshakes),
            unidentified: places(bounds.unidentified),
            bounds,
            clock,
            counters,
        }
    }

    /// Accepts connections and hands the authenticated ones on, until nobody takes them any more.
    pub(super) async fn keep<IO, H, F>(
        self: Arc<Self>,
        listener: TcpListener,
        handshake: H,
        ready: mpsc::Sender<io::Result<PeerStream<IO>>>,
    ) where
        IO: Send + 'static,
        H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<(IO, Peer)>> + Send + 'static,
    {
        let handshake = Arc::new(handshake);
        loop {
            // Whoever finds no place waits in the kernel's queue, which is bounded too.
            let connection = Arc::clone(&self.connections).acquire_owned().await;
            let shaking = Arc::clone(&self.handshakes).acquire_owned().await;
            let (Ok(connection), Ok(shaking)) = (connection, shaking) else {
                return;
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ready.closed() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (door, handshake) = (Arc::clone(&self), Arc::clone(&handshake));
            let ready = ready.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let shaken = handshake(stream, address);
                let shaken = timeout(door.bounds.handshake_wait, shaken).await;
                drop(shaking);
                let failed = match shaken {
                    Ok(Ok((io, peer))) => {
                        if let Some(stream) = door.admit(io, peer, connection) {
                            // Nobody takes it when the server ends.
                            let _ = ready.send(Ok(stream)).await;
                        }
                        return;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it took too long".to_owned(),
                };
                door.counters.handshakes_failed.fetch_add(1, Relaxed);
                debug!(%address, reason = failed, "a handshake failed");
            });
        }
    }

    /// Finds a place for a connection, and says when it ends.
    pub(super) fn admit<IO>(
        &self,
        io: IO,
        peer: Peer,
        connection: OwnedSemaphorePermit,
    ) -> Option<PeerStream<IO>> {
        let mut places = vec![connection];
        let life = match &peer.certificate {
            Some(certificate) => {
                let left = certificate
                    .not_after
                    .saturating_sub((self.clock)().as_secs());
                Duration::from_secs(left)
            }
            None => {
                let Ok(place) = Arc::clone(&self.unidentified).try_acquire_owned() else {
                    self.counters.unidentified_refused.fetch_add(1, Relaxed);
                    return None;
                };
                places.push(place);
                self.bounds.unidentified_life
            }
        };
        self.counters.connections.fetch_add(1, Relaxed);
        Some(PeerStream::new(io, peer, life, places))
    }
}
