//! A request in steady state allocates nothing.
//!
//! Allocations of the whole process are counted: client and endpoint of this test do not allocate either, and the
//! test is alone in its process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_counting::{Counting, Heap};
use heddle_model::{Mesh, NodeName, ServiceName, SpiffeId};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::Registry;
use heddle_transport::fixture::{Authority, DAY, NOW, clock};
use heddle_transport::{Denied, Identities, Trust};

mod mesh;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Number of counted requests.
const REQUESTS: usize = 4_000;

const GET: &[u8] = b"GET /api/items?page=2 HTTP/1.1\r\nHost: echo\r\nUser-Agent: test\r\n\
    Accept: */*\r\nX-Canary: 1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n";
const POST: &[u8] = b"POST /api/items HTTP/1.1\r\nHost: echo\r\nContent-Length: 5\r\n\r\nhello";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";

/// Answers each request, recognized by its final blank line or `hello`.
fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0u8; 4096];
        let mut end = 0;
        loop {
            match stream.read(&mut buffer[end..]) {
                Ok(0) | Err(_) => return,
                Ok(n) => end += n,
            }
            let got = &buffer[..end];
            let is_post = got.starts_with(b"POST");
            if got.ends_with(b"hello") || (!is_post && got.ends_with(b"\r\n\r\n")) {
                stream.write_all(ANSWER).unwrap();
                end = 0;
            }
        }
    });
    address
}

fn exchange(client: &mut TcpStream, request: &[u8], buffer: &mut [u8]) {
    client.write_all(request).unwrap();
    let mut end = 0;
    while !buffer[..end].ends_with(b"\r\n\r\nok") {
        let n = client.read(&mut buffer[end..]).unwrap();
        assert!(n > 0, "the connection stays open");
        end += n;
    }
}

/// Number of allocations for [`REQUESTS`] requests, after a warm-up.
fn allocations(proxy: &Proxy) -> u64 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let service = ServiceName::parse("test/echo").unwrap();
    proxy.listen(
        1,
        socket,
        Entry::Service {
            caller: None,
            service,
            port: 80,
        },
    );
    let mut client = TcpStream::connect(address).unwrap();
    let mut buffer = [0u8; 4096];
    let rounds = |n: usize, client: &mut TcpStream, buffer: &mut [u8]| {
        for _ in 0..n {
            exchange(client, GET, buffer);
            exchange(client, POST, buffer);
        }
    };
    // Long enough for a sweep and for the Manager's second check, which both allocate once and keep the memory.
    let warm = Instant::now() + Duration::from_millis(1_300);
    while Instant::now() < warm {
        rounds(50, &mut client, &mut buffer);
    }
    let before = Heap::of_process().allocations;
    rounds(REQUESTS / 2, &mut client, &mut buffer);
    Heap::of_process().allocations - before
}

fn proxy(mesh: &Mesh) -> Proxy {
    let proxy = Proxy::start(Settings::default(), Arc::new(Registry::new()), None).unwrap();
    proxy.apply(mesh);
    proxy
}

/// Two nodes; the workload is on the second.
fn pair() -> (Proxy, Proxy) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mesh = mesh::on_another_node(endpoint(), socket.local_addr().unwrap());
    let authority = Authority::new();
    let roots = [authority.root.clone()];
    let trust = Trust::new(mesh.trust_domain.clone(), &roots, Denied::default());
    let trust = Arc::new(trust.unwrap());
    let leaf = |id: &SpiffeId| authority.leaf(id, NOW - DAY, NOW + DAY);
    let node = |name: &str| {
        let name = NodeName::parse(name).unwrap();
        let proxy = proxy(&mesh.for_node(&name));
        let workloads = mesh.workloads.iter();
        let leaves = workloads.map(|workload| {
            let account = workload.service_account.clone();
            leaf(&SpiffeId::workload(mesh.trust_domain.clone(), account))
        });
        let own = leaf(&SpiffeId::node(mesh.trust_domain.clone(), name));
        let identities = Identities::new(Arc::clone(&trust), clock(), own, leaves);
        proxy.identify(Arc::new(identities.unwrap()));
        proxy
    };
    let (here, there) = (node("here"), node("there"));
    there.listen(1, socket, Entry::Mesh);
    (here, there)
}

#[test]
fn a_request_on_the_steady_path_allocates_nothing() {
    let proxy = proxy(&mesh::mesh(endpoint()));
    assert_eq!(allocations(&proxy), 0, "in {REQUESTS} requests");
    drop(proxy);

    let (here, _there) = pair();
    // The TLS library allocates twice for each record that one end seals and the other opens.
    let sealed = 4 * REQUESTS as u64;
    let allocations = allocations(&here);
    assert!(
        allocations <= sealed,
        "{allocations} allocations in {REQUESTS} requests between two nodes"
    );
}
