//! Random edits of a mesh: a node that names what it uses answers each request as a node that has everything, and as a
//! node that has just been started.
//!
//! Real proxies answer; the control plane's side and the node's side of the protocol run between them without a network.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use heddle_compile::load_text;
use heddle_proxy::{Elasticity, Entry, OriginalDestination, Proxy, Questions, Settings};
use heddle_telemetry::Registry;

use super::*;

/// Requests after each edit.
const ASKED: usize = 6;
const PATIENCE: Duration = Duration::from_secs(10);

/// Original destinations of connections, by listener.
static GOING: Mutex<BTreeMap<SocketAddr, SocketAddr>> = Mutex::new(BTreeMap::new());

fn going(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let socket = socket.try_clone_to_owned()?;
    let local = TcpStream::from(socket).local_addr()?;
    let going = GOING.lock().unwrap().get(&local).copied();
    going.ok_or(io::ErrorKind::NotFound.into())
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }
}

/// A Service of the edited folder. The first two have workloads of this node, the third one of another node, and the
/// others programs outside of the mesh.
#[derive(Debug, Clone, Default)]
struct Written {
    is_there: bool,
    is_headless: bool,
    is_tcp: bool,
    /// The namespace and the backend of a route.
    route: Option<(&'static str, usize)>,
    endpoints: usize,
}

const WRITTEN: usize = 7;
/// Actions of the policy that selects the first Service's workload.
const POLICIES: [Option<&str>; 3] = [None, Some("ALLOW"), Some("DENY")];

#[derive(Debug, Clone, Default)]
struct Folder {
    services: [Written; WRITTEN],
    policy: usize,
    is_strict: bool,
}

impl Folder {
    fn edit(&mut self, random: &mut Random) {
        let of = &mut self.services[random.below(WRITTEN)];
        match random.below(8) {
            0 | 1 => of.is_there = !random.one_in(4),
            2 => of.is_headless = random.one_in(3),
            3 => of.is_tcp = random.one_in(4),
            4 => {
                let namespace = ["shop", "other"][random.below(2)];
                of.route = (!random.one_in(3)).then(|| (namespace, random.below(WRITTEN)));
            }
            5 => of.endpoints = random.below(4).min(2),
            6 => self.policy = random.below(POLICIES.len()),
            _ => self.is_strict = !self.is_strict,
        }
    }

    fn text(&self, port: u16) -> String {
        let mode = if self.is_strict {
            "strict"
        } else {
            "permissive"
        };
        let mut all = vec![
            format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: shop, labels: {{heddle.dev/mode: {mode}}}}}}}"
            ),
            workload("shop/web", "a", "127.40.9.1", port),
            workload("other/cli", "a", "127.40.9.2", port),
        ];
        for (number, of) in self.services.iter().enumerate() {
            let name = format!("s{number}");
            if number < 3 {
                let node = if number < 2 { "a" } else { "b" };
                let address = format!("127.40.{}.1", number + 1);
                all.push(workload(&format!("shop/{name}"), node, &address, port));
            }
            if !of.is_there {
                continue;
            }
            let protocol = if of.is_tcp { "tcp" } else { "http" };
            let address = match of.is_headless {
                true => "None".to_owned(),
                false => format!("10.96.0.{}", number + 1),
            };
            let selector = match number < 3 {
                true => format!("selector: {{app: {name}}}, "),
                false => String::new(),
            };
            all.push(format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{{selector}\
                 clusterIP: {address}, ports: [{{name: {protocol}, port: 80, targetPort: {port}}}]}}}}"
            ));
            if number >= 3 && of.endpoints > 0 {
                let endpoints = (0..of.endpoints)
                    .map(|one| format!("{{addresses: [127.41.{number}.{}]}}", one + 1));
                let endpoints = endpoints.collect::<Vec<_>>().join(", ");
                all.push(format!(
                    "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: {name}, \
                     namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}, endpoints: [{endpoints}], \
                     ports: [{{name: {protocol}, port: {port}}}]}}"
                ));
            }
            if let Some((namespace, to)) = of.route.filter(|_| !of.is_tcp) {
                all.push(format!(
                    "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: \
                     {namespace}}}, spec: {{parentRefs: [{{group: '', kind: Service, name: {name}, namespace: shop}}], \
                     rules: [{{matches: [{{path: {{value: /r}}}}], backendRefs: [{{name: s{to}, namespace: shop, port: 80}}]}}]}}}}"
                ));
            }
        }
        if let Some(action) = POLICIES[self.policy] {
            all.push(format!(
                "{{apiVersion: heddle.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: p, namespace: shop}}, spec: \
                 {{targetRefs: [{{kind: Pod, selector: {{matchLabels: {{app: s0}}}}}}], action: {action}, rules: [{{sources: \
                 [{{type: ServiceAccount, serviceAccount: {{name: web}}}}], networkAttributes: {{ports: [{port}]}}}}]}}}}"
            ));
        }
        all.join("\n---\n")
    }
}

