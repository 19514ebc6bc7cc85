//! Keeps the node connected to the control plane, and makes the calls on each connection.
//!
//! ```text
//!           dial, handshake, first call            either call ends, or another connection is wanted
//!  apart ──────────────────────────────► together ───────────────────────────────────────────────┐
//!    ▲ │ failed: wait (see Apart)           │ trust and mesh as they change ─► events             │
//!    └─┴────────────────────────────────────┴─◄───────────────────────────────────────────────────┘
//! ```
//!
//! It makes no decisions: it reports each [`Event`], and carries out each [`CourierOrder`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use heddle_model::{Mesh, NodeName, Random, SpiffeId};
use heddle_transport::control::{ConnectError, Connector, WatchedStream};
use heddle_transport::{Clock, Leaf, Peer, Refusal, Trust};
use heddle_xds::{
    Certificate, Client, ClientError, Discovery, NodeMesh, Registration, TrustUpdate, TrustWatch,
    Update,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::apart::Apart;
use super::key::LeafKey;
use super::learner::Learner;
use super::reporter::Reporter;

#[cfg(test)]
mod tests;

/// Timeout of the TCP connect, and of the TLS handshake after it.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// Timeout for the start of a call.
const CALL_WAIT: Duration = Duration::from_secs(30);
/// Wait before the mesh is requested again after a refusal.
const MESH_WAIT: Duration = Duration::from_secs(30);
/// Capacity of the queue of orders.
const ORDERS: usize = 16;

/// Leaf certificate and trust for a connection, and the generations that the node reports on it.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) leaf: Arc<Leaf>,
    pub(super) trust: Arc<Trust>,
    pub(super) bundle_generation: u64,
    pub(super) deny_generation: u64,
}

/// What the courier reports to the agent.
pub(super) enum Event {
    /// Connected to the control plane.
    Up(ControlConnection),
    /// The connection failed or ended.
    Down(Broken),
    /// New roots, a new deny-list, or both.
    Trust(TrustUpdate),
    /// Epoch and content of a mesh; not checked yet.
    Mesh(String, Box<Mesh>),
    /// Why the control plane sends no mesh, although it is connected.
    NoMesh(String),
    /// An answer to [`CourierOrder::Issue`].
    Issued(SpiffeId, LeafKey, Result<Certificate, ClientError>),
}

pub(super) struct ControlConnection {
    /// The control plane's identity.
    pub(super) peer: Peer,
    /// This node's address, as the control plane gives it to other nodes.
    pub(super) mesh_address: SocketAddr,
    /// Orders to the courier on this connection.
    pub(super) orders: mpsc::Sender<CourierOrder>,
}

/// What the agent tells the courier to do.
pub(super) enum CourierOrder {
    /// Request a certificate.
    Issue(SpiffeId, LeafKey),
    /// Confirm that this update is in force.
    Confirm(TrustUpdate),
    /// Connect again, with other credentials.
    Reconnect,
}

/// The control plane's client of one node.
pub(super) struct Courier {
    pub(super) control: String,
    pub(super) name: NodeName,
    /// Address of the mesh listener; it may be unspecified (all addresses).
    pub(super) listen: SocketAddr,
    pub(super) clock: Arc<Clock>,
    pub(super) credentials: watch::Receiver<Option<Credentials>>,
    pub(super) events: mpsc::Sender<Event>,
}

/// Why there is no connection.
pub(super) struct Broken {
    pub(super) why: String,
    /// Node or control plane refused the other: waiting does not help.
    pub(super) is_refusal: bool,
    /// The control plane serves as many as it can: it is not tried sooner because a caller asks.
    is_full: bool,
}

impl Broken {
    fn by(why: impl fmt::Display) -> Broken {
        Broken {
            why: why.to_string(),
            is_refusal: false,
            is_full: false,
        }
    }
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Broken {
        Broken {
            is_refusal: !error.is_transient(),
            is_full: matches!(error, ClientError::Slower(_)),
            why: match error {
                // The message around it already says that the control plane is not reached.
                ClientError::Unavailable(why) => why,
                other => other.to_string(),
            },
        }
    }
}

