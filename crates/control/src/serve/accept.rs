//! From a listener to authenticated connections, none of them without bounds.
//!
//! ```text
//!   accept ──▶ handshake ──▶ identified? ── yes ──▶ served until its certificate expires or a root goes
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::peer::{Peer, PeerStream};
use super::{Clock, Counters, ServeBounds};
use crate::authority::{Authority, Bundle, Serial, Trust};

/// How long to wait when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// When a root goes, connections end over this time.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What every connection goes through.
pub(super) struct Door {
    bounds: ServeBounds,
    clock: Clock,
    counters: Arc<Counters>,
    authority: Arc<Authority>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    unidentified: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(
        bounds: ServeBounds,
        clock: Clock,
        counters: Arc<Counters>,
        authority: Arc<Authority>,
    ) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            connections: places(bounds.connections),
            handshakes: places(bounds.handshakes),
            unidentified: places(bounds.unidentified),
            bounds,
            clock,
            counters,
            authority,
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
                // Before the handshake: a root that goes while hands are shaken counts as gone.
                let trust = door.authority.watch_trust();
                let shaken = handshake(stream, address);
                let shaken = timeout(door.bounds.handshake_wait, shaken).await;
                drop(shaking);
                let failed = match shaken {
                    Ok(Ok((io, peer))) => {
                        if let Some(stream) = door.admit(io, peer, connection, trust) {
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
        trust: watch::Receiver<Trust>,
    ) -> Option<PeerStream<IO>> {
        let mut places = vec![connection];
        let mut spread = Duration::ZERO;
        let life = match &peer.certificate {
            Some(certificate) => {
                spread = certificate.serial.map_or(spread, place_in_spread);
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
        let roots = Arc::clone(&trust.borrow().bundle);
        let distrusted = async move {
            root_gone(trust, &roots).await;
            sleep(spread).await;
        };
        Some(PeerStream::new(io, peer, life, distrusted, places))
    }
}

/// Waits until a root is gone that was trusted when a connection began: it may have vouched for the peer,
/// who shows its certificate again when it comes back.
async fn root_gone(mut trust: watch::Receiver<Trust>, roots: &Bundle) {
    let is_gone = |trust: &Trust| {
        let mut roots = roots.roots.iter();
        !roots.all(|root| trust.bundle.roots.contains(root))
    };
    if trust.wait_for(is_gone).await.is_err() {
        // There is no authority any more, and soon no server.
        std::future::pending::<()>().await;
    }
}

/// Serial numbers are random: by them, nodes do not all come back at once.
fn place_in_spread(serial: Serial) -> Duration {
    let [.., high, low] = serial.as_bytes();
    let part = u32::from(u16::from_be_bytes([*high, *low]));
    LEAVE_WITHIN * part / u32::from(u16::MAX)
}
