//! Each of many callers connects once: its metric series are freed after they have been shown unchanged for a while.
//!
//! A test program of its own, since all heap of the process is counted.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

#[path = "allocations/mesh.rs"]
#[expect(dead_code, reason = "meshes of two nodes are for other tests")]
mod mesh;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_counting::{Counting, Heap};
use heddle_model::{AppProtocol, ServiceName, WorkloadName};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::{Registry, SeriesBounds};

#[global_allocator]
static COUNTING: Counting = Counting;

const CALLERS: u64 = 10_000;
/// Limit in bytes for what all of them may leave.
const LEFT: i64 = 1 << 20;
/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A caller connects through its own listener, sends a byte, receives it back, and is gone.
fn call(proxy: &Proxy, id: u64) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = socket.local_addr().unwrap();
    let caller = WorkloadName::new("test", &format!("caller-{id}")).unwrap();
    let entry = Entry::Service {
        caller: Some(caller),
        service: ServiceName::parse("test/echo").unwrap(),
        port: 80,
    };
    proxy.listen(id, socket, entry);
    let mut client = TcpStream::connect(door).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    drop(client);
    proxy.unlisten(id);
}

/// Sends every byte back.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                stream.write_all(&byte).unwrap();
            }
        }
    });
    address
}

/// Number of callers on the metrics page, and the sum of their connections.
fn shown(registry: &Registry) -> (usize, u64) {
    let mut page = String::new();
    registry.render(&mut page);
    let lines = page.lines();
    let counts = lines.filter(|line| {
        line.starts_with("heddle_tcp_connections_total") && line.contains("reporter=\"source\"")
    });
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let counts: Vec<u64> = counts.collect();
    (counts.len(), counts.iter().sum())
}

#[test]
fn ten_thousand_callers_that_are_gone_leave_no_series_and_no_memory() {
    let bounds = SeriesBounds {
        unused: Duration::from_secs(2),
        ..SeriesBounds::default()
    };
    let mut mesh = mesh::mesh(echo());
    mesh.services[0].ports[0].protocol = AppProtocol::Tcp;
    mesh.services[0].ports[0].routes = None;
    mesh.policies.clear();
    mesh.workloads[0].policies.clear();
    let registry = Arc::new(Registry::with_bounds(bounds));
    let proxy = Proxy::start(Settings::default(), Arc::clone(&registry), None).unwrap();
    proxy.apply(&mesh);
    // The first call allocates everything that is allocated only once.
    call(&proxy, 1);
    let until_forgotten = || {
        let patience = Instant::now() + PATIENCE;
        while shown(&registry).0 > 0 {
            assert!(Instant::now() < patience, "{:?}", shown(&registry));
            // Time between two scrapes.
            thread::park_timeout(Duration::from_millis(200));
        }
    };
    until_forgotten();
    let before = Heap::of_process().bytes;
    for id in 0..CALLERS {
        call(&proxy, 2 + id);
    }
    let (callers, connections) = shown(&registry);
    assert!(connections > 0 && callers <= bounds.label_sets + bounds.label_sets / 10 + 1);
    until_forgotten();
    let left = Heap::of_process().bytes - before;
    assert!(left < LEFT, "{left} bytes are left of {CALLERS} callers");
    println!("{callers} callers were shown at most, {left} bytes are left");
}
