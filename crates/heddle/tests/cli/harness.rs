//! Runs `heddle up`, `heddle control` and other commands for tests.

use std::fs::{Permissions, set_permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Timeout: long enough for a busy machine, and normally never reached.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Runs the binary to its end.
pub(crate) fn heddle(args: &[&str]) -> Output {
    Command::new(OURS)
        .args(args)
        .output()
        .expect("the binary runs")
}

/// A loopback address of this call alone. A port of 127.0.0.1 that the kernel chose and that was let go of could be that
/// of another connection by the time a process listens there.
pub(crate) fn free_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    assert!(call < 250, "more addresses than a block has");
    // Blocks of processes that run at the same time differ.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 224 | high & 0x1f, low, call + 1], 15_008))
}

/// A folder of manifests with a private folder beside it for the socket.
pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("a mode");
        std::fs::create_dir(dir.path().join("mesh")).expect("a folder");
        Folder { dir }
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.dir.path().join("mesh")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("heddle.sock")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a manifest by renaming, as an editor does.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let beside = self.dir.path().join("new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.manifests().join(name)).expect("renamed");
    }
}

/// A namespace, a Service of that name on port 80, and as its endpoint a process at `backend` that heddle does not run.
/// The names differ between tests so that their addresses do.
pub(crate) fn service(namespace: &str, name: &str, backend: SocketAddr) -> String {
    let (ip, port) = (backend.ip(), backend.port());
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: {port}}}]
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}
spec:
  address: {ip}
  ports: [{{name: http, port: {port}}}]
"
    )
}

/// A running process. Dropping it kills it.
pub(crate) struct Heddle {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    socket: PathBuf,
}

/// The program of this build.
pub(crate) const OURS: &str = env!("CARGO_BIN_EXE_heddle");

impl Heddle {
    /// Starts `heddle up` and waits until its listeners are open.
    pub(crate) fn up(folder: &Folder, more: &[&str]) -> Heddle {
        let heddle = Self::start(folder, more);
        heddle.stdout_line("SERVICE");
        heddle
    }

    /// Starts `heddle up`.
    pub(crate) fn start(folder: &Folder, more: &[&str]) -> Heddle {
        Self::start_by(Command::new(OURS), folder, more)
    }

    /// Like [`Heddle::up`], with further variables of the environment.
    pub(crate) fn up_with(folder: &Folder, environment: &[(&str, &str)], more: &[&str]) -> Heddle {
        let mut command = Command::new(OURS);
        command.envs(environment.iter().copied());
        let heddle = Self::start_by(command, folder, more);
        heddle.stdout_line("SERVICE");
        heddle
    }

    /// Starts `heddle control` with further variables of the environment, and does not wait.
    pub(crate) fn control_with(
        folder: &Folder,
        environment: &[(&str, &str)],
        more: &[&str],
    ) -> Heddle {
        let mut command = Command::new(OURS);
        command.envs(environment.iter().copied()).arg("control");
        Self::spawn(command, folder, more)
    }

    /// Starts `heddle up` with a limit of open files.
    pub(crate) fn start_with_descriptors(most: u32, folder: &Folder, more: &[&str]) -> Heddle {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_heddle")]);
        Self::start_by(shell, folder, more)
    }

    fn start_by(mut command: Command, folder: &Folder, more: &[&str]) -> Heddle {
        command.arg("up");
        Self::spawn(command, folder, more)
    }

    /// Starts `heddle control` at a fixed address, so that a restarted one has the same address.
    pub(crate) fn control_at(folder: &Folder, listen: SocketAddr, more: &[&str]) -> Heddle {
        Self::control_by(OURS, folder, listen, more)
    }

    /// Like [`Heddle::control_at`], by another program.
    pub(crate) fn control_by(
        program: &str,
        folder: &Folder,
        listen: SocketAddr,
        more: &[&str],
    ) -> Heddle {
        let mut command = Command::new(program);
        command
            .args(["control", "--listen", &listen.to_string(), "--state"])
            .arg(folder.path("state"));
        let heddle = Self::spawn(command, folder, more);
        heddle.stderr_line("nodes are served at");
        heddle
    }

    /// Starts `heddle node`, with its state and its socket beside the manifests.
    pub(crate) fn node(folder: &Folder, name: &str, control: SocketAddr, more: &[&str]) -> Heddle {
        Self::node_by(OURS, folder, name, control, more)
    }

    /// Like [`Heddle::node`], by another program.
    pub(crate) fn node_by(
        program: &str,
        folder: &Folder,
        name: &str,
        control: SocketAddr,
        more: &[&str],
    ) -> Heddle {
        let mut command = Command::new(program);
        command
            .args(["node", "--name", name, "--control", &control.to_string()])
            .args(["--listen", "127.0.0.1:0", "--state"])
            .arg(folder.path(name))
            .args(more);
        Self::spawn_at(command, folder.path(&format!("{name}.sock")))
    }

    /// Starts `heddle control`, with its state beside the manifests, waits until nodes are served, and returns its
    /// address.
    pub(crate) fn control(folder: &Folder, more: &[&str]) -> (Heddle, SocketAddr) {
        Self::control_asked_at(folder.socket(), folder, more)
    }

    /// Like [`Heddle::control`], with another admin socket.
    pub(crate) fn control_asked_at(
        socket: PathBuf,
        folder: &Folder,
        more: &[&str],
    ) -> (Heddle, SocketAddr) {
        let mut command = Command::new(OURS);
        command
            .args(["control", "--listen", "127.0.0.1:0", "--state"])
            .arg(folder.path("state"))
            .arg(folder.manifests())
            .args(more);
        let heddle = Self::spawn_at(command, socket);
        let line = heddle.stderr_line("nodes are served at");
        let address = line.rsplit(' ').next().and_then(|at| at.parse().ok());
        (heddle, address.expect("an address"))
    }

