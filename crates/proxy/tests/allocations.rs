//! A request on the steady path allocates nothing.
//!
//! The whole process is counted, so the client and the endpoint of this test allocate nothing
//! either. A test of its own: other tests in the process would be counted too.
#![allow(unsafe_code, reason = "a global allocator can only be written with it")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{
    AppProtocol, Backend, BackendTarget, Balancer, Endpoint, Filters, HttpMatch, Mesh, Mode,
    Outcome, PathMatch, Policy, PolicyAction, PolicyName, PolicyRule, RouteAction, RouteMatch,
    RouteRule, Service, ServiceAccountName, ServiceName, ServicePort, Workload, WorkloadName,
    WorkloadPort,
};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::Registry;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system's allocator as it came, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` got it there.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as for `dealloc`, and the caller promises that `new_size` is sound.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const GET: &[u8] = b"GET /api/items?page=2 HTTP/1.1\r\nHost: echo\r\nUser-Agent: test\r\n\
    Accept: */*\r\nX-Canary: 1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n";
const POST: &[u8] = b"POST /api/items HTTP/1.1\r\nHost: echo\r\nContent-Length: 5\r\n\r\nhello";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";

/// Answers whatever ends with a blank line or `hello`.
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

fn rule(path: &str, header: Option<(&str, &str)>) -> RouteRule {
    let service = ServiceName::parse("test/echo").unwrap();
    RouteRule {
        name: "test/route".into(),
        rule: 0,
        matcher: RouteMatch {
            path: PathMatch::Prefix(path.into()),
            method: None,
            headers: header
                .iter()
                .map(|(n, v)| ((*n).into(), (*v).into()))
                .collect(),
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters: Filters::default(),
            outcome: Outcome::Forward(vec![Backend {
                weight: 1,
                target: BackendTarget::Service { service, port: 80 },
                filters: Filters::default(),
            }]),
            request_timeout_ms: Some(10_000),
            backend_timeout_ms: None,
        }),
    }
}

fn mesh(endpoint: SocketAddr) -> Mesh {
    let rules = vec![
        rule("/admin", None),
        rule("/api", Some(("x-canary", "1"))),
        rule("", None),
    ];
    let port = ServicePort {
        name: None,
        port: 80,
        protocol: AppProtocol::Http,
        endpoints: vec![Endpoint {
            address: endpoint,
            weight: 1,
            workload: Some(WorkloadName::parse("test/echo").unwrap()),
            account: Some(ServiceAccountName::parse("test/echo").unwrap()),
            node: None,
        }],
        routes: Some(rules),
        consumer_routes: BTreeMap::new(),
    };
    let name = ServiceName::parse("test/echo").unwrap();
    let service = Service {
        name,
        headless: false,
        balancer: Balancer::LeastRequest,
        ports: vec![port],
    };
    let policies = vec![
        policy("callers", PolicyAction::Allow, &["GET", "POST"], &[]),
        policy("guests", PolicyAction::Deny, &[], &[("x-guest", "yes")]),
    ];
    let mesh = Mesh {
        generation: 1,
        services: vec![service],
        workloads: vec![workload(endpoint, &policies)],
        policies,
        ..Mesh::default()
    };
    mesh.check_invariants().unwrap();
    mesh
}

/// Everybody, for requests with one of these methods below `/` and all of these headers.
fn policy(
    name: &str,
    action: PolicyAction,
    methods: &[&str],
    headers: &[(&str, &str)],
) -> Arc<Policy> {
    let http = HttpMatch {
        methods: methods.iter().map(|&method| method.into()).collect(),
        paths: vec![PathMatch::Prefix(String::new())],
        path_starts: Vec::new(),
        headers: headers
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect(),
    };
    Arc::new(Policy {
        name: PolicyName::parse(&format!("AuthorizationPolicy test/{name}")).unwrap(),
        action,
        dry_run: false,
        rules: vec![PolicyRule {
            number: 0,
            sources: None,
            ports: Vec::new(),
            http: Some(http),
        }],
    })
}

fn workload(endpoint: SocketAddr, policies: &[Arc<Policy>]) -> Workload {
    Workload {
        name: WorkloadName::parse("test/echo").unwrap(),
        labels: BTreeMap::new(),
        service_account: ServiceAccountName::parse("test/echo").unwrap(),
        address: endpoint.ip(),
        ports: vec![WorkloadPort {
            name: None,
            port: endpoint.port(),
        }],
        weight: 1,
        node: None,
        mode: Mode::Permissive,
        policies: policies.iter().map(|policy| policy.name.clone()).collect(),
        probes: Vec::new(),
        command: None,
    }
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

#[test]
fn a_request_on_the_steady_path_allocates_nothing() {
    let proxy = Proxy::start(Settings::default(), Arc::new(Registry::new()), None).unwrap();
    proxy.apply(&mesh(endpoint()));
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
    // Long enough for a sweep, and for the Manager's second look, which both keep their memory, too.
    let warm = Instant::now() + Duration::from_millis(1_300);
    while Instant::now() < warm {
        rounds(50, &mut client, &mut buffer);
    }
    let before = ALLOCATIONS.load(Relaxed);
    rounds(2000, &mut client, &mut buffer);
    assert_eq!(
        ALLOCATIONS.load(Relaxed) - before,
        0,
        "allocations in 4000 requests"
    );
}
