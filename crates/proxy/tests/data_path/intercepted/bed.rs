//! A proxy with listeners of pods. The original destination of a connection, which the kernel knows in production,
//! comes from a table here.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heddle_intercept::channel::ToHolder;
use heddle_intercept::fixture::Holder;
use heddle_intercept::{Client as Channel, PodId, Sockets};
use heddle_model::{AppProtocol, Mesh, WorkloadName};
use heddle_proxy::{
    Bounds, Elasticity, Entry, NodeAddress, OriginalDestination, Proxy, Questions, Settings,
};
use heddle_telemetry::Registry;

use crate::policy::guarded;
use crate::support::{Client, PATIENCE, Upstream, count, expect, expect_rejected, get};

/// Original destinations of connections, by listener.
static GOING: Mutex<BTreeMap<SocketAddr, SocketAddr>> = Mutex::new(BTreeMap::new());

/// The address of the echo Service.
pub(super) const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 80);
/// The node's own address; it has only one family.
pub(super) const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 30, 0, 250));
/// Address of the node's workload.
pub(super) const ECHO: &str = "127.30.0.9:0";

fn going(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let local = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let going = GOING.lock().unwrap();
    going
        .get(&local)
        .copied()
        .ok_or(io::ErrorKind::NotFound.into())
}

pub(super) fn name(workload: &str) -> WorkloadName {
    WorkloadName::new("test", workload).unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        original_destination: OriginalDestination(going),
        node_address: NodeAddress(|_| Some(NODE)),
        ..Settings::default()
    }
}

/// The echo Service with a cluster address and one workload, and two callers with addresses of their own.
pub(crate) fn mesh(endpoint: SocketAddr, protocol: AppProtocol) -> Mesh {
    let mut mesh = guarded(endpoint, protocol);
    mesh.services[0].addresses = vec![SERVICE.ip()];
    for (workload, last) in mesh.workloads.iter_mut().zip([9, 3, 2]) {
        workload.address = IpAddr::from([127, 30, 0, last]);
    }
    mesh.check_invariants().unwrap();
    mesh
}

/// A listener whose connections have this original destination, for a test that passes it on itself.
pub(crate) fn listener(going: Option<SocketAddr>) -> TcpListener {
    // A destination with the listener's own port counts as not redirected. The kernel may give an endpoint at another
    // address the same port.
    let mut sockets = std::iter::repeat_with(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let is_other = |socket: &TcpListener| {
        let port = socket.local_addr().unwrap().port();
        going.is_none_or(|going| going.port() != port)
    };
    let socket = sockets.find(is_other).unwrap();
    // The same backlog as listeners in pods have.
    rustix::net::listen(&socket, 4096).unwrap();
    let address = socket.local_addr().unwrap();
    match going {
        Some(going) => going_to(address, going),
        // An earlier test may have had this port.
        None => drop(GOING.lock().unwrap().remove(&address)),
    }
    socket
}

/// Sets the original destination of all connections to a listener.
pub(super) fn going_to(listener: SocketAddr, going: SocketAddr) {
    GOING.lock().unwrap().insert(listener, going);
}

/// Sockets from a holder, with a thread that reads the holder's messages.
pub(super) fn sockets(channel_end: OwnedFd) -> Sockets {
    let (send, receive) = sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut client, sockets) = Channel::new(channel_end).unwrap();
            send.send(sockets).unwrap();
            while client.next().await.is_some() {}
        });
    });
    receive.recv().unwrap()
}

pub(super) struct Steered {
    pub(super) proxy: Proxy,
    pub(super) registry: Arc<Registry>,
    holder: Option<Holder>,
    listeners: Cell<u64>,
    workers: f64,
}

impl Steered {
    /// A proxy for a mesh, with a pod for each of these workloads, numbered from 1.
    pub(super) fn new(mesh: &Mesh, pods: &[&str]) -> Steered {
        Steered::with(1, mesh, pods)
    }

    /// As [`Steered::new`], with one workload that the test scripts.
    pub(super) fn scripted(protocol: AppProtocol, pods: &[&str]) -> (Upstream, Steered) {
        let upstream = Upstream::at(ECHO);
        let steered = Steered::new(&mesh(upstream.address, protocol), pods);
        (upstream, steered)
    }

    pub(super) fn with(workers: usize, mesh: &Mesh, pods: &[&str]) -> Steered {
        Steered::bounded(workers, Bounds::default(), mesh, pods)
    }

    pub(super) fn bounded(workers: usize, bounds: Bounds, mesh: &Mesh, pods: &[&str]) -> Steered {
        let (holder, channel_end) = Holder::start().unwrap();
        let settings = Settings {
            bounds,
            ..settings()
        };
        let mut steered = Steered::made(channel_end, workers, settings, mesh, pods);
        steered.holder = Some(holder);
        steered
    }

