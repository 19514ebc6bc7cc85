//! The control plane as nodes see it: a gRPC server.
//!
//! ```text
//!   listener ──► accept ──► peer ──► trust (Join, Issue, WatchTrust) ──► authority
//!                handshake  who      discovery (Stream) ──► subscriptions ──► catalog ◄── board
//!                                      └──► nodes: who is there, and what it has confirmed
//!                         envoy (delta ADS of stock Envoys) ──► sessions ──► their catalog ◄── board
//! ```
//!
//! The caller of this crate authenticates connections: its *handshake* turns an accepted connection into
//! a plaintext stream and a [`Peer`]. A peer without a certificate may join and nothing else. [`ServeBounds`]
//! limits every resource that a peer can use. No connection outlives the certificate with which it was made,
//! nor the trust in a root that may have signed this certificate.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heddle_model::NodeName;
use heddle_telemetry::Seldom;
use heddle_xds::{MAX_ACCESS_REPORT_BYTES, MAX_REQUEST_BYTES, MAX_TRUST_BYTES, server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Extensions, Request, Status};

mod accept;
mod board;
mod catalog;
mod changed;
mod changes;
mod convert;
mod discovery;
mod envoy;
mod frames;
mod index;
mod limiter;
mod nodes;
mod peer;
mod places;
mod scope;
mod service;
mod streams;
mod subscriptions;
#[cfg(test)]
mod tests;
mod trust;

pub use board::Board;
pub use envoy::{Connected, Cost, DEPENDENCIES, Envoys, Used};
pub use nodes::{Confirmed, Nodes, Present};
pub use peer::{Peer, PeerCertificate};
pub use subscriptions::Settled;

use accept::Door;
use limiter::Limiter;
use service::OneMethod;

use heddle_authority::{Authority, DenyList, UnixTime};

/// Returns the current time. Tests pass a clock that they move themselves.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// Limits of the resources that peers can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeBounds {
    /// Limit of open connections, default 12,000. It must be somewhat higher than the number of nodes.
    pub connections: usize,
    /// Limit of open connections without a client certificate, default 256. Beyond it the oldest is closed.
    pub unidentified: usize,
    /// Limit of handshakes in progress, default 256. Beyond it the oldest is ended.
    pub handshakes: usize,
    /// Timeout of a handshake, default 10 s.
    pub handshake_wait: Duration,
    /// Lifetime of a connection without a client certificate, default 60 s.
    pub unidentified_life: Duration,
    /// Timeout of a response, and of the first message of a streaming call; default 30 s.
    pub answer_wait: Duration,
    /// Limit of concurrent calls (HTTP/2 streams) per connection, default 16.
    pub streams: u32,
    /// Limit of concurrent calls that use the disk, default 8.
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

/// Counters since the start of the server. Each only grows.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that passed the handshake.
    pub connections: AtomicU64,
    /// Connections that had to wait because the connection limit was reached.
    pub connections_waited: AtomicU64,
    /// Handshakes that failed, timed out, or were ended to make room for others.
    pub handshakes_failed: AtomicU64,
    /// Connections without a certificate that were closed because their limit was reached.
    pub unidentified_refused: AtomicU64,
    /// Nodes that joined.
    pub joined: AtomicU64,
    /// Attempts to join that were refused.
    pub joins_refused: AtomicU64,
    /// Attempts to join that were rejected unread because of too many failures before.
    pub joins_limited: AtomicU64,
    /// Leaf certificates issued to nodes after they joined.
    pub issued: AtomicU64,
    /// Requests for leaf certificates that were refused.
    pub issues_refused: AtomicU64,
    /// How often a node was told that it has everything of a mesh.
    pub meshes_sent: AtomicU64,
    /// Resources sent to nodes, and names of resources that are gone.
    pub resources_sent: AtomicU64,
    /// Bytes of the messages with them.
    pub resource_bytes_sent: AtomicU64,
    /// Responses of which a node refused a resource.
    pub resources_refused: AtomicU64,
    /// Resources sent to Envoys, and names of resources that are gone.
    pub envoy_resources_sent: AtomicU64,
    /// Bytes of the messages with them.
    pub envoy_resource_bytes_sent: AtomicU64,
    /// Responses of which an Envoy refused a resource.
    pub envoy_resources_refused: AtomicU64,
    /// Accesses that gateways reported, each caller and Service once in a message.
    pub accesses_reported: AtomicU64,
    /// Dependencies of lazy workloads that were learned from these.
    pub dependencies_learned: AtomicU64,
    /// Of these, once for each Envoy, those that the Envoy has come to use without a gateway, and the time from the report until
    /// then, in milliseconds.
    pub dependencies_direct: AtomicU64,
    pub learning_ms: AtomicU64,
    /// Dependencies that were forgotten, since they were not used.
    pub dependencies_forgotten: AtomicU64,
    /// Requests, and connections that carry bytes, that lazy Envoys have sent directly, and by gateways.
    pub lazy_direct: AtomicU64,
    pub lazy_by_gateway: AtomicU64,
}

/// The gRPC server to which nodes connect.
pub struct ControlServer {
    shared: Arc<Shared>,
    door: Arc<Door>,
}

