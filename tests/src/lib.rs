//! A mesh for tests: a watched folder of manifests, a proxy that serves it, endpoints, and clients that generate load,
//! all in this process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle_model::ServiceName;
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::Registry;
use tokio::sync::oneshot;

/// Timeout of every wait.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of manifests, and a node that serves it.
pub struct Mesh {
    folder: tempfile::TempDir,
    address: SocketAddr,
    /// Stops the node when dropped.
    running: Option<oneshot::Sender<()>>,
    node: Option<JoinHandle<()>>,
}

impl Mesh {
    /// Serves `manifests` (file name and text), with one listener for any caller, which leads to port 80 of `service`.
    pub fn of(manifests: &[(&str, &str)], service: &str) -> Mesh {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in manifests {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let service = ServiceName::parse(service).unwrap();
        let entry = Entry::Service {
            caller: None,
            service,
            port: 80,
        };
        let (running, stopped) = oneshot::channel();
        let dir = folder.path().to_path_buf();
        let node = thread::spawn(move || serve(&dir, socket, &entry, stopped));
        Mesh {
            folder,
            address,
            running: Some(running),
            node: Some(node),
        }
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces a manifest atomically, as an editor or a volume does.
    pub fn edit(&self, name: &str, text: &str) {
        let new = self.file(".new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file(name)).unwrap();
    }

    /// Writes a manifest in place, with any content.
    pub fn scribble(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(node) = self.node.take() {
            let ended = node.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "the node ended by itself"
            );
        }
    }
}

/// Control plane and proxy, connected as in `heddle up`.
fn serve(dir: &Path, socket: TcpListener, entry: &Entry, mut stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let proxy = Proxy::start(Settings::default(), Arc::new(Registry::new()), None).unwrap();
        let mut watcher = heddle_compile::Watcher::new(dir);
        let mut socket = Some(socket);
        loop {
            let mesh = tokio::select! {
                _ = &mut stopped => break,
                (mesh, _) = watcher.next() => mesh,
            };
            // A refused folder leaves the served mesh in force.
            let Some(mesh) = mesh else { continue };
            proxy.apply(&mesh);
            if let Some(socket) = socket.take() {
                proxy.listen(1, socket, entry.clone());
            }
        }
        proxy.drain(Duration::from_secs(1)).await;
    });
}

/// An endpoint that answers every request with its name.
pub fn endpoint(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut wire = Wire::new(stream);
                let length = name.len();
                while wire.head().is_some() {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    if !wire.send(&format!("{head}{name}")) {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The answer to a client: status and body, or `None`.
pub type Answer = Option<(u16, String)>;

/// Clients that each send one request after the other over a kept connection.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<(Instant, Answer)>>>,
}

impl Load {
    /// Starts this number of clients.
    pub fn start(address: SocketAddr, clients: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    let mut wire = Wire::new(TcpStream::connect(address).unwrap());
                    let mut answers = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let answer = wire.get("/");
                        let failed = answer.is_none();
                        answers.push((Instant::now(), answer));
                        if failed {
                            break;
                        }
                    }
                    answers
                })
            })
            .collect();
        Load { stop, clients }
    }

    /// Stops the clients; returns every answer with its time, in order of time.
    pub fn stop(self) -> Vec<(Instant, Answer)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all: Vec<_> = self
            .clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }
}

/// Sends requests until the answer is the wanted one; returns how long that took.
pub fn until_answered(address: SocketAddr, wanted: &str) -> Duration {
    let began = Instant::now();
    let mut wire = Wire::new(TcpStream::connect(address).unwrap());
    loop {
        let answer = wire.get("/");
        if answer
            .as_ref()
            .is_some_and(|(status, body)| *status == 200 && body == wanted)
        {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "still {answer:?}, not {wanted}");
    }
}

/// A connection with the little HTTP that these tests need.
struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream) -> Wire {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Wire {
            stream,
            unread: Vec::new(),
        }
    }

    fn send(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).is_ok()
    }

    fn get(&mut self, path: &str) -> Answer {
        if !self.send(&format!("GET {path} HTTP/1.1\r\nHost: mesh\r\n\r\n")) {
            return None;
        }
        let head = self.head()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(Some(0), |length| length.parse().ok())?;
        while self.unread.len() < length {
            self.fill()?;
        }
        let rest = self.unread.split_off(length);
        let body = std::mem::replace(&mut self.unread, rest);
        Some((status, String::from_utf8(body).ok()?))
    }

    fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.unread.split_off(at + 4);
                let head = std::mem::replace(&mut self.unread, rest);
                return String::from_utf8(head).ok();
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let n = self.stream.read(&mut buffer).ok().filter(|&n| n > 0)?;
        self.unread.extend_from_slice(&buffer[..n]);
        Some(())
    }
}
