//! Bodies and byte streams of any size pass in constant memory, even with a slow reader.
//!
//! All heap of this process is counted: the proxies of one or two nodes, and both ends, which hold a block each. So
//! this is a test program of its own, and its tests run one at a time.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

#[path = "allocations/mesh.rs"]
mod mesh;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heddle_counting::{Counting, Heap};
use heddle_model::{AppProtocol, Mesh, NodeName, ServiceName, SpiffeId};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::Registry;
use heddle_transport::fixture::{Authority, DAY, NOW, clock};
use heddle_transport::{Denied, Identities, Trust};
use heddle_wire::link::LinkLimits;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout,
};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes sent in each transfer: two thousand windows.
const SIZE: u64 = 256 << 20;
/// Number of reader stalls during a transfer.
const STALLS: u64 = 4;
/// Buffer of each end.
const BLOCK: usize = 64 << 10;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One node or two, with an endpoint that the test itself serves.
struct Nodes {
    proxies: Vec<(Proxy, Arc<Registry>)>,
    endpoint: TcpListener,
    door: SocketAddr,
    /// Limit of one direction of one message at one node, from its settings.
    window: i64,
}

impl Nodes {
    fn new(count: usize, protocol: AppProtocol) -> Nodes {
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (endpoint, others) = (bind(), bind());
        set_socket_timeout(&endpoint, Timeout::Recv, Some(PATIENCE)).unwrap();
        let address = endpoint.local_addr().unwrap();
        let mut mesh = match count {
            1 => mesh::mesh(address),
            _ => mesh::on_another_node(address, others.local_addr().unwrap()),
        };
        let port = &mut mesh.services[0].ports[0];
        port.protocol = protocol;
        // Without rules: their request timeout is shorter than a slow reader needs.
        port.routes = None;
        if protocol == AppProtocol::Tcp {
            // These policies apply to requests only.
            mesh.policies.clear();
            mesh.workloads[0].policies.clear();
        }
        let settings = Settings::default();
        let authority = Authority::new();
        let start = |name: &str| match count {
            1 => started(&settings, &mesh, None),
            _ => {
                let name = NodeName::parse(name).unwrap();
                let identities = identities(&authority, &mesh, &name);
                started(&settings, &mesh.for_node(&name), Some(identities))
            }
        };
        let names = ["here", "there"];
        let proxies: Vec<_> = names[..count].iter().map(|name| start(name)).collect();
        if let Some((there, _)) = proxies.get(1) {
            there.listen(1, others, Entry::Mesh);
        }
        let socket = bind();
        let door = socket.local_addr().unwrap();
        let entry = Entry::Service {
            caller: None,
            service: ServiceName::parse("test/echo").unwrap(),
            port: 80,
        };
        proxies[0].0.listen(2, socket, entry);
        Nodes {
            proxies,
            endpoint,
            door,
            window: i64::try_from(settings.bounds.stream_window_bytes).unwrap(),
        }
    }

    /// A client's connection, with small kernel buffers, like the endpoint's: bytes in flight are then in the counted
    /// heap.
    fn client(&self) -> TcpStream {
        small(TcpStream::connect(self.door).unwrap())
    }

    fn server(&self) -> TcpStream {
        small(self.endpoint.accept().unwrap().0)
    }

    /// Blocks taken from the pools, as the proxies publish about once a second.
    fn blocks(&self) -> u64 {
        let of = |registry: &Registry| {
            let mut text = String::new();
            registry.render(&mut text);
            let lines = text.lines();
            let blocks = lines.filter(|line| line.starts_with("heddle_buffer_blocks_active"));
            let counts = blocks.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            counts.sum::<u64>()
        };
        self.proxies.iter().map(|(_, registry)| of(registry)).sum()
    }
}

fn started(
    settings: &Settings,
    mesh: &Mesh,
    identities: Option<Identities>,
) -> (Proxy, Arc<Registry>) {
    let registry = Arc::new(Registry::new());
    let proxy = Proxy::start(settings.clone(), Arc::clone(&registry), None).unwrap();
    proxy.apply(mesh);
    if let Some(identities) = identities {
        proxy.identify(Arc::new(identities));
    }
    (proxy, registry)
}

fn identities(authority: &Authority, mesh: &Mesh, name: &NodeName) -> Identities {
    let roots = [authority.root.clone()];
    let trust = Trust::new(mesh.trust_domain.clone(), &roots, Denied::default());
    let leaf = |id: &SpiffeId| authority.leaf(id, NOW - DAY, NOW + DAY);
    let leaves = mesh.workloads.iter().map(|workload| {
        let account = workload.service_account.clone();
        leaf(&SpiffeId::workload(mesh.trust_domain.clone(), account))
    });
    let own = leaf(&SpiffeId::node(mesh.trust_domain.clone(), name.clone()));
    Identities::new(Arc::new(trust.unwrap()), clock(), own, leaves).unwrap()
}