    /// A proxy for a mesh that does not have everything, with a pod for each of these workloads, and its questions. They
    /// time out after `discovery`.
    pub(super) fn asking(mesh: &Mesh, pods: &[&str], discovery: Duration) -> (Steered, Questions) {
        let questions = Questions::default();
        let mut settings = Settings {
            questions: Some(questions.clone()),
            ..settings()
        };
        settings.timeouts.discovery = discovery;
        let (holder, channel_end) = Holder::start().unwrap();
        let mut steered = Steered::made(channel_end, 1, settings, mesh, pods);
        steered.holder = Some(holder);
        (steered, questions)
    }

    /// A proxy that requests sockets over this channel.
    pub(super) fn over(
        channel_end: OwnedFd,
        workers: usize,
        mesh: &Mesh,
        pods: &[&str],
    ) -> Steered {
        Steered::made(channel_end, workers, settings(), mesh, pods)
    }

    fn made(
        channel_end: OwnedFd,
        workers: usize,
        settings: Settings,
        mesh: &Mesh,
        pods: &[&str],
    ) -> Steered {
        let settings = Settings {
            workers: Elasticity {
                min: workers,
                max: workers,
                steal: false,
                ..Elasticity::default()
            },
            ..settings
        };
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
        proxy.sockets(sockets(channel_end));
        let steered = Steered {
            proxy,
            registry,
            holder: None,
            listeners: Cell::new(1),
            workers: workers as f64,
        };
        let pods = pods.iter().zip(1..);
        steered.pods(&pods.map(|(name, id)| (*name, id)).collect::<Vec<_>>());
        steered.apply(mesh);
        steered
    }

    /// Applies a mesh, and waits until all Workers use it.
    pub(super) fn apply(&self, mesh: &Mesh) {
        self.proxy.apply(mesh);
        let generation = mesh.generation as f64 * self.workers;
        self.expect("heddle_worker_config_generation", &[], generation);
    }

    pub(super) fn pods(&self, pods: &[(&str, u32)]) {
        let pods = pods.iter().map(|(pod, id)| (name(pod), PodId(*id)));
        self.proxy.pods(Arc::new(pods.collect()));
    }

    fn listen(&self, entry: Entry, going: Option<SocketAddr>) -> (u64, SocketAddr) {
        let socket = listener(going);
        let address = socket.local_addr().unwrap();
        let id = self.listeners.replace(self.listeners.get() + 1);
        self.proxy.listen(id, socket, entry);
        (id, address)
    }

    /// A pod's listener for outbound connections, all with this original destination.
    pub(super) fn outbound(&self, caller: &str, going: Option<SocketAddr>) -> (u64, SocketAddr) {
        let caller = name(caller);
        self.listen(Entry::Outbound { caller }, going)
    }

    /// A connection of a pod's program to this destination.
    pub(super) fn dial(&self, caller: &str, going: SocketAddr) -> Client {
        Client::connect(self.outbound(caller, Some(going)).1)
    }

    /// A pod's listener for connections that arrive at the pod.
    pub(super) fn arriving(&self, workload: &str, going: SocketAddr) -> (u64, SocketAddr) {
        let workload = name(workload);
        self.listen(Entry::Arriving { workload }, Some(going))
    }

    /// A connection from outside the mesh that arrives at a pod.
    pub(super) fn arrive(&self, workload: &str, going: SocketAddr) -> Client {
        Client::connect(self.arriving(workload, going).1)
    }

    /// The status of a request on this connection.
    pub(super) fn get(&self, mut client: Client, path: &str) -> u16 {
        client.ask(get(path)).status()
    }

    /// Waits until a metric is at least `least`.
    pub(super) fn expect_at_least(&self, name: &str, least: f64) {
        let patience = Instant::now() + PATIENCE;
        while count(&self.registry, name, &[]) < least {
            assert!(Instant::now() < patience, "{name} is not yet {least}");
            std::thread::yield_now();
        }
    }

    /// The sum of several metrics.
    pub(super) fn sum(&self, names: &[&str]) -> f64 {
        let each = names.iter().map(|name| count(&self.registry, name, &[]));
        each.sum()
    }

    pub(super) fn expect(&self, metric: &str, labels: &[&str], value: f64) {
        expect(&self.registry, metric, labels, value);
    }

    /// Waits until this number of requests and connections were refused for this reason.
    pub(super) fn expect_rejected(&self, reason: &str, times: f64) {
        expect_rejected(&self.registry, reason, times);
    }

    /// Waits until exactly these sockets were requested.
    pub(super) fn expect_asked(&self, sockets: &[(u32, Option<SocketAddr>)]) {
        let patience = Instant::now() + PATIENCE;
        while self.asked() != sockets {
            let asked = self.asked();
            assert!(Instant::now() < patience, "{asked:?}, not {sockets:?}");
            std::thread::yield_now();
        }
    }

    /// The requested sockets so far: the pod, and the source address.
    pub(super) fn asked(&self) -> Vec<(u32, Option<SocketAddr>)> {
        let heard = self.holder.iter().flat_map(Holder::heard);
        heard
            .filter_map(|said| match said {
                ToHolder::Open { pod, source, .. } => Some((pod.0, source)),
                _ => None,
            })
            .collect()
    }
}
