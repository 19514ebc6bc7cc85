//! Memory of many listeners, of which a node has two for each pod, and allocations for opening a connection.
//!
//! All heap of the process is counted, so this test has a process of its own.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_counting::{Counting, Heap};
use heddle_model::{
    AppProtocol, Balancer, Endpoint, Mesh, Mode, Service, ServiceAccountName, ServiceName,
    ServicePort, Workload, WorkloadName,
};
use heddle_proxy::{Elasticity, Entry, OriginalDestination, Proxy, Settings};
use heddle_telemetry::Registry;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Two for each of 200 pods.
const LISTENERS: u64 = 400;
/// Limit of heap bytes for an idle listener.
const LISTENER_BYTES: i64 = 4096;
/// Number of counted connections.
const CONNECTIONS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(10);

fn workload(id: u64) -> WorkloadName {
    WorkloadName::new("test", &format!("pod-{id}")).unwrap()
}

fn gauge(registry: &Registry, name: &str) -> u64 {
    let mut text = String::new();
    registry.render(&mut text);
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

fn expect(registry: &Registry, name: &str, value: u64) {
    let patience = Instant::now() + PATIENCE;
    while gauge(registry, name) != value {
        let now = gauge(registry, name);
        assert!(Instant::now() < patience, "{name} is {now}, not {value}");
        thread::yield_now();
    }
}

/// Heap bytes of one listener, averaged over many.
fn listener_bytes(workers: usize) -> i64 {
    let settings = Settings {
        workers: Elasticity {
            min: workers,
            max: workers,
            ..Elasticity::default()
        },
        ..Settings::default()
    };
    let registry = Arc::new(Registry::new());
    let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
    proxy.apply(&Mesh {
        generation: 1,
        ..Mesh::default()
    });
    expect(&registry, "heddle_worker_config_generation", workers as u64);
    let sockets: Vec<_> = (0..LISTENERS)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    expect(&registry, "heddle_listeners", 0);
    let before = Heap::of_process().bytes;
    for (id, socket) in (0..).zip(sockets) {
        let workload = workload(id / 2);
        let entry = match id % 2 {
            0 => Entry::Outbound { caller: workload },
            _ => Entry::Arriving { workload },
        };
        proxy.listen(id, socket, entry);
    }
    expect(&registry, "heddle_listeners", LISTENERS);
    let taken = Heap::of_process().bytes - before;
    taken / LISTENERS as i64
}

/// The original destination of every connection.
const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 80);

/// A caller and a TCP Service, whose endpoint accepts connections and closes them.
fn mesh() -> Mesh {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint {
        address: listener.local_addr().unwrap(),
        weight: 1,
        max_requests: None,
        workload: None,
        remote_workload: None,
        account: None,
        node: None,
        has_envoy: false,
    };
    thread::spawn(move || while listener.accept().is_ok() {});
    let port = ServicePort {
        name: None,
        port: SERVICE.port(),
        protocol: AppProtocol::Tcp,
        endpoints: vec![endpoint],
        routes: None,
        consumer_routes: BTreeMap::new(),
    };
    let service = Service {
        name: ServiceName::parse("test/echo").unwrap(),
        headless: false,
        addresses: vec![SERVICE.ip()],
        balancer: Balancer::default(),
        balancing: heddle_model::Balancing::default(),
        ports: vec![port],
    };
    let caller = Workload {
        name: workload(0),
        labels: heddle_model::Shared::default(),
        service_account: ServiceAccountName::parse("test/default").unwrap(),
        address: [10, 0, 0, 1].into(),
        uses: Vec::new(),
        more_addresses: Vec::new(),
        ports: Vec::new(),
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: Vec::new(),
        probes: Vec::new(),
        qos: Default::default(),
        proxy: heddle_model::Proxy::Node,
        command: None,
    };
    Mesh {
        generation: 1,
        services: vec![service.into()],
        workloads: vec![caller.into()].into(),
        ..Mesh::default()
    }
}

/// Allocations for each connection to a listener of this kind.
fn connection_allocations(entry: Entry, mesh: &Mesh) -> f64 {
    let settings = Settings {
        original_destination: OriginalDestination(|_| Ok(SERVICE)),
        ..Settings::default()
    };
    let registry = Arc::new(Registry::new());
    let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
    proxy.apply(mesh);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    proxy.listen(1, socket, entry);
    let connect = || {
        // The endpoint closes it or the proxy resets it, sometimes before `connect` returns.
        match TcpStream::connect(address) {
            Ok(mut stream) => drop(stream.read(&mut [0])),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    };
    // Long enough for a sweep and for the Manager's second check, which both allocate once and keep the memory.
    let warm = Instant::now() + Duration::from_millis(1_300);
    while Instant::now() < warm {
        connect();
    }
    let before = Heap::of_process().allocations;
    (0..CONNECTIONS).for_each(|_| connect());
    (Heap::of_process().allocations - before) as f64 / CONNECTIONS as f64
}

#[test]
fn listeners_and_connections_cost_little() {
    for workers in [1, 2] {
        let bytes = listener_bytes(workers);
        println!("{bytes} bytes for each listener with {workers} workers");
        assert!(
            bytes < LISTENER_BYTES,
            "{bytes} bytes for each listener with {workers} workers"
        );
    }
    let mesh = mesh();
    let service = ServiceName::parse("test/echo").unwrap();
    let caller = workload(0);
    let addressed = Entry::Service {
        caller: Some(caller.clone()),
        service,
        port: SERVICE.port(),
    };
    let addressed = connection_allocations(addressed, &mesh);
    let intercepted = connection_allocations(Entry::Outbound { caller }, &mesh);
    println!("allocations for a connection: {addressed} addressed, {intercepted} intercepted");
    // One allocation more, for the door to the original destination.
    let most = addressed + 1.5;
    assert!(intercepted <= most, "{intercepted}, and {addressed}");
    let caller = workload(1);
    let refused = connection_allocations(Entry::Outbound { caller }, &mesh);
    println!("{refused} for one that is refused");
    assert!(refused <= addressed, "{refused}, and {addressed}");
}
