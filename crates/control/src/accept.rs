//! Accepts and authenticates connections, within the limits of [`ServeBounds`].
//!
//! ```text
//!   accept ──▶ handshake ──▶ identified? ── yes ──▶ served until its certificate expires or a root goes
//!     │ a place    │ in time       └── no ──▶ a place of the few, served for a minute
//!     │ each       └── failed: counted, closed
//!     └── too many connections: waits, is counted, and now and then told
//! ```
//!
//! Peers without an identity cannot lock out others: at the limit, the oldest handshake, or the oldest
//! connection without a certificate, is closed for the newest. Nor can a node: of its own connections, too, the oldest is
//! closed, at first one without a call.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heddle_authority::{Authority, Bundle, Serial, Trust};
use heddle_model::SpiffeId;
use heddle_telemetry::Seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::peer::{Peer, PeerStream};
use super::places::Places;
use super::{Clock, Counters, ServeBounds};

/// Pause after accept failed, for example because the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Limit of open connections with one identity. A node has one, and for a short time another one.
const CONNECTIONS_PER_IDENTITY: usize = 16;
/// After a root is removed, connections are closed spread over this time.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Accepts connections and applies the limits.
pub(super) struct Door {
    bounds: ServeBounds,
    clock: Clock,
    counters: Arc<Counters>,
    authority: Arc<Authority>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Places>,
    unidentified: Arc<Places>,
    identities: Mutex<Identities>,
    /// Rate limit of warnings about limits that were reached.
    said: Mutex<Seldom<&'static str>>,
}

impl Door {
    pub(super) fn new(
        bounds: ServeBounds,
        clock: Clock,
        counters: Arc<Counters>,
        authority: Arc<Authority>,
    ) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(bounds.connections)),
            handshakes: Places::new(bounds.handshakes),
            unidentified: Places::new(bounds.unidentified),
            identities: Mutex::default(),
            said: Mutex::new(Seldom::of_others()),
            bounds,
            clock,
            counters,
            authority,
        }
    }

    /// Accepts connections and sends the authenticated ones to `ready`, until its receiver is closed.
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
            let connection = tokio::select! {
                connection = self.connection() => connection,
                () = ready.closed() => return,
            };
            let Some(connection) = connection else {
                return;
            };
            let (shaking, leave, displaced) = self.handshakes.take();
            if displaced {
                self.say("handshakes");
            }
            let (door, handshake) = (Arc::clone(&self), Arc::clone(&handshake));
            let ready = ready.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                // Subscribed before the handshake, so that a root removed during the handshake closes the connection.
                let trust = door.authority.watch_trust();
                let shaken = handshake(stream, address);
                let shaken = tokio::select! {
                    shaken = timeout(door.bounds.handshake_wait, shaken) => Some(shaken),
                    () = leave.told() => None,
                };
                drop(shaking);
                let failed = match shaken {
                    Some(Ok(Ok((io, peer)))) => {
                        let stream = door.admit(io, peer, connection, trust);
                        // Fails when the server shuts down.
                        let _ = ready.send(Ok(stream)).await;
                        return;
                    }
                    Some(Ok(Err(error))) => error.to_string(),
                    Some(Err(_)) => "it took too long".to_owned(),
                    None => "too many handshakes at once: the oldest was ended".to_owned(),
                };
                door.counters.handshakes_failed.fetch_add(1, Relaxed);
                debug!(%address, reason = failed, "a handshake failed");
            });
        }
    }

    /// Waits for a permit of the connection limit. Later connections meanwhile wait in the kernel's backlog, which is
    /// limited too.
    async fn connection(&self) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(&self.connections);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Some(place);
        }
        self.counters.connections_waited.fetch_add(1, Relaxed);
        if let Some(unnamed) = self.said_now("connections") {
            warn!(
                connections = self.bounds.connections,
                since_last = unnamed + 1,
                "the connection limit is reached: nodes wait until a connection ends (raise the limit of open files, \
                 ulimit -n; or is a client flooding the control plane?)"
            );
        }
        places.acquire_owned().await.ok()
    }

    /// Wraps an authenticated connection with its lifetime and its place, for which another connection with the same
    /// identity may be evicted; for one without a certificate, another one without.
    pub(super) fn admit<IO>(
        &self,
        io: IO,
        peer: Peer,
        connection: OwnedSemaphorePermit,
        trust: watch::Receiver<Trust>,
    ) -> PeerStream<IO> {
        let mut spread = Duration::ZERO;
        let (life, places, what) = match &peer.certificate {
            Some(certificate) => {
                spread = certificate.serial.map_or(spread, place_in_spread);
                let left = certificate
                    .not_after
                    .saturating_sub((self.clock)().as_secs());
                let life = Duration::from_secs(left);
                let places = self.identities().places(&certificate.id);
                (life, places, "connections of one node")
            }
            None => {
                let places = Arc::clone(&self.unidentified);
                let life = self.bounds.unidentified_life;
                (life, places, "connections without a certificate")
            }
        };
        let (place, leave, displaced) = places.take();
        if displaced {
            self.say(what);
        }
        if displaced && peer.certificate.is_none() {
            self.counters.unidentified_refused.fetch_add(1, Relaxed);
        }
        self.counters.connections.fetch_add(1, Relaxed);
        let roots = Arc::clone(&trust.borrow().bundle);
        let distrusted = async move {
            root_gone(trust, &roots).await;
            sleep(spread).await;
        };
        PeerStream::new(io, peer, life, distrusted, (connection, place, leave))
    }

    fn identities(&self) -> MutexGuard<'_, Identities> {
        // A place is added in one step, so a poisoned lock is safe to use.
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Warns that a limit was reached, rate-limited.
    fn say(&self, what: &'static str) {
        if let Some(unnamed) = self.said_now(what) {
            warn!(
                what,
                since_last = unnamed + 1,
                "too many at once: the oldest was closed for a new one (is a client flooding the control plane?)"
            );
        }
    }

    /// Whether to log `what` now. If so, returns how often it was suppressed since the last time.
    fn said_now(&self, what: &'static str) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.name(what, Instant::now())
    }
}

