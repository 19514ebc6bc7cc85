//! The control plane as nodes see it: a gRPC server.
//!
//! ```text
//!   listener ──► accept ──► peer ──► trust (Join, Issue, WatchTrust) ──► authority
//!                handshake  who      mesh  (Watch)                   ──► MeshSource
//!                                      └──► nodes: who is there, and what it has confirmed
//! ```
//!
//! How a connection is authenticated is the caller's: a *handshake* turns an accepted connection into
//! bytes in the clear and a [`Peer`]. One that shows no certificate may join and nothing else. Everything
//! that a peer can take is bounded by [`ServeBounds`], and no connection outlives the certificate that it
//! was made with, nor the trust in a root that may have signed it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heddle_model::NodeName;
use heddle_telemetry::Seldom;
use heddle_xds::{MAX_MESH_BYTES, MAX_REQUEST_BYTES, MAX_TRUST_BYTES, server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Status};

mod accept;
mod board;
mod convert;
mod limiter;
mod mesh;
mod nodes;
mod peer;
mod places;
#[cfg(test)]
mod tests;
mod trust;

pub use board::Board;
pub use mesh::{ForNode, IsPlaced, MeshSlice, MeshSource};
pub use nodes::{Confirmed, Nodes, Present};
pub use peer::{Peer, PeerCertificate};

use accept::Door;
use limiter::Limiter;

use heddle_authority::{Authority, DenyList, UnixTime};

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// How much of the control plane its peers may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeBounds {
    /// Connections at once: at least as many as there are nodes, and some.
    pub connections: usize,
    /// Connections at once whose peers have shown no certificate. The oldest makes room for one more.
    pub unidentified: usize,
    /// Handshakes at once. The oldest makes room for one more.
    pub handshakes: usize,
    /// How long a handshake may take.
    pub handshake_wait: Duration,
    /// How long a connection may last whose peer has shown no certificate.
    pub unidentified_life: Duration,
    /// How long an answer may take, and the first message of a call that goes on.
    pub answer_wait: Duration,
    /// Calls at once on one connection.
    pub streams: u32,
    /// Calls at once that read or write the disk, or make a node's part of the mesh.
    pub blocking: usize,
}

impl Default for ServeBounds {
    fn default() -> Self {
        Self {
            connections: 12_000,
            unidentified: 256,
            handshakes: 256,
            handshake_wait: Duration::from_secs(10),
            unidentified_life: Duration::from_secs(60),
            answer_wait: Duration::from_secs(30),
            streams: 16,
            blocking: 8,
        }
    }
}

/// What happened since the start. Each only grows.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were served.
    pub connections: AtomicU64,
    /// Connections that waited, because as many were there as may be.
    pub connections_waited: AtomicU64,
    /// Handshakes that failed, took too long, or made room for others.
    pub handshakes_failed: AtomicU64,
    /// Connections without a certificate that were closed because there were too many.
    pub unidentified_refused: AtomicU64,
    /// Nodes that joined.
    pub joined: AtomicU64,
    /// Attempts to join that were refused.
    pub joins_refused: AtomicU64,
    /// Attempts to join that were not looked at, because there were too many failures before.
    pub joins_limited: AtomicU64,
    /// Leaves that nodes were issued after they joined.
    pub issued: AtomicU64,
    /// Leaves that they were not.
    pub issues_refused: AtomicU64,
    /// Parts of the mesh that were sent.
    pub meshes_sent: AtomicU64,
}

/// A control plane that nodes can connect to.
pub struct ControlServer {
    shared: Arc<Shared>,
    door: Arc<Door>,
}

/// What all services share.
struct Shared {
    authority: Arc<Authority>,
    mesh: MeshSource,
    nodes: Nodes,
    clock: Clock,
    bounds: ServeBounds,
    counters: Arc<Counters>,
    limiter: Mutex<Limiter>,
    /// What was said of nodes, which decide how often they do what is worth a warning.
    said: Mutex<Seldom<(NodeName, &'static str)>>,
    /// Places for calls that block.
    blocking: Semaphore,
    /// Whether the server ends: calls that would go on for ever do then.
    closing: watch::Sender<bool>,
}

impl Shared {
    /// Waits for the server to end.
    async fn closing(&self) {
        // It fails only without a sender, and that is `self`.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// The node that a peer is, if it is one that is to be told anything now.
    fn admitted<'a>(&self, peer: &'a Peer, denied: &DenyList) -> Result<&'a NodeName, Status> {
        peer.admitted(self.authority.trust_domain(), denied, (self.clock)())
    }