fn small(stream: TcpStream) -> TcpStream {
    set_socket_recv_buffer_size(&stream, BLOCK).unwrap();
    set_socket_send_buffer_size(&stream, BLOCK).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Records the maximum of the heap from now on, sampled by a thread of its own.
struct Watched {
    before: i64,
    most: Arc<AtomicI64>,
    stop: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Watched {
    /// Starts once the heap is at rest: an earlier connection may still be going.
    fn start() -> Watched {
        let before = at_rest();
        let (most, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicU64::new(0)));
        let (seen, ends) = (Arc::clone(&most), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while ends.load(Ordering::Relaxed) == 0 {
                seen.fetch_max(Heap::of_process().bytes - before, Ordering::Relaxed);
                // Sampling interval.
                thread::park_timeout(Duration::from_micros(200));
            }
        });
        Watched {
            before,
            most,
            stop,
            thread,
        }
    }

    /// The maximum above the initial heap, and the current difference.
    fn stop(self) -> (i64, i64) {
        self.stop.store(1, Ordering::Relaxed);
        self.thread.join().unwrap();
        let left = Heap::of_process().bytes - self.before;
        (self.most.load(Ordering::Relaxed), left)
    }
}

/// The bytes of the heap as soon as they have stayed the same for a while.
fn at_rest() -> i64 {
    const QUIET: Duration = Duration::from_millis(100);
    let patience = Instant::now() + PATIENCE;
    let (mut last, mut since) = (Heap::of_process(), Instant::now());
    while since.elapsed() < QUIET {
        assert!(Instant::now() < patience, "the heap is never at rest");
        thread::park_timeout(Duration::from_millis(5));
        let now = Heap::of_process();
        if now.bytes != last.bytes {
            (last, since) = (now, Instant::now());
        }
    }
    last.bytes
}

/// Sends `size` bytes; `sent` counts those that the kernel has accepted so far.
fn send(mut to: &TcpStream, size: u64, sent: &AtomicU64) {
    let block = vec![0x5a; BLOCK];
    let mut left = size;
    while left > 0 {
        let some = block.len().min(usize::try_from(left).unwrap());
        let n = to.write(&block[..some]).unwrap() as u64;
        left -= n;
        sent.fetch_add(n, Ordering::Relaxed);
    }
}

/// Waits until the sender is blocked: it has sent nothing for a while, since nothing is read.
fn until_stuck(sent: &AtomicU64) -> u64 {
    const QUIET: Duration = Duration::from_millis(300);
    let patience = Instant::now() + PATIENCE;
    let (mut last, mut since) = (sent.load(Ordering::Relaxed), Instant::now());
    while since.elapsed() < QUIET {
        assert!(Instant::now() < patience, "the sender never stops");
        thread::park_timeout(Duration::from_millis(5));
        let now = sent.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Outcome of one transfer.
struct Seen {
    /// Most bytes in flight while the reader stalled; then the heap maximum, and the heap that is left.
    on_the_way: u64,
    most: i64,
    left: i64,
}

/// Sends all bytes from one end to the other, whose reader stalls several times.
fn pass(nodes: &Nodes, from: &TcpStream, mut to: &TcpStream) -> Seen {
    let watched = Watched::start();
    let sent = AtomicU64::new(0);
    let mut on_the_way = 0;
    thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || send(from, SIZE, sent));
        let mut block = vec![0; BLOCK];
        let mut read = 0u64;
        for stall in 0..=STALLS {
            if stall < STALLS {
                let stuck = until_stuck(sent);
                assert!(
                    stuck < SIZE,
                    "all of it was taken, of which {read} were read"
                );
                on_the_way = on_the_way.max(stuck - read);
                // The sender has filled every buffer, and sent more than was read.
                assert!(stuck > read, "nothing comes");
            }
            let until = SIZE * (stall + 1) / (STALLS + 1);
            while read < until {
                let most = block.len().min(usize::try_from(until - read).unwrap());
                let n = match to.read(&mut block[..most]) {
                    Ok(n) => n as u64,
                    Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                    Err(error) => panic!("after {read} bytes: {error}"),
                };
                assert!(n > 0, "it ended after {read} bytes");
                read += n;
            }
        }
        assert_eq!(read, SIZE);
    });
    let patience = Instant::now() + PATIENCE;
    while nodes.blocks() > 0 {
        assert!(Instant::now() < patience, "blocks are held for nothing");
        thread::park_timeout(Duration::from_millis(20));
    }
    let (most, left) = watched.stop();
    Seen {
        on_the_way,
        most,
        left,
    }
}

