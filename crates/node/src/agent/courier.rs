//! Talks to the control plane: one connection after the other, and what is said on each.
//!
//! ```text
//!           dial, handshake, first call            either call ends, or another connection is wanted
//!  apart ──────────────────────────────► together ───────────────────────────────────────────────┐
//!    ▲ │ failed: wait, longer each time     │ trust and mesh as they change ─► events             │
//!    └─┴────────────────────────────────────┴─◄───────────────────────────────────────────────────┘
//! ```
//!
//! It decides nothing: what comes is an [`Event`], what is to be said is a [`CourierOrder`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use heddle_model::{Backoff, Random};
use heddle_model::{Mesh, NodeName, SpiffeId};
use heddle_transport::control::{ConnectError, Connector};
use heddle_transport::{Clock, Leaf, Peer, Refusal, Trust};
use heddle_xds::{
    Certificate, Client, ClientError, MeshWatch, Registration, TrustUpdate, TrustWatch,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::key::LeafKey;

/// How long it may take to connect, and to shake hands.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// How long a call may take to begin.
const CALL_WAIT: Duration = Duration::from_secs(30);
/// Waits between two attempts to connect.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lasted longer than this was a good one.
const GOOD: Duration = Duration::from_secs(60);
/// How long the mesh is not asked for again when it was refused.
const MESH_WAIT: Duration = Duration::from_secs(30);
/// Orders that may wait.
const ORDERS: usize = 16;

/// What a node shows and believes, and has in force.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) leaf: Arc<Leaf>,
    pub(super) trust: Arc<Trust>,
    pub(super) bundle_generation: u64,
    pub(super) deny_generation: u64,
    /// The epoch and generation of the mesh.
    pub(super) mesh: Option<(String, u64)>,
}

/// What happened.
pub(super) enum Event {
    /// The control plane is reached.
    Up(ControlConnection),
    /// It is not, or no longer.
    Down(Broken),
    /// What to trust from now on.
    Trust(TrustUpdate),
    /// A mesh, not checked yet, and its epoch.
    Mesh(String, Box<Mesh>),
    /// The mesh does not come although the control plane is reached.
    NoMesh(String),
    /// An answer to [`CourierOrder::Issue`].
    Issued(SpiffeId, LeafKey, Result<Certificate, ClientError>),
}

/// A connection to the control plane.
pub(super) struct ControlConnection {
    /// Who it is.
    pub(super) peer: Peer,
    /// Where it tells others to connect to us.
    pub(super) mesh_address: SocketAddr,
    /// How to tell it something.
    pub(super) orders: mpsc::Sender<CourierOrder>,
}

/// What to say.
pub(super) enum CourierOrder {
    /// Ask for a certificate.
    Issue(SpiffeId, LeafKey),
    /// Say that this is in force.
    Confirm(TrustUpdate),
    /// Connect again, with other credentials.
    Reconnect,
}

/// What it is about.
pub(super) struct Courier {
    pub(super) control: String,
    pub(super) name: NodeName,
    /// Where the mesh listener is; its address may be unspecified.
    pub(super) listen: SocketAddr,
    pub(super) clock: Arc<Clock>,
    pub(super) credentials: watch::Receiver<Option<Credentials>>,
    pub(super) events: mpsc::Sender<Event>,
}

/// Why there is no connection.
pub(super) struct Broken {
    pub(super) why: String,
    /// One of the two does not believe the other: waiting does not help.
    pub(super) is_refusal: bool,
}

impl Broken {
    fn by(why: impl fmt::Display) -> Broken {
        Broken {
            why: why.to_string(),
            is_refusal: false,
        }
    }
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Broken {
        Broken {
            is_refusal: !error.is_transient(),
            why: match error {
                // That it is not reached is said where the reason is told.
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
                format!("the server is not believed: {refusal}{remedy}")
            }
            ConnectError::Io(error) => error.to_string(),
        };
        Broken { why, is_refusal }
    }
}

/// How a connection ended.
enum End {
    /// The receiver of the events is gone.
    Over,
    /// Another connection is wanted.
    Reconnect,
    /// It failed.
    Failed(Broken),
}