fn workload(name: &str, node: &str, address: &str, port: u16) -> String {
    let (namespace, name) = name.split_once('/').unwrap();
    format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}\n---\n{{apiVersion: \
         heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{name: {name}, namespace: {namespace}, labels: {{app: \
         {name}}}}}, spec: {{nodeName: {node}, address: {address}, serviceAccountName: {name}, ports: [{{port: {port}}}]}}}}"
    )
}

/// Serves HTTP at one port of all loopback addresses: the answer's body is the address that was called.
fn serve_everywhere() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let _ended = answer_all(stream);
            });
        }
    });
    port
}

fn answer_all(mut stream: TcpStream) -> io::Result<()> {
    let at = stream.local_addr()?.ip().to_string();
    loop {
        let asked = head(&mut stream)?;
        if asked.is_empty() {
            return Ok(());
        }
        let length = at.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{at}");
        stream.write_all(answer.as_bytes())?;
        // A connection that is passed on as bytes, as the client has said it.
        if String::from_utf8_lossy(&asked).contains("Connection: close") {
            return Ok(());
        }
    }
}

/// Reads up to the end of a head; what there was when the stream ended.
fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    Ok(head)
}

/// A node with a real proxy.
struct ServingNode {
    side: Side,
    proxy: Proxy,
    questions: Questions,
    /// Forward proxies, by caller.
    forward: BTreeMap<&'static str, SocketAddr>,
    /// Listeners for intercepted connections, by caller and destination.
    outbound: BTreeMap<(&'static str, SocketAddr), SocketAddr>,
    /// Questions so far.
    asked: usize,
}

/// What a request calls, and how.
#[derive(Debug, Clone, Copy)]
struct Call {
    caller: &'static str,
    service: usize,
    /// The address that is dialled; by name if there is none.
    address: Option<SocketAddr>,
    path: &'static str,
}

const CALLERS: [&str; 2] = ["shop/web", "other/cli"];

impl Call {
    fn any(random: &mut Random, port: u16) -> Call {
        let service = random.below(WRITTEN);
        let number = service as u8;
        let address = match random.below(5) {
            0 => Some(SocketAddr::from(([10, 96, 0, number + 1], 80))),
            1 => Some(SocketAddr::from(([127, 40, number % 3 + 1, 1], port))),
            2 => Some(SocketAddr::from(([127, 41, number, 1], port))),
            3 if random.one_in(3) => Some(SocketAddr::from(([10, 9, 9, number], 80))),
            _ => None,
        };
        Call {
            caller: CALLERS[random.below(2)],
            service,
            address,
            path: ["/r", "/"][random.below(2)],
        }
    }
}

impl ServingNode {
    fn new(side: Side, board: &Board) -> Self {
        let questions = Questions::default();
        let settings = Settings {
            original_destination: OriginalDestination(going),
            questions: Some(questions.clone()),
            workers: Elasticity {
                min: 1,
                max: 1,
                ..Elasticity::default()
            },
            ..Settings::default()
        };
        let proxy = Proxy::start(settings, Arc::new(Registry::new()), None).unwrap();
        let mut node = ServingNode {
            side,
            proxy,
            questions,
            forward: BTreeMap::new(),
            outbound: BTreeMap::new(),
            asked: 0,
        };
        node.follow(board);
        node
    }

    /// Listens, for good.
    fn listen(&self, entry: Entry) -> SocketAddr {
        let id = (self.forward.len() + self.outbound.len()) as u64 + 1;
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        self.proxy.listen(id, socket, entry);
        at
    }

    /// The protocol goes on until nothing is under way. Returns whether there is another mesh.
    fn step(&mut self, board: &Board) -> bool {
        for (dependency, _) in self.questions.take() {
            self.side.known.want(&dependency);
            self.asked += 1;
        }
        let before = self.side.used.take();
        while self.side.step(board) {}
        match (&self.side.used, before) {
            (Some(mesh), _) => {
                self.proxy.apply(mesh);
                true
            }
            (None, before) => {
                self.side.used = before;
                false
            }
        }
    }

    /// As [`Self::step`], and waits until the proxy uses the mesh.
    fn follow(&mut self, board: &Board) {
        self.step(board);
        let generation = self.side.used.as_ref().unwrap().generation as i64;
        let patience = Instant::now() + PATIENCE;
        let is_used = |proxy: &Proxy| {
            let workers = proxy.status().workers;
            !workers.is_empty()
                && workers
                    .iter()
                    .all(|one| one.config_generation == generation)
        };
        while !is_used(&self.proxy) {
            assert!(
                Instant::now() < patience,
                "generation {generation} is not used"
            );
            thread::yield_now();
        }
    }