/// Reads a head up to its blank line, byte by byte, so that the body stays unread.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A client that has sent this request head, and the endpoint's connection, which has read it.
fn asked(nodes: &Nodes, request: &str) -> (TcpStream, TcpStream) {
    let mut client = nodes.client();
    client.write_all(request.as_bytes()).unwrap();
    let mut server = nodes.server();
    head(&mut server);
    (client, server)
}

/// The endpoint sends a response head; it closes each connection afterwards.
fn answer(client: &mut TcpStream, server: &mut TcpStream, length: u64) {
    let answer =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    server.write_all(answer.as_bytes()).unwrap();
    assert!(head(client).starts_with("HTTP/1.1 200 "));
}

/// One body from the client to the endpoint, and one back.
fn bodies(nodes: &Nodes) -> [Seen; 2] {
    let get = "GET / HTTP/1.1\r\nHost: echo\r\n\r\n";
    // The first request allocates everything that is allocated only once.
    let (mut client, mut server) = asked(nodes, get);
    answer(&mut client, &mut server, 0);
    drop((client, server));

    let post = format!("POST / HTTP/1.1\r\nHost: echo\r\nContent-Length: {SIZE}\r\n\r\n");
    let (mut client, mut server) = asked(nodes, &post);
    let upload = pass(nodes, &client, &server);
    answer(&mut client, &mut server, 0);
    drop((client, server));

    let (mut client, mut server) = asked(nodes, get);
    answer(&mut client, &mut server, SIZE);
    [upload, pass(nodes, &server, &client)]
}

/// One byte stream in each direction.
fn streams(nodes: &Nodes) -> [Seen; 2] {
    let connect = || {
        let mut client = nodes.client();
        client.write_all(b"?").unwrap();
        let mut server = nodes.server();
        server.read_exact(&mut [0]).unwrap();
        server.write_all(b"!").unwrap();
        client.read_exact(&mut [0]).unwrap();
        (client, server)
    };
    // The first connection allocates everything that is allocated only once.
    drop(connect());
    let (client, server) = connect();
    let up = pass(nodes, &client, &server);
    drop((client, server));
    let (client, server) = connect();
    [up, pass(nodes, &server, &client)]
}

/// Limit of what a link holds at both ends (docs/link-protocol.md, "Bounds of a link"): bytes kept for a resend, and
/// bytes received for a stream and not read yet.
fn of_link() -> i64 {
    let limits = LinkLimits::INITIAL;
    i64::from(limits.link_window) + i64::from(limits.grown_window)
}

/// Checks that no more was held than documented: twice the window of a direction at each node, since the window is
/// granted again for bytes just taken out; what a link holds; and a little for everything else.
fn check(what: &str, nodes: &Nodes, seen: [Seen; 2]) {
    const ELSE: i64 = 256 << 10;
    let proxies = nodes.proxies.len() as i64;
    let links = if proxies > 1 { of_link() } else { 0 };
    let bound = proxies * 2 * nodes.window + links + ELSE;
    for (direction, seen) in ["there", "back"].iter().zip(seen) {
        let (most, left) = (seen.most, seen.left);
        eprintln!(
            "{what}, {direction}: {} KiB of heap at most, {} left; {} KiB on the way while nothing was read",
            most >> 10,
            left >> 10,
            seen.on_the_way >> 10
        );
        assert!(most > 0, "nothing was counted");
        assert!(most <= bound, "{what}, {direction}: {most} of {bound}");
        // Together with the kernel's buffers it is still a small part of the whole.
        assert!(seen.on_the_way < SIZE / 4, "{what}, {direction}");
    }
}

#[test]
fn a_body_of_any_size_passes_a_node_in_constant_memory() {
    let _alone = alone();
    let nodes = Nodes::new(1, AppProtocol::Http);
    let seen = bodies(&nodes);
    check("a body on one node", &nodes, seen);
}

#[test]
fn a_stream_of_any_size_passes_a_node_in_constant_memory() {
    let _alone = alone();
    let nodes = Nodes::new(1, AppProtocol::Tcp);
    let seen = streams(&nodes);
    check("a stream on one node", &nodes, seen);
}

#[test]
fn a_body_of_any_size_passes_a_link_in_constant_memory() {
    let _alone = alone();
    let nodes = Nodes::new(2, AppProtocol::Http);
    let seen = bodies(&nodes);
    check("a body over a link", &nodes, seen);
}

#[test]
fn a_stream_of_any_size_passes_a_link_in_constant_memory() {
    let _alone = alone();
    let nodes = Nodes::new(2, AppProtocol::Tcp);
    let seen = streams(&nodes);
    check("a stream over a link", &nodes, seen);
}