    /// Starts `heddle control` with this socket and further arguments, and does not wait.
    pub(crate) fn control_of(socket: &Path, manifests: &Path, more: &[&str]) -> Heddle {
        let mut command = Command::new(OURS);
        command
            .args(["control", "--listen", "127.0.0.1:0"])
            .arg(manifests)
            .args(more);
        Self::spawn_at(command, socket.to_owned())
    }

    fn spawn(mut command: Command, folder: &Folder, more: &[&str]) -> Heddle {
        command.arg(folder.manifests()).args(more);
        Self::spawn_at(command, folder.socket())
    }

    fn spawn_at(mut command: Command, socket: PathBuf) -> Heddle {
        let mut child = command
            .arg("--socket")
            .arg(&socket)
            .args(["--metrics", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        Heddle {
            child,
            stdout,
            stderr,
            socket,
        }
    }

    /// Waits for a line with this text on standard output.
    pub(crate) fn stdout_line(&self, text: &str) -> String {
        line_with(&self.stdout, text)
    }

    /// Waits for a line with this text on standard error.
    pub(crate) fn stderr_line(&self, text: &str) -> String {
        line_with(&self.stderr, text)
    }

    /// The lines of standard error before the next one with this text.
    pub(crate) fn stderr_before(&self, text: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            match self.stderr.recv_timeout(LONG) {
                Ok(line) if line.contains(text) => return before,
                Ok(line) => before.push(line),
                Err(_) => panic!("no line with {text:?} among {before:#?}"),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for the end.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.unwrap_or_else(|| ExitStatus::from_raw(0))
    }

    pub(crate) fn status(&self) -> Value {
        let socket = self.socket.to_str().expect("UTF-8");
        let output = heddle(&["status", "--socket", socket, "--output", "json"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The address of a Service, as this caller dials it.
    pub(crate) fn address(&self, service: &str, caller: Option<&str>) -> SocketAddr {
        self.listener(|l| l["service"] == service && l["caller"].as_str() == caller)
    }

    /// The forward proxy of a workload.
    pub(crate) fn forward_proxy(&self, caller: &str) -> SocketAddr {
        self.listener(|l| l["kind"] == "forward-proxy" && l["caller"] == caller)
    }

    fn listener(&self, is: impl Fn(&Value) -> bool) -> SocketAddr {
        let status = self.status();
        let listeners = status["listeners"].as_array().expect("a list");
        let found = listeners.iter().find(|listener| is(listener));
        let address = found.and_then(|listener| listener["address"].as_str());
        address
            .and_then(|a| a.parse().ok())
            .unwrap_or_else(|| panic!("no such listener: {status}"))
    }

    pub(crate) fn metrics(&self) -> SocketAddr {
        let status = self.status();
        status["metrics"]
            .as_str()
            .and_then(|a| a.parse().ok())
            .expect("an address")
    }
}

impl Drop for Heddle {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(4_096);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

pub(crate) fn line_with(lines: &Receiver<String>, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(LONG) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => seen.push(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("no line with {text:?} among {seen:#?}")
            }
        }
    }
}

/// Polls a condition until it holds, at most for [`LONG`].
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came about that {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Sends a request on a connection of its own, and returns status and body.
pub(crate) fn get(at: SocketAddr, host: &str, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )
    .expect("sent");
    answer(stream)
}

/// Names of all metrics of a page, as in queries, and their types.
pub(crate) fn families(page: &str) -> Vec<(String, &str)> {
    let families = page.strip_suffix("# EOF\n").expect("an end");
    assert!(!families.contains("# EOF"), "one end");
    let types = families
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(name, kind)| match kind {
            "counter" => (format!("{name}_total"), kind),
            _ => (name.to_owned(), kind),
        })
        .collect()
}

/// Reads an answer that ends with the connection.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status: {head}")),
        body.to_owned(),
    )
}

/// A server that answers every request with its name. It runs until the test process ends.
pub(crate) fn backend(name: &'static str) -> SocketAddr {
    backend_at([127, 0, 0, 1], name)
}

/// Like [`backend`], on another loopback address: workloads of one mesh do not share one.
pub(crate) fn backend_at(ip: [u8; 4], name: &'static str) -> SocketAddr {
    serve(ip, move || respond(name))
}

/// A server that reports each request, and answers when it is told to.
pub(crate) fn held_backend() -> (SocketAddr, Receiver<()>, SyncSender<()>) {
    let (came, requests) = sync_channel(16);
    let (go, told) = sync_channel::<()>(16);
    let address = serve([127, 0, 0, 1], move || {
        let _test_is_over = came.send(());
        let _test_is_over = told.recv_timeout(LONG);
        respond("held")
    });
    (address, requests, go)
}

fn respond(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn serve(ip: [u8; 4], mut respond: impl FnMut() -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from((ip, 0))).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = String::new();
            let mut reader = BufReader::new(&stream);
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let _client_is_gone = stream.write_all(respond().as_bytes());
        }
    });
    address
}

/// A process id from the end of a line.
pub(crate) fn pid_at_end(line: &str) -> Pid {
    let number = line
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok());
    number
        .and_then(Pid::from_raw)
        .unwrap_or_else(|| panic!("no process id in {line:?}"))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn as_str(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
