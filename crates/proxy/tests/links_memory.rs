//! Memory of an idle link: heap bytes at one end, averaged over two thousand links.
//!
//! Both ends are in this process, and all its heap is counted, so this test has a process of its own. Other memory
//! for each caller (metric series, TLS session tickets) is allocated before the measurement, by a first link that is
//! closed again. Kernel memory is printed but not checked: it depends on the machine and on everything else that runs
//! there.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

#[path = "allocations/mesh.rs"]
mod mesh;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_counting::{Counting, Heap};
use heddle_model::{
    Mesh, NodeName, Policy, ServiceAccountName, ServiceName, SpiffeId, WorkloadName,
};
use heddle_proxy::{Elasticity, Entry, Proxy, Settings};
use heddle_telemetry::Registry;
use heddle_transport::fixture::{Authority, DAY, NOW, clock};
use heddle_transport::{Denied, Identities, Trust};

/// Number of links, each with its own caller.
const LINKS: usize = 2_000;
/// Limit in bytes for one end of a link.
const MOST: i64 = 8 * 1024;
/// Time until an idle link has freed everything it can.
const AT_REST: Duration = Duration::from_secs(8);

#[global_allocator]
static COUNTING: Counting = Counting;

/// The kernel's slab caches, which hold sockets, and its TCP buffers, in bytes.
fn kernel_memory() -> (i64, i64) {
    let number = |file: &str, line: &str, word: &str| {
        let text = fs::read_to_string(file).unwrap();
        let line = text.lines().find(|one| one.starts_with(line)).unwrap();
        let mut words = line.split_whitespace();
        words.find(|one| *one == word).unwrap();
        words.next().unwrap().parse::<i64>().unwrap()
    };
    let slab = number("/proc/meminfo", "Slab:", "Slab:") * 1024;
    let pages = number("/proc/net/sockstat", "TCP:", "mem");
    (slab, pages * rustix::param::page_size() as i64)
}

/// Answers every request head with a body of two bytes, and closes.
fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut bytes = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                let n = stream.read(&mut bytes).unwrap();
                head.extend_from_slice(&bytes[..n]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).unwrap();
        }
    });
    address
}

struct Node {
    proxy: Proxy,
    registry: Arc<Registry>,
}

impl Node {
    fn links(&self) -> usize {
        let mut text = String::new();
        self.registry.render(&mut text);
        let lines = text.lines();
        let links = lines.filter(|line| line.starts_with("heddle_links_active{"));
        let counts = links.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum()
    }
}

fn caller(number: usize) -> String {
    format!("test/caller-{number}")
}

/// The mesh, with as many callers as links.
fn crowded(mut mesh: Mesh) -> Mesh {
    let template = mesh.workloads[0].clone();
    mesh.policies = Vec::<Arc<Policy>>::new();
    mesh.workloads[0].policies = Vec::new();
    for number in 0..LINKS {
        let mut workload = template.clone();
        workload.name = WorkloadName::parse(&caller(number)).unwrap();
        workload.service_account = ServiceAccountName::parse(&caller(number)).unwrap();
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        workload.address = [127, 7, high, low].into();
        workload.node = Some(NodeName::parse("here").unwrap());
        workload.policies = Vec::new();
        mesh.put_workload(workload);
    }
    mesh
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < patience, "{what}");
        thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "takes three minutes; `make soak` runs it"]
fn an_idle_link_holds_little() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mesh = mesh::on_another_node(endpoint(), socket.local_addr().unwrap());
    let mesh = crowded(mesh);
    let authority = Authority::new();
    let trust = Trust::new(
        mesh.trust_domain.clone(),
        std::slice::from_ref(&authority.root),
        Denied::default(),
    );
    let trust = Arc::new(trust.unwrap());
    let leaf = |id: &SpiffeId| authority.leaf(id, NOW - DAY, NOW + DAY);
    let mut settings = Settings {
        workers: Elasticity {
            min: 1,
            max: 1,
            ..Elasticity::default()
        },
        ..Settings::default()
    };
    settings.bounds.links = LINKS;
    let node = |name: &str| {
        let name = NodeName::parse(name).unwrap();
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(settings.clone(), Arc::clone(&registry), None).unwrap();
        proxy.apply(&mesh.for_node(&name));
        let own = mesh.workloads.iter();
        let own = own.filter(|workload| workload.node.as_ref() == Some(&name));
        let leaves = own.map(|workload| {
            let account = workload.service_account.clone();
            leaf(&SpiffeId::workload(mesh.trust_domain.clone(), account))
        });
        let node = leaf(&SpiffeId::node(mesh.trust_domain.clone(), name.clone()));
        let identities = Identities::new(Arc::clone(&trust), clock(), node, leaves);
        proxy.identify(Arc::new(identities.unwrap()));
        Node { proxy, registry }
    };
    let (here, there) = (node("here"), node("there"));
    there.proxy.listen(1, socket, Entry::Mesh);
    let doors: Vec<SocketAddr> = (0..LINKS)
        .map(|number| {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let entry = Entry::Service {
                caller: Some(WorkloadName::parse(&caller(number)).unwrap()),
                service: ServiceName::parse("test/echo").unwrap(),
                port: 80,
            };
            here.proxy.listen(number as u64 + 2, socket, entry);
            address
        })
        .collect();
    let call_all = || {
        for door in &doors {
            let mut client = TcpStream::connect(door).unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: echo\r\nConnection: close\r\n\r\n";
            client.write_all(request).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    };
    call_all();
    wait_until("idle links are closed", || {
        here.links() == 0 && there.links() == 0
    });
    thread::park_timeout(AT_REST);
    let kernel_before = kernel_memory();
    let before = Heap::of_process().bytes;
    call_all();
    let begun = Instant::now();
    while begun.elapsed() < AT_REST {
        thread::park_timeout(AT_REST.saturating_sub(begun.elapsed()));
    }
    assert_eq!((here.links(), there.links()), (LINKS, LINKS));
    let of_one_end = |all: i64| all / (2 * LINKS as i64);
    let each = of_one_end(Heap::of_process().bytes - before);
    println!("an idle link: {each} bytes of heap at one end, over {LINKS} links");
    let kernel = kernel_memory();
    println!(
        "beside it in the kernel: {} bytes of objects, {} bytes of buffers",
        of_one_end(kernel.0 - kernel_before.0),
        of_one_end(kernel.1 - kernel_before.1)
    );
    assert!(each <= MOST, "{each} bytes of heap for each end of a link");
}
