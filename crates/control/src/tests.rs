//! The server over in-memory connections, with a clock that only the test moves.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use heddle_authority::{
    AuthoritySettings, DEFAULT_TOKEN_LIFE, Denied, DenyEntry, NextRoot, Serial, Stage,
};
use heddle_model::{Mesh, NodeName, ServiceAccountName, SpiffeId, TrustDomain};
use heddle_transport::secrets::JoinToken;
use heddle_xds::{Client, ClientError, Registration};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::DuplexStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::peer::PeerStream;
use super::*;

mod connections;
mod joining;
mod placing;
mod watching;

const NOW: u64 = 1_780_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn domain() -> TrustDomain {
    TrustDomain::parse("cluster.local").unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn node_id(name: &str) -> SpiffeId {
    SpiffeId::node(domain(), node(name))
}

fn workload(name: &str) -> SpiffeId {
    let account = ServiceAccountName::new("shop", name).unwrap();
    SpiffeId::workload(domain(), account)
}

/// An empty mesh, padded with blanks.
fn padded(blanks: usize) -> Vec<u8> {
    let mut json = serde_json::to_vec(&Mesh::default()).unwrap();
    json.resize(json.len() + blanks, b' ');
    json
}

fn request() -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::default().serialize_request(&key);
    made.unwrap().der().to_vec()
}

/// A running control plane.
struct Control {
    authority: Arc<Authority>,
    nodes: Nodes,
    counters: Arc<Counters>,
    /// The generation of the mesh. Every node's part is empty and has this generation.
    generation: watch::Sender<u64>,
    /// Served in place of the empty mesh, if the test asks for it.
    board: Board,
    time: Arc<AtomicU64>,
    door: Arc<Door>,
    ready: mpsc::Sender<io::Result<PeerStream<DuplexStream>>>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    _dir: tempfile::TempDir,
}

impl Control {
    fn start() -> Self {
        Self::with(ServeBounds::default())
    }

    fn with(bounds: ServeBounds) -> Self {
        let (generation, newest) = watch::channel(1);
        let current = newest.clone();
        let mesh = MeshSource {
            epoch: "first".to_owned(),
            generation: newest,
            for_node: Box::new(move |node| MeshSlice {
                generation: *current.borrow(),
                json: match node.as_str() {
                    "huge" => vec![b' '; MAX_MESH_BYTES].into(),
                    "large" => padded(100 * 1024).into(),
                    _ => padded(0).into(),
                },
            }),
            is_placed: Box::new(|node, account| {
                node.as_str() == "n1" && account.to_string() == "shop/cart"
            }),
        };
        let board = Board::new(Nodes::default()).unwrap();
        Self::serving(bounds, Nodes::default(), (mesh, board), generation)
    }

    /// A control plane that serves its board, which is still empty.
    async fn empty() -> Self {
        let nodes = Nodes::default();
        let board = Board::new(nodes.clone()).unwrap();
        let following = board.clone();
        tokio::spawn(async move { following.follow_nodes().await });
        // `follow_nodes` must subscribe before the first change.
        tokio::task::yield_now().await;
        let mesh = board.source();
        let bounds = ServeBounds::default();
        Self::serving(bounds, nodes, (mesh, board), watch::Sender::new(0))
    }

    fn serving(
        bounds: ServeBounds,
        nodes: Nodes,
        (mesh, board): (MeshSource, Board),
        generation: watch::Sender<u64>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("authority");
        let settings = AuthoritySettings::default();
        let authority = Authority::open(&folder, &domain(), settings, at(NOW)).unwrap();
        let authority = Arc::new(authority);
        let time = Arc::new(AtomicU64::new(NOW));
        let clock = Arc::clone(&time);
        let clock: Clock = Arc::new(move || at(clock.load(Relaxed)));
        let server = ControlServer::new(Arc::clone(&authority), mesh, nodes.clone(), clock, bounds);
        let (counters, door) = (server.counters(), Arc::clone(&server.door));
        let (ready, incoming) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve_incoming(incoming, async {
            let _ = stopped.await;
        }));
        Self {
            authority,
            nodes,
            counters,
            generation,
            board,
            time,
            door,
            ready,
            stop,
            served,
            _dir: dir,
        }
    }

    /// Connects with a certificate that expires in a day.
    async fn connect_as(&self, id: SpiffeId, serial: Option<Serial>) -> Client {
        let certificate = PeerCertificate {
            id,
            serial,
            not_after: self.time.load(Relaxed) + DAY,
        };
        let io = self.pipe(Some(certificate), "192.0.2.1").await;
        Client::over(io).await.unwrap()
    }

    async fn node(&self, name: &str) -> Client {
        self.connect_as(node_id(name), None).await
    }

    /// Connects without a certificate.
    async fn stranger(&self, address: &str) -> Client {
        let io = self.pipe(None, address).await;
        Client::over(io).await.unwrap()
    }

    /// The client's end of an admitted connection.
    async fn pipe(&self, certificate: Option<PeerCertificate>, address: &str) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let peer = Peer {
            address: Some(SocketAddr::new(address.parse().unwrap(), 1)),
            certificate,
        };
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let trust = self.authority.watch_trust();
        let stream = self.door.admit(theirs, peer, place, trust);
        self.ready.send(Ok(stream)).await.unwrap();
        ours
    }

    fn token(&self, name: &str) -> JoinToken {
        let now = at(self.time.load(Relaxed));
        self.authority
            .create_token(&node(name), DEFAULT_TOKEN_LIFE, now)
            .unwrap()
    }

    fn deny(&self, what: Denied) {
        let entry = DenyEntry {
            reason: "test".to_owned(),
            expires: NOW + 10 * DAY,
        };
        self.authority.deny(what, entry, at(NOW)).unwrap();
    }
}

async fn join(
    client: &Client,
    token: &JoinToken,
    name: &str,
) -> Result<heddle_xds::Joined, ClientError> {
    let secret = (token.id.as_str(), token.secret.as_bytes());
    client.join(&node(name), secret, &request()).await
}

fn own(name: &str) -> Registration {
    Registration {
        node: node(name),
        mesh_address: "192.0.2.7:15008".parse().unwrap(),
        last: None,
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> String {
    match answer {
        Err(ClientError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}