impl From<ConnectError> for Broken {
    fn from(error: ConnectError) -> Broken {
        let is_refusal = matches!(error, ConnectError::Refused(_));
        let why = match error {
            ConnectError::Refused(refusal) => {
                let remedy = match refusal {
                    Refusal::UnknownAuthority => {
                        " (if the control plane was replaced: heddle token create NODE there, and start the node with \
                         it)"
                    }
                    Refusal::NotYetValid | Refusal::Expired => " (compare the clocks)",
                    _ => "",
                };
                format!("the server's certificate is refused: {refusal}{remedy}")
            }
            ConnectError::Io(error) => error.to_string(),
        };
        Broken {
            why,
            is_refusal,
            is_full: false,
        }
    }
}

/// How a connection ended.
enum End {
    /// The receiver of the events is gone.
    Over,
    /// Another connection is wanted.
    Reconnect,
    Failed(Broken),
}

impl Courier {
    /// Reconnects until the receiver of the events is gone.
    ///
    /// `mesh` is what this node has of the mesh, and `learner` finds out what more it uses, if it names that; `reporter` tells
    /// what others use by this node.
    pub(super) async fn run(
        self,
        mut mesh: NodeMesh,
        mut learner: Option<Learner>,
        mut reporter: Reporter,
    ) {
        let mut apart = Apart::new(Random::from_system());
        loop {
            let began = Instant::now();
            let why = match self
                .connection(&mut mesh, &mut learner, &mut reporter)
                .await
            {
                End::Over => return,
                End::Reconnect => continue,
                End::Failed(why) => why,
            };
            let took = began.elapsed();
            let may_ask = !why.is_refusal && !why.is_full;
            if self.events.send(Event::Down(why)).await.is_err() {
                return;
            }
            if let Some(learner) = &mut learner {
                learner.disconnected();
            }
            let asked = wanted(learner.as_ref().filter(|_| may_ask));
            apart.wait(took, asked).await;
        }
    }

    async fn connection(
        &self,
        known: &mut NodeMesh,
        learner: &mut Option<Learner>,
        reporter: &mut Reporter,
    ) -> End {
        let Some(credentials) = self.credentials.borrow().clone() else {
            return End::Failed(Broken::by("there is no certificate yet"));
        };
        match self.converse(&credentials, known, learner, reporter).await {
            Ok(end) => end,
            Err(why) => End::Failed(why),
        }
    }