    /// Runs what blocks on a thread that may, when there is a place for it.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let _place = self.blocking.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| Status::unavailable(ENDS))
    }
}

impl ControlServer {
    /// A server for an authority and a mesh. `nodes` is told who is there; `clock` says what time it
    /// is.
    pub fn new(
        authority: Arc<Authority>,
        mesh: MeshSource,
        nodes: Nodes,
        clock: Clock,
        bounds: ServeBounds,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        let door = Door::new(
            bounds,
            Arc::clone(&clock),
            Arc::clone(&counters),
            Arc::clone(&authority),
        );
        Self {
            door: Arc::new(door),
            shared: Arc::new(Shared {
                authority,
                mesh,
                nodes,
                clock,
                counters,
                limiter: Mutex::new(Limiter::new(Instant::now())),
                said: Mutex::new(Seldom::of_others()),
                blocking: Semaphore::new(bounds.blocking),
                closing: watch::Sender::new(false),
                bounds,
            }),
        }
    }

    /// What happened since the start.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Serves a listener until `shutdown` is done, and then until every connection has ended or a few
    /// seconds have passed. `handshake` authenticates a connection that was accepted.
    ///
    /// # Errors
    /// [`ServeError`] when serving cannot go on.
    pub async fn serve<IO, H, F>(
        self,
        listener: TcpListener,
        handshake: H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<(IO, Peer)>> + Send + 'static,
    {
        let (ready, incoming) = mpsc::channel(1);
        let keeper = tokio::spawn(Arc::clone(&self.door).keep(listener, handshake, ready));
        let served = self.serve_incoming(incoming, shutdown).await;
        keeper.abort();
        served
    }

    async fn serve_incoming<IO>(
        self,
        incoming: mpsc::Receiver<io::Result<peer::PeerStream<IO>>>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let bounds = self.shared.bounds;
        let shared = Arc::clone(&self.shared);
        let authority =
            server::AuthorityServer::new(trust::AuthorityService(Arc::clone(&self.shared)))
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_TRUST_BYTES);
        let mesh = server::MeshServer::new(mesh::MeshService(self.shared))
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(MAX_MESH_BYTES);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = Server::builder()
            .timeout(bounds.answer_wait)
            .max_concurrent_streams(bounds.streams)
            .http2_max_header_list_size(16 * 1024)
            .http2_keepalive_interval(Some(KEEP_ALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_WAIT))
            .add_service(authority)
            .add_service(mesh)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async {
                // Dropped or told, it is the same.
                let _ = stopped.await;
            });
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            served = &mut serving => return served.map_err(ServeError),
            () = shutdown => {}
        }
        shared.closing.send_replace(true);
        drop(stop);
        // A peer that does not close its connection is not waited for.
        match tokio::time::timeout(DRAIN_WAIT, serving).await {
            Ok(served) => served.map_err(ServeError),
            Err(_) => Ok(()),
        }
    }
}

/// How often a silent connection is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(20);
/// How long calls may go on when the server ends.
const DRAIN_WAIT: Duration = Duration::from_secs(3);

/// What those are told whose calls end with the server.
const ENDS: &str = "the control plane is shutting down";

/// The peer that sent a request.
fn peer_of<T>(request: &Request<T>) -> Result<Peer, Status> {
    connection_of(request).map(|connection| connection.peer.clone())
}

/// What a request came over.
fn connection_of<T>(request: &Request<T>) -> Result<&peer::Connection, Status> {
    let connection = request.extensions().get();
    connection.ok_or_else(|| Status::internal("the connection has no peer"))
}

/// Why a control plane cannot go on serving.
#[derive(Debug)]
pub struct ServeError(tonic::transport::Error);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot serve nodes: {}", self.0)
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