/// The places of each identity with a connection, so that no node can take those of others.
#[derive(Debug, Default)]
struct Identities {
    places: HashMap<SpiffeId, Arc<Places>>,
    /// From how many identities on those without a connection are dropped.
    swept_at: usize,
}

impl Identities {
    fn places(&mut self, id: &SpiffeId) -> Arc<Places> {
        if self.places.len() > self.swept_at {
            // Whatever has a place, or refers to one, shares it.
            self.places
                .retain(|_, places| Arc::strong_count(places) > 1);
            self.swept_at = 2 * self.places.len() + CONNECTIONS_PER_IDENTITY;
        }
        let places = self.places.entry(id.clone());
        Arc::clone(places.or_insert_with(|| Places::new(CONNECTIONS_PER_IDENTITY)))
    }
}

/// Waits until one of `roots`, which were trusted when the connection began, is removed: that root may have signed
/// the peer's certificate. The peer reconnects and is verified again.
async fn root_gone(mut trust: watch::Receiver<Trust>, roots: &Bundle) {
    let is_gone = |trust: &Trust| {
        let mut roots = roots.roots.iter();
        !roots.all(|root| trust.bundle.roots.contains(root))
    };
    if trust.wait_for(is_gone).await.is_err() {
        // The authority is gone: the server shuts down.
        std::future::pending::<()>().await;
    }
}

/// Delay derived from the serial number, which is random, so that nodes do not all reconnect at once.
fn place_in_spread(serial: Serial) -> Duration {
    let [.., high, low] = serial.as_bytes();
    let part = u32::from(u16::from_be_bytes([*high, *low]));
    LEAVE_WITHIN * part / u32::from(u16::MAX)
}
