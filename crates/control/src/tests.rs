//! The server over in-memory connections, with a clock that only the test moves.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use heddle_authority::{
    AuthoritySettings, DEFAULT_TOKEN_LIFE, Denied, DenyEntry, NextRoot, Serial, Stage,
};
use heddle_model::{
    Balancer, Balancing, Mesh, Mode, NodeName, Qos, Service, ServiceAccountName, ServiceName,
    SpiffeId, TrustDomain, Workload, WorkloadName,
};
use heddle_transport::secrets::JoinToken;
use heddle_xds::{Client, ClientError, Discovery, NodeMesh, Registration};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::DuplexStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::peer::PeerStream;
use super::*;

mod connections;
mod envoys;
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

/// A mesh with a workload `cart` on `n1`, and with as many Services.
fn services(number: usize) -> Mesh {
    let service = |number| Service {
        name: ServiceName::new("shop", &format!("s{number:06}")).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::default(),
        balancing: Balancing::default(),
        ports: Vec::new(),
    };
    let cart = Workload {
        name: WorkloadName::new("shop", "cart").unwrap(),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::new("shop", "cart").unwrap(),
        address: "127.1.0.1".parse().unwrap(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: Some(node("n1")),
        mode: Mode::default(),
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Qos::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    };
    Mesh {
        services: (0..number).map(service).map(Into::into).collect(),
        workloads: vec![cart.into()].into(),
        ..Mesh::default()
    }
}

/// A discovery call, and what it has brought.
#[derive(Debug)]
struct Watch {
    discovery: Discovery,
    mesh: NodeMesh,
}

impl Watch {
    async fn next(&mut self) -> Result<(String, Mesh), ClientError> {
        let update = self.discovery.next(&mut self.mesh).await?;
        Ok((update.epoch, update.mesh))
    }
}

/// Begins a call of a node that knows nothing yet.
async fn discover(client: &Client, own: &Registration) -> Result<Watch, ClientError> {
    let mut mesh = NodeMesh::new(own.node.clone());
    let discovery = client.discover(own, &mut mesh).await?;
    Ok(Watch { discovery, mesh })
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
    board: Board,
    envoys: Envoys,
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
        let nodes = Nodes::default();
        let board = Board::new(nodes.clone()).unwrap();
        board.put(services(0));
        Self::serving(bounds, nodes, board)
    }

    /// A control plane that serves its board, which is still empty.
    async fn empty() -> Self {
        let nodes = Nodes::default();
        let board = Board::new(nodes.clone()).unwrap();
        let following = board.clone();
        tokio::spawn(async move { following.follow_nodes().await });
        // `follow_nodes` must subscribe before the first change.
        tokio::task::yield_now().await;
        Self::serving(ServeBounds::default(), nodes, board)
    }

    fn serving(bounds: ServeBounds, nodes: Nodes, board: Board) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("authority");
        let settings = AuthoritySettings::default();
        let authority = Authority::open(&folder, &domain(), settings, at(NOW)).unwrap();
        let authority = Arc::new(authority);
        let time = Arc::new(AtomicU64::new(NOW));
        let clock = Arc::clone(&time);
        let clock: Clock = Arc::new(move || at(clock.load(Relaxed)));
        let server = ControlServer::new(
            Arc::clone(&authority),
            board.clone(),
            nodes.clone(),
            clock,
            bounds,
        );
        let (counters, door) = (server.counters(), Arc::clone(&server.door));
        let envoys = server.envoys();
        let (ready, incoming) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve_incoming(incoming, async {
            let _ = stopped.await;
        }));
        Self {
            authority,
            nodes,
            counters,
            board,
            envoys,
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
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> String {
    match answer {
        Err(ClientError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}