impl Courier {
    /// Connects again and again, until the receiver of the events is gone.
    pub(super) async fn run(self) {
        let mut random = Random::from_system();
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        loop {
            let began = Instant::now();
            match self.connection().await {
                End::Over => return,
                End::Reconnect => continue,
                End::Failed(why) => {
                    if self.events.send(Event::Down(why)).await.is_err() {
                        return;
                    }
                }
            }
            if began.elapsed() >= GOOD {
                backoff.succeeded();
            }
            sleep(random.spread(backoff.failed())).await;
        }
    }

    async fn connection(&self) -> End {
        let Some(credentials) = self.credentials.borrow().clone() else {
            return End::Failed(Broken::by("there is nothing to show yet"));
        };
        match self.converse(&credentials).await {
            Ok(end) => end,
            Err(why) => End::Failed(why),
        }
    }

    async fn converse(&self, own: &Credentials) -> Result<End, Broken> {
        let connector = Connector::joined(&own.leaf, &own.trust, &self.clock);
        let connector = connector.map_err(Broken::by)?;
        let stream = dial(&self.control).await.map_err(Broken::by)?;
        let mesh_address = reachable(self.listen, &stream);
        let shaken = timeout(DIAL_WAIT, connector.connect(stream)).await;
        let shaken = shaken.map_err(|_| Broken::by("the handshake took too long"))?;
        let (stream, peer) = shaken?;
        let (client, mut trust) = timeout(CALL_WAIT, begin(stream, own))
            .await
            .map_err(|_| Broken::by("it does not answer"))??;
        let (orders, mut ordered) = mpsc::channel(ORDERS);
        let link = ControlConnection {
            peer,
            mesh_address,
            orders,
        };
        if self.events.send(Event::Up(link)).await.is_err() {
            return Ok(End::Over);
        }
        let registration = |last| Registration {
            node: self.name.clone(),
            mesh_address,
            last,
        };
        // Trust is followed whether or not there is a mesh to follow.
        let mut mesh: Option<MeshWatch> = None;
        let mut ask_mesh = std::pin::pin!(sleep(Duration::ZERO));
        loop {
            let event = tokio::select! {
                update = trust.next() => Event::Trust(update?),
                next = next_mesh(&mut mesh), if mesh.is_some() => match next {
                    Ok((epoch, next)) => Event::Mesh(epoch, Box::new(next)),
                    Err(error @ ClientError::Unavailable(_)) => return Err(error.into()),
                    Err(error) => {
                        mesh = None;
                        ask_mesh.as_mut().reset(Instant::now() + MESH_WAIT);
                        Event::NoMesh(error.to_string())
                    }
                },
                () = &mut ask_mesh, if mesh.is_none() => {
                    let last = self.credentials.borrow().as_ref().and_then(|own| own.mesh.clone());
                    let registration = registration(last);
                    let watch = timeout(CALL_WAIT, client.watch_mesh(&registration)).await;
                    match watch.map_err(|_| Broken::by("it does not answer"))? {
                        Ok(watch) => {
                            mesh = Some(watch);
                            continue;
                        }
                        Err(error @ ClientError::Unavailable(_)) => return Err(error.into()),
                        Err(error) => {
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

    /// Asks beside everything else: an answer may take a while.
    fn ask(&self, client: Client, id: SpiffeId, key: LeafKey) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let issued = match key.request() {
                Some(request) => client.issue(&id, &request).await,
                None => Err(ClientError::Unavailable(
                    "no request could be made".to_owned(),
                )),
            };
            // The receiver is gone when the process ends.
            let _ = events.send(Event::Issued(id, key, issued)).await;
        });
    }
}

/// The first call on a connection: what a control plane that does not believe us ends.
async fn begin(
    stream: TlsStream<TcpStream>,
    own: &Credentials,
) -> Result<(Client, TrustWatch), ClientError> {
    let client = Client::over(stream).await?;
    let watch = client
        .watch_trust(own.bundle_generation, own.deny_generation)
        .await?;
    Ok((client, watch))
}

async fn next_mesh(mesh: &mut Option<MeshWatch>) -> Result<(String, Mesh), ClientError> {
    match mesh {
        Some(mesh) => mesh.next().await,
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

/// Where others reach us: a listener on every address is reached at the one from which we reach the control
/// plane.
fn reachable(listen: SocketAddr, stream: &TcpStream) -> SocketAddr {
    match stream.local_addr() {
        Ok(own) if listen.ip().is_unspecified() => {
            SocketAddr::new(own.ip().to_canonical(), listen.port())
        }
        _ => listen,
    }
}