    /// The answer to a call: status and body, or that there is none.
    fn ask(&mut self, call: Call, board: &Board) -> String {
        let host = format!("s{}.shop", call.service);
        let (at, target) = match call.address {
            Some(address) => (self.outbound(call.caller, address), call.path.to_owned()),
            None => (
                self.forward(call.caller),
                format!("http://{host}{}", call.path),
            ),
        };
        let mut stream = match TcpStream::connect(at) {
            Ok(stream) => stream,
            // The reset may be here before the connection is made.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return "none ".into(),
            Err(error) => panic!("{call:?}: {error}"),
        };
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        // It may be refused before that.
        let _refused = stream.write_all(request.as_bytes());
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let (mut answer, patience) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            let mut some = [0; 1_024];
            match stream.read(&mut some) {
                Ok(0) => break,
                Ok(read) => answer.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(Instant::now() < patience, "{call:?}: no answer");
                    self.step(board);
                }
                Err(_) => break,
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or("none");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        // Any endpoint of the Service may answer: they differ in the last number.
        let body = body.trim_end_matches(|last: char| last.is_ascii_digit());
        format!("{status} {body}")
    }

    fn forward(&mut self, caller: &'static str) -> SocketAddr {
        if let Some(at) = self.forward.get(caller) {
            return *at;
        }
        let at = self.listen(Entry::ForwardProxy {
            caller: WorkloadName::parse(caller).unwrap(),
        });
        self.forward.insert(caller, at);
        at
    }

    fn outbound(&mut self, caller: &'static str, address: SocketAddr) -> SocketAddr {
        if let Some(at) = self.outbound.get(&(caller, address)) {
            return *at;
        }
        let at = self.listen(Entry::Outbound {
            caller: WorkloadName::parse(caller).unwrap(),
        });
        GOING.lock().unwrap().insert(at, address);
        self.outbound.insert((caller, address), at);
        at
    }
}

#[test]
fn whatever_a_node_knows_it_answers_as_if_it_knew_all() {
    answers_are_alike_after(150);
}

#[test]
#[ignore = "slow: 10,000 edits"]
fn whatever_a_node_knows_it_answers_as_if_it_knew_all_for_long() {
    answers_are_alike_after(10_000);
}

/// Makes requests to a node that knows all, to one that learns, and to some that have just been started, after each of this
/// many edits.
fn answers_are_alike_after(edits: usize) {
    let port = serve_everywhere();
    let board = Board::new(Nodes::default()).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut folder = Folder::default();
    for of in &mut folder.services {
        (of.is_there, of.endpoints) = (true, 1);
    }
    let compiled = |folder: &Folder| {
        let text = folder.text(port);
        let (mesh, report) = load_text(Path::new("/mesh/a.yaml"), text.as_bytes());
        (mesh, format!("{report:?}\n{text}"))
    };
    board.put(compiled(&folder).0.expect("the first mesh"));
    let mut eager = ServingNode::new(Side::new("a"), &board);
    let mut lazy = ServingNode::new(Side::on_demand("a"), &board);
    let (mut valid, mut answers, mut refused) = (0, BTreeMap::new(), String::new());
    let mut known_less = 0;
    for edit in 0..edits {
        let before = folder.clone();
        folder.edit(&mut random);
        let (mesh, report) = compiled(&folder);
        let Some(mesh) = mesh else {
            (folder, refused) = (before, report);
            continue;
        };
        valid += 1;
        board.put(mesh);
        eager.follow(&board);
        lazy.follow(&board);
        // Some of what it knows is forgotten.
        let (all, some) = (eager.side.used.as_ref(), lazy.side.used.as_ref());
        known_less +=
            usize::from(all.map(|mesh| mesh.services.len()) > some.map(|mesh| mesh.services.len()));
        let named = some.and_then(|mesh| mesh.named.clone());
        for (dependency, _) in named.unwrap_or_default().iter() {
            if random.one_in(8) {
                lazy.side.known.forget(dependency);
            }
        }
        let mut fresh = random
            .one_in(10)
            .then(|| ServingNode::new(Side::on_demand("a"), &board));
        for _ in 0..ASKED {
            let call = Call::any(&mut random, port);
            let expected = eager.ask(call, &board);
            for node in [Some(&mut lazy), fresh.as_mut()].into_iter().flatten() {
                assert_eq!(
                    node.ask(call, &board),
                    expected,
                    "edit {edit}: {call:?}\n{}",
                    folder.text(port)
                );
            }
            let address = call.address.map(|address| address.ip());
            let kind = address.map_or("name", |address: IpAddr| match address.is_loopback() {
                true => "endpoint",
                false => "cluster address",
            });
            *answers.entry((kind, expected[..3].to_owned())).or_insert(0) += 1;
        }
    }
    assert!(valid * 2 > edits, "{valid} of {edits}: {refused}");
    // Each kind of call is answered, and refused.
    for kind in ["name", "endpoint", "cluster address"] {
        let answered = answers.get(&(kind, "200".to_owned()));
        assert!(answered.is_some(), "{kind}: {answers:?}");
    }
    assert!(
        answers.contains_key(&("name", "403".to_owned())),
        "{answers:?}"
    );
    // It is not that it is told everything.
    let asked = lazy.asked;
    assert_eq!(eager.asked, 0);
    assert!(asked > valid / 2, "{asked} questions in {valid} edits");
    assert!(known_less > valid / 4, "{known_less} of {valid}");
    println!("{valid} edits of {edits}: {answers:?}");
}
