//! When providers register in etcd and go, the mesh has those that live, even while etcd fails.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::etcd::{Etcd, Registrar};
use crate::harness::{
    Folder, Heddle, as_str, backend, eventually, families, free_address, get, heddle, text,
};

mod outages;
mod refused;

/// A Service that selects its registered providers; its port is called `http`.
fn service(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec:\n  selector: {{app: web}}\n  ports: [{{name: http, port: 80, targetPort: http}}]\n"
    )
}

/// A mesh of one such Service, and an etcd.
struct World {
    folder: Folder,
    etcd: Etcd,
    namespace: &'static str,
}

impl World {
    fn new(namespace: &'static str) -> World {
        let folder = Folder::new();
        folder.write("web.yaml", &service(namespace));
        let etcd = Etcd::start(&folder.path("etcd"));
        World {
            folder,
            etcd,
            namespace,
        }
    }

    fn up(&self) -> Heddle {
        Heddle::up(&self.folder, &["--etcd", &self.etcd.url()])
    }

    fn register(&self, address: SocketAddr, more: &[&str]) -> Registrar {
        Registrar::start(
            &self.etcd,
            &format!("{}/web", self.namespace),
            address,
            more,
        )
    }

    fn web(&self) -> String {
        format!("{}/web", self.namespace)
    }
}

/// Names of the workloads, all of which registered.
fn workloads(heddle: &Heddle) -> Vec<String> {
    let status = heddle.status();
    let all = status["workloads"].as_array().expect("a list");
    let name = |workload: &Value| workload["name"].as_str().expect("a name").to_owned();
    all.iter().map(name).collect()
}

fn eventually_serves(heddle: &Heddle, expected: usize) {
    eventually(&format!("there are {expected} workloads"), || {
        workloads(heddle).len() == expected
    });
}

fn check(world: &World) -> (Option<i32>, Value) {
    let output = heddle(&[
        "check",
        "--socket",
        as_str(&world.folder.socket()),
        "--output",
        "json",
    ]);
    let answer = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code(), answer)
}

/// A server that answers with its name until it is closed; after that, clients cannot connect.
struct Provider {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Provider {
    fn start(name: &'static str) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let mut head = String::new();
                let mut reader = BufReader::new(&stream);
                while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
                let length = name.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{name}"
                );
                let _client_is_gone = stream.write_all(answer.as_bytes());
            }
        });
        Provider { address, closed }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accept loop, so that it sees the flag.
        drop(TcpStream::connect(self.address));
        eventually("no process listens", || {
            TcpStream::connect(self.address).is_err()
        });
    }
}

#[test]
fn three_providers_share_the_traffic_and_one_that_dies_costs_no_request() {
    let world = World::new("three");
    let heddle = world.up();
    let service = heddle.address(&world.web(), None);
    assert_eq!(get(service, "web", "/").0, 503, "no provider is there yet");

    let providers = ["a", "b", "c"].map(Provider::start);
    let begun = Instant::now();
    let mut registrars = providers
        .each_ref()
        .map(|one| world.register(one.address, &["--ttl", "2s"]));
    eventually_serves(&heddle, 3);
    eprintln!(
        "three providers appeared within {:?} of their start",
        begun.elapsed()
    );
    let mut answered = std::collections::BTreeSet::new();
    eventually("all three answer", || {
        let (status, body) = get(service, "web", "/");
        assert_eq!(status, 200);
        answered.insert(body);
        answered.len() == 3
    });
    // They are called, but no local program calls as one of them.
    let listeners = heddle.status()["listeners"].as_array().map(Vec::len);
    assert_eq!(listeners, Some(1));

    // One dies together with its registrar: the registration is not taken back.
    let died = Instant::now();
    providers[1].close();
    registrars[1].kill();
    let mut requests = 0;
    eventually("its lease ends", || {
        let (status, body) = get(service, "web", "/");
        assert_eq!((status, body == "b"), (200, false), "it is tried elsewhere");
        requests += 1;
        workloads(&heddle).len() < 3
    });
    eprintln!(
        "it disappeared after {:?} and {requests} requests",
        died.elapsed()
    );
    for _ in 0..50 {
        assert_eq!(get(service, "web", "/").0, 200);
    }
    let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
    let refused = metrics
        .lines()
        .find(|line| line.starts_with("heddle_connections_refused_total"));
    assert!(
        refused.is_none_or(|line| line.ends_with(" 0")),
        "{refused:?}"
    );
}

#[test]
fn a_registrar_that_is_told_to_stop_takes_back_what_it_registered() {
    let world = World::new("revoked");
    let heddle = world.up();
    let mut registrar = world.register(backend("x"), &["--ttl", "60s", "--name", "one"]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    assert_eq!(workloads(&heddle), ["revoked/web.one"]);
    let asked = Instant::now();
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.code(), Some(0));
    assert!(world.etcd.keys().is_empty(), "at once, not with its lease");
    eventually_serves(&heddle, 0);
    eprintln!("it was gone {:?} after SIGTERM", asked.elapsed());
}