/// State shared by the gRPC services.
struct Shared {
    authority: Arc<Authority>,
    board: Board,
    nodes: Nodes,
    envoys: Envoys,
    clock: Clock,
    bounds: ServeBounds,
    counters: Arc<Counters>,
    limiter: Mutex<Limiter>,
    /// Rate limit of warnings by node and reason: nodes decide how often they cause one.
    said: Mutex<Seldom<(NodeName, &'static str)>>,
    /// One permit for each call that may run on a blocking thread.
    blocking: Semaphore,
    /// The turn of a load report that is noted.
    reporting: Semaphore,
    /// True once the server shuts down: streaming calls end then.
    closing: watch::Sender<bool>,
}

impl Shared {
    /// Completes when the server begins to shut down.
    async fn closing(&self) {
        // Cannot fail: `self` holds the sender.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// The node name of a peer that is allowed to receive data now.
    fn admitted<'a>(&self, peer: &'a Peer, denied: &DenyList) -> Result<&'a NodeName, Status> {
        peer.admitted(self.authority.trust_domain(), denied, (self.clock)())
    }

    /// Runs blocking work on a blocking thread, once a permit is free.
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
    /// A server for an authority and a board. It records in `nodes` which nodes are present, and takes the time from
    /// `clock`.
    pub fn new(
        authority: Arc<Authority>,
        board: Board,
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
        let server = Self {
            door: Arc::new(door),
            shared: Arc::new(Shared {
                authority,
                board,
                nodes,
                envoys: Envoys::default(),
                clock,
                counters,
                limiter: Mutex::new(Limiter::new(Instant::now())),
                said: Mutex::new(Seldom::of_others()),
                blocking: Semaphore::new(bounds.blocking),
                reporting: Semaphore::new(1),
                closing: watch::Sender::new(false),
                bounds,
            }),
        };
        // Before the first mesh.
        server.shared.deny_forwarding();
        server
    }

    /// Goes on with the dependencies of lazy workloads that are in a folder, keeps there what is learned, and forgets what was
    /// not used for a time.
    ///
    /// # Errors
    /// When their file cannot be read, or not be written, which is tried again.
    pub fn keep_dependencies(&self, folder: &Path, forget_after: Duration) -> io::Result<()> {
        let now = (self.shared.clock)().as_secs();
        let envoys = &self.shared.envoys;
        envoys.keep_dependencies(folder, forget_after, now)
    }

    /// What is known of Envoys, readable while the server serves.
    pub fn envoys(&self) -> Envoys {
        self.shared.envoys.clone()
    }

    /// The server's counters, which stay readable while it serves.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Serves a listener until `shutdown` completes, then drains connections for at most 3 seconds.
    /// `handshake` authenticates an accepted connection.
    ///
    /// # Errors
    /// [`ServeError`] when the gRPC server fails.
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
        let (envoys, board) = (self.shared.envoys.clone(), self.shared.board.clone());
        let follower = tokio::spawn(async move { envoys.follow(&board).await });
        let shared = Arc::clone(&self.shared);
        let forgetter = tokio::spawn(async move {
            let clock = Arc::clone(&shared.clock);
            shared.envoys.forget(clock, &shared.counters).await;
        });
        let served = self.serve_incoming(incoming, shutdown).await;
        keeper.abort();
        follower.abort();
        forgetter.abort();
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
        // Ended when it is dropped.
        let mut following = JoinSet::new();
        following.spawn(Arc::clone(&self.shared).follow_denied());
        let authority =
            server::AuthorityServer::new(trust::AuthorityService(Arc::clone(&self.shared)))
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_TRUST_BYTES);
        let discovery = OneMethod::<discovery::Discovery>::new(&self.shared);
        let envoys = OneMethod::<envoy::Ads>::new(&self.shared);
        let reports = OneMethod::<envoy::Als>::new(&self.shared);
        let accesses =
            server::AccessesServer::new(envoy::AccessesService(Arc::clone(&self.shared)))
                .max_decoding_message_size(MAX_ACCESS_REPORT_BYTES);
        let loads = OneMethod::<envoy::Lrs>::new(&self.shared);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = Server::builder()
            .timeout(bounds.answer_wait)
            .max_concurrent_streams(bounds.streams)
            .http2_max_header_list_size(16 * 1024)
            .http2_keepalive_interval(Some(KEEP_ALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_WAIT))
            .add_service(authority)
            .add_service(discovery)
            .add_service(envoys)
            .add_service(reports)
            .add_service(accesses)
            .add_service(loads)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async {
                // The sender is only ever dropped, which ends this wait as well.
                let _ = stopped.await;
            });
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            served = &mut serving => return served.map_err(ServeError),
            () = shutdown => {}
        }
        shared.closing.send_replace(true);
        drop(stop);
        // Do not wait longer for a peer that keeps its connection open.
        match tokio::time::timeout(DRAIN_WAIT, serving).await {
            Ok(served) => served.map_err(ServeError),
            Err(_) => Ok(()),
        }
    }
}

/// Interval of HTTP/2 keepalive pings on an idle connection, and the timeout of the reply.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(20);
/// How long open calls are drained at shutdown.
const DRAIN_WAIT: Duration = Duration::from_secs(3);

/// Status message for calls that end because the server shuts down.
const ENDS: &str = "the control plane is shutting down";

/// The peer at the other end of a request's connection.
fn peer_of<T>(request: &Request<T>) -> Result<Peer, Status> {
    peer_at(request.extensions())
}

/// The peer at the other end of the connection that these were attached to.
fn peer_at(extensions: &Extensions) -> Result<Peer, Status> {
    connection_of(extensions).map(|connection| connection.peer.clone())
}

/// The connection over which a request came.
fn connection_of(extensions: &Extensions) -> Result<&peer::Connection, Status> {
    let connection = extensions.get();
    connection.ok_or_else(|| Status::internal("the connection has no peer"))
}

/// The gRPC server failed.
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