    /// `known` is what this node has of the mesh.
    async fn converse(
        &self,
        own: &Credentials,
        known: &mut NodeMesh,
        learner: &mut Option<Learner>,
        reporter: &mut Reporter,
    ) -> Result<End, Broken> {
        let connector = Connector::joined(&own.leaf, &own.trust, &self.clock);
        let connector = connector.map_err(Broken::by)?;
        let stream = dial(&self.control).await.map_err(Broken::by)?;
        let mesh_address = reachable(self.listen, &stream);
        let shaken = timeout(DIAL_WAIT, connector.connect(stream)).await;
        let shaken = shaken.map_err(|_| Broken::by("the handshake took too long"))?;
        let (stream, peer) = shaken?;
        let stream = WatchedStream::new(stream);
        let refused = stream.refused();
        let begun = timeout(CALL_WAIT, begin(stream, own)).await;
        let begun = begun.map_err(|_| Broken::by("it does not answer"))?;
        let (client, mut trust) = begun.map_err(|error| match refused.get() {
            Some(Refusal::ByPeer(why)) => Broken {
                why: format!("the control plane refuses this node: {why}"),
                is_refusal: true,
                is_full: false,
            },
            _ => error.into(),
        })?;
        let (orders, mut ordered) = mpsc::channel(ORDERS);
        let link = ControlConnection {
            peer,
            mesh_address,
            orders,
        };
        if self.events.send(Event::Up(link)).await.is_err() {
            return Ok(End::Over);
        }
        let registration = Registration {
            node: self.name.clone(),
            mesh_address,
        };
        // The trust watch runs with or without it.
        let mut mesh: Option<Discovery> = None;
        let mut ask_mesh = std::pin::pin!(sleep(Duration::ZERO));
        loop {
            let event = tokio::select! {
                update = trust.next() => Event::Trust(update?),
                next = next_mesh(&mut mesh, known), if mesh.is_some() => match next {
                    Ok(Update { epoch, mesh, answered }) => {
                        if let Some(learner) = learner {
                            learner.answered(&answered);
                        }
                        Event::Mesh(epoch, Box::new(mesh))
                    }
                    Err(error @ ClientError::Unavailable(_)) => return Err(error.into()),
                    Err(error) => {
                        mesh = None;
                        if let Some(learner) = learner {
                            learner.without_mesh();
                            if matches!(error, ClientError::Invalid(_)) {
                                learner.forget_newest(known);
                            }
                        }
                        known.tell_again();
                        ask_mesh.as_mut().reset(Instant::now() + MESH_WAIT);
                        Event::NoMesh(error.to_string())
                    }
                },
                () = next_turn(learner), if mesh.is_some() => {
                    if let Some(learner) = learner {
                        learner.turn(known, Instant::now().into_std());
                    }
                    continue;
                }
                accesses = reporter.take(), if mesh.is_some() => {
                    reporter.report(client.clone(), accesses);
                    continue;
                }
                () = &mut ask_mesh, if mesh.is_none() => {
                    let begun = timeout(CALL_WAIT, client.discover(&registration, known)).await;
                    match begun.map_err(|_| Broken::by("it does not answer"))? {
                        Ok(discovery) => {
                            mesh = Some(discovery);
                            if let Some(learner) = learner {
                                learner.connected();
                            }
                            continue;
                        }
                        Err(error @ ClientError::Unavailable(_)) => return Err(error.into()),
                        Err(error) => {
                            if let Some(learner) = learner {
                                learner.without_mesh();
                            }
                            known.tell_again();
                            ask_mesh.as_mut().reset(Instant::now() + MESH_WAIT);
                            Event::NoMesh(error.to_string())
                        }
                    }
                }
                order = ordered.recv() => {
                    match order {
                        Some(CourierOrder::Issue(id, key)) => self.ask(client.clone(), id, key),
                        Some(CourierOrder::Confirm(update)) => {
                            trust.confirm_update(&update).await?;
                        }
                        Some(CourierOrder::Reconnect) => return Ok(End::Reconnect),
                        None => return Ok(End::Reconnect),
                    }
                    continue;
                }
            };
            if self.events.send(event).await.is_err() {
                return Ok(End::Over);
            }
        }
    }

    /// Requests a certificate in a task of its own: the answer may take a while.
    fn ask(&self, client: Client, id: SpiffeId, key: LeafKey) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let issued = match key.request() {
                Some(request) => client.issue(&id, &request).await,
                None => Err(ClientError::Unavailable(
                    "no certificate request could be made".to_owned(),
                )),
            };
            // The receiver is gone when the process ends.
            let _ = events.send(Event::Issued(id, key, issued)).await;
        });
    }
}

/// Makes the first call on a connection. A control plane that refuses this node fails this call.
async fn begin(
    stream: WatchedStream<TlsStream<TcpStream>>,
    own: &Credentials,
) -> Result<(Client, TrustWatch), ClientError> {
    let client = Client::over(stream).await?;
    let watch = client
        .watch_trust(own.bundle_generation, own.deny_generation)
        .await?;
    Ok((client, watch))
}

async fn next_mesh(
    mesh: &mut Option<Discovery>,
    known: &mut NodeMesh,
) -> Result<Update, ClientError> {
    match mesh {
        Some(mesh) => mesh.next(known).await,
        None => std::future::pending().await,
    }
}

/// Waits until a caller asks something.
async fn wanted(learner: Option<&Learner>) {
    match learner {
        Some(learner) => learner.wanted().await,
        None => std::future::pending().await,
    }
}

async fn next_turn(learner: &Option<Learner>) {
    match learner {
        Some(learner) => learner.due(Instant::now().into_std()).await,
        None => std::future::pending().await,
    }
}

/// Connects to `HOST:PORT`.
///
/// # Errors
/// When that fails, or takes too long.
pub(super) async fn dial(control: &str) -> io::Result<TcpStream> {
    let stream = timeout(DIAL_WAIT, TcpStream::connect(control))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it took too long to connect"))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Address at which other nodes reach this one. A listener on all addresses is reached at the local address of the
/// connection to the control plane.
fn reachable(listen: SocketAddr, stream: &TcpStream) -> SocketAddr {
    match stream.local_addr() {
        Ok(own) if listen.ip().is_unspecified() => {
            SocketAddr::new(own.ip().to_canonical(), listen.port())
        }
        _ => listen,
    }
}