#[test]
fn a_command_is_registered_for_as_long_as_it_runs() {
    let world = World::new("command");
    let at = backend("x");
    // The command's exit code is passed on.
    let may_end = world.folder.path("may-end");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; exit 7",
        as_str(&may_end)
    );
    let mut ends = world.register(at, &["--at-once", "--", "sh", "-c", &script]);
    ends.line("registered");
    std::fs::write(may_end, "").expect("written");
    assert_eq!(ends.code(), Some(7));
    assert!(world.etcd.keys().is_empty());
    // On a signal, the registration is taken back first, then the command is ended.
    let (marker, is_ready) = (world.folder.path("ended"), world.folder.path("ready"));
    let script = format!(
        "trap 'etcdctl --endpoints {} get --prefix --keys-only / > {}; exit 3' TERM; : > {}; \
         while :; do sleep 0.05; done",
        world.etcd.url(),
        as_str(&marker),
        as_str(&is_ready)
    );
    let mut stopped = world.register(at, &["--drain", "0s", "--", "sh", "-c", &script]);
    stopped.line("registered");
    eventually("it handles the signal", || is_ready.exists());
    stopped.signal(Signal::TERM);
    assert_eq!(stopped.code(), Some(3));
    assert_eq!(std::fs::read_to_string(marker).expect("a list"), "");
    // A command that cannot be started is not registered.
    let mut wrong = world.register(at, &["--", "/no/such/program"]);
    wrong.line("cannot start /no/such/program");
    assert_eq!(wrong.code(), Some(1));
    // Nor is a command that never accepts connections.
    let closed = Provider::start("x");
    closed.close();
    let mut silent = world.register(closed.address, &["--", "sh", "-c", "exit 9"]);
    assert_eq!(silent.code(), Some(9));
    assert!(world.etcd.keys().is_empty());
}

#[test]
fn of_two_providers_with_one_name_the_second_waits() {
    let world = World::new("names");
    let heddle = world.up();
    let (first_at, second_at) = (backend("first"), backend("second"));
    let mut first = world.register(first_at, &["--name", "one"]);
    first.line("registered");
    let second = world.register(second_at, &["--name", "one"]);
    second.line("another provider is registered under this name");
    eventually_serves(&heddle, 1);
    let service = heddle.address(&world.web(), None);
    assert_eq!(get(service, "web", "/").1, "first");
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(0));
    second.line("registered");
    eventually("the second one answers", || {
        get(service, "web", "/").1 == "second"
    });
    assert!(second.lines_so_far().is_empty(), "each is said once");
}

#[test]
fn a_registrar_that_was_killed_and_comes_back_takes_its_own_place() {
    let world = World::new("again");
    let at = backend("x");
    let mut first = world.register(at, &["--ttl", "600s"]);
    first.line("registered");
    first.kill();
    let second = world.register(at, &[]);
    second.line("registered");
    assert_eq!(world.etcd.keys().len(), 1);
}

#[test]
fn a_thousand_providers_are_served_within_seconds() {
    let world = World::new("thousand");
    let heddle = world.up();
    let lease = world.etcd.lease();
    let put = |n: u32| {
        let (c, d) = (n / 250, n % 250 + 1);
        format!(
            "put --lease={lease} /heddle/v1/providers/thousand/web/p{n} \
             {{\"apiVersion\":\"heddle.dev/v1alpha1\",\"kind\":\"LocalWorkload\",\
             \"metadata\":{{\"labels\":{{\"app\":\"web\"}}}},\
             \"spec\":{{\"address\":\"10.9.{c}.{d}\",\"ports\":[{{\"name\":\"http\",\"port\":80}}]}}}}\n"
        )
    };
    let begun = Instant::now();
    let puts: String = (0..1_000).map(put).collect();
    world.etcd.ctl_with(&["txn"], &format!("\n{puts}\n\n"));
    let written = begun.elapsed();
    eventually_serves(&heddle, 1_000);
    let status = heddle.status();
    eprintln!(
        "1,000 providers: written in {written:?}, served {:?} after, {} bytes resident",
        begun.elapsed() - written,
        status["usage"]["resident_bytes"]
    );
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(1));
    let begun = Instant::now();
    world.etcd.ctl(&["lease", "revoke", &lease]);
    eventually_serves(&heddle, 0);
    eprintln!("all are gone {:?} after their lease", begun.elapsed());
}

#[test]
fn a_control_plane_places_who_registers_on_a_node() {
    let world = World::new("placed");
    let (control, _) = Heddle::control(&world.folder, &["--etcd", &world.etcd.url()]);
    let registrar = world.register(backend("x"), &["--node", "edge-1"]);
    registrar.line("registered");
    eventually("it is on the node", || {
        let status = control.status();
        status["nodes"][0]["name"] == "edge-1" && status["nodes"][0]["workloads"] == 1
    });
    assert_eq!(control.status()["registry"]["providers"], 1);
    // A provider without a node is left out.
    let lost = world.register(backend("x"), &["--name", "lost"]);
    lost.line("registered");
    let metrics = || get(control.metrics(), "x", "/metrics").1;
    eventually("it is left out", || {
        metrics().contains("\nheddle_registry_problems{reason=\"no_node\"} 1\n")
    });
    let metrics = metrics();
    assert!(metrics.contains("\nheddle_registry_connected 1\n"));
    assert!(metrics.contains("\nheddle_registry_providers_called 1\n"));
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let mut families = families(&metrics);
    families.retain(|(name, _)| name.starts_with("heddle_registry"));
    for (name, kind) in families {
        assert!(PAGE.contains(&format!("| `{name}` | {kind} |")), "{name}");
    }
    let status = &control.status()["registry"];
    assert_eq!(status["left_out"][0]["workload"], "placed/web.lost");
    assert_eq!(
        (
            &status["services"][0]["called"],
            &status["services"][0]["registered"]
        ),
        (&1.into(), &2.into())
    );
}
