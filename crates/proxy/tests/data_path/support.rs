//! A proxy with one Service, an upstream that a test scripts byte by byte, and a client that sends
//! bytes as they are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{
    AppProtocol, Balancer, Endpoint, Mesh, RouteRule, Service, ServiceName, ServicePort,
};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::{AccessLog, Registry, Target};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Longest wait for anything in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Bed {
    pub(crate) proxy: Proxy,
    pub(crate) registry: Arc<Registry>,
    pub(crate) address: SocketAddr,
}

pub(crate) fn service(name: &str, endpoints: &[SocketAddr]) -> Service {
    Service {
        name: ServiceName::parse(name).unwrap(),
        headless: false,
        addresses: Vec::new(),
        balancer: Balancer::RoundRobin,
        balancing: heddle_model::Balancing::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: endpoints
                .iter()
                .map(|&address| Endpoint {
                    address,
                    weight: 1,
                    max_requests: None,
                    workload: None,
                    account: None,
                    node: None,
                })
                .collect(),
            routes: None,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

pub(crate) fn mesh(endpoints: &[SocketAddr], routes: Option<Vec<RouteRule>>) -> Mesh {
    let mut echo = service("test/echo", endpoints);
    echo.ports[0].routes = routes;
    Mesh {
        generation: 1,
        services: vec![echo],
        ..Mesh::default()
    }
}

impl Bed {
    /// A proxy before `test/echo` with these endpoints.
    pub(crate) fn new(endpoints: &[SocketAddr]) -> Bed {
        Bed::with(Settings::default(), &mesh(endpoints, None))
    }

    pub(crate) fn with(settings: Settings, mesh: &Mesh) -> Bed {
        Bed::start(settings, mesh, None)
    }

    /// The same, with an access log.
    pub(crate) fn logged(settings: Settings, mesh: &Mesh) -> (Bed, Log) {
        let (log, lines) = Log::open();
        (Bed::start(settings, mesh, Some(log)), lines)
    }

    fn start(settings: Settings, mesh: &Mesh, log: Option<AccessLog>) -> Bed {
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(settings, Arc::clone(&registry), log).unwrap();
        proxy.apply(mesh);
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
        Bed {
            proxy,
            registry,
            address,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The value of a metric, summed over the lines that contain all of `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        count(&self.registry, name, labels)
    }

    /// Waits until a metric has this value: a request is counted just after its answer is sent.
    pub(crate) fn expect_metric(&self, name: &str, labels: &[&str], value: f64) {
        expect(&self.registry, name, labels, value);
    }
}

/// Waits until a metric has this value.
pub(crate) fn expect(registry: &Registry, name: &str, labels: &[&str], value: f64) {
    let patience = Instant::now() + PATIENCE;
    while count(registry, name, labels) != value {
        let now = count(registry, name, labels);
        assert!(
            Instant::now() < patience,
            "{name} {labels:?} is {now}, not {value}"
        );
        thread::yield_now();
    }
}

/// The value of a metric, summed over the lines that contain all of `labels`.
pub(crate) fn count(registry: &Registry, name: &str, labels: &[&str]) -> f64 {
    let mut text = String::new();
    registry.render(&mut text);
    text.lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// What the access log holds, line by line.
pub(crate) struct Log {
    lines: RefCell<BufReader<File>>,
    _dir: tempfile::TempDir,
}

impl Log {
    /// An access log, and what is read of it.
    pub(crate) fn open() -> (AccessLog, Log) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let log = AccessLog::open(Target::File(path.clone())).unwrap();
        let lines = BufReader::new(File::open(path).unwrap());
        let lines = RefCell::new(lines);
        (log, Log { lines, _dir: dir })
    }

    /// Waits for the next line.
    pub(crate) fn line(&self) -> String {
        let patience = Instant::now() + PATIENCE;
        let mut line = String::new();
        while !line.ends_with('\n') {
            assert!(Instant::now() < patience, "no line after {line:?}");
            if self.lines.borrow_mut().read_line(&mut line).unwrap() == 0 {
                thread::park_timeout(Duration::from_millis(2));
            }
        }
        line
    }
}

/// A raw connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// A response as it was read.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// The first value of a field in a head.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::of(stream)
    }

    /// Either end of a connection that there is.
    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads a head up to and with its blank line.
    pub(crate) fn head(&mut self) -> String {
        self.try_head().expect("a head, not the end of the stream")
    }

    /// Reads a head; `None` when the stream ends before one begins.
    pub(crate) fn try_head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.unread.split_off(at + 4);
                let head = std::mem::replace(&mut self.unread, rest);
                return Some(String::from_utf8(head).expect("text"));
            }
            if self.fill() == 0 {
                assert!(
                    self.unread.is_empty(),
                    "the head is whole: {:?}",
                    self.unread
                );
                return None;
            }
        }
    }

    /// Reads exactly this many bytes.
    pub(crate) fn exact(&mut self, n: usize) -> Vec<u8> {
        while self.unread.len() < n {
            assert!(
                self.fill() > 0,
                "the stream ended after {} of {n} bytes",
                self.unread.len()
            );
        }
        let rest = self.unread.split_off(n);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Reads a response whose body has a Content-Length (or none).
    pub(crate) fn response(&mut self) -> Response {
        let head = self.head();
        let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
        let body = self.exact(length);
        Response { head, body }
    }

    /// Everything until the other side closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.unread)
    }

    fn fill(&mut self) -> usize {
        let mut buffer = [0; 65536];
        let n = match self.stream.read(&mut buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("reading: {error}"),
        };
        self.unread.extend_from_slice(&buffer[..n]);
        n
    }
}

/// An upstream whose connections a test takes one by one.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    connections: Receiver<TcpStream>,
}

impl Upstream {
    pub(crate) fn new() -> Upstream {
        Upstream::at("127.0.0.1:0")
    }

    /// One at this address.
    pub(crate) fn at(address: &str) -> Upstream {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (send, connections): (SyncSender<TcpStream>, _) = sync_channel(64);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if send.send(stream).is_err() {
                    return;
                }
            }
        });
        Upstream {
            address,
            connections,
        }
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Client {
        let stream = self
            .connections
            .recv_timeout(PATIENCE)
            .expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            unread: Vec::new(),
        }
    }

    /// Whether a connection waits to be taken.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.try_recv().is_err()
    }
}

/// An upstream that answers every request with 200 and what `answer` makes of its head.
pub(crate) fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0", answer)
}

/// The same at this address.
pub(crate) fn serve_at(
    address: &str,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut client = Client {
                    stream,
                    unread: Vec::new(),
                };
                while let Some(head) = client.try_head() {
                    let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
                    client.exact(length);
                    let body = answer(&head);
                    client.send(format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    ));
                }
            });
        }
    });
    address
}

/// Allows as many descriptors as there may be: both ends of every connection are in this process.
pub(crate) fn allow_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A connection from an address of loopback.
pub(crate) fn connect_from(source: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}
