//! Given an etcd, when providers register in it and go, then the mesh has those that live, whatever becomes of
//! etcd meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::etcd::{Etcd, LEASE_LASTS, Registrar};
use crate::harness::{Folder, Heddle, as_str, backend, eventually, get, heddle, text};

/// A Service that selects what registers as it; its port is called `http`.
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
        let etcd = Etcd::start(folder.path("etcd"));
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

/// The names of the workloads, which are those that registered.
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

/// A server that answers with its name until it is closed; then nobody can connect.
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
        // It looks once more.
        drop(TcpStream::connect(self.address));
        eventually("nobody listens", || {
            TcpStream::connect(self.address).is_err()
        });
    }
}

#[test]
fn three_providers_share_the_traffic_and_one_that_dies_costs_no_request() {
    let world = World::new("three");
    let heddle = world.up();
    let service = heddle.address(&world.web(), None);
    assert_eq!(get(service, "web", "/").0, 503, "nobody is there yet");

    let providers = ["a", "b", "c"].map(Provider::start);
    let begun = Instant::now();
    let mut registrars = providers
        .each_ref()
        .map(|one| world.register(one.address, &[]));
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
    // They are called, and nobody calls as them from here.
    let listeners = heddle.status()["listeners"].as_array().map(Vec::len);
    assert_eq!(listeners, Some(1));

    // One dies, its registrar with it: nobody takes anything back.
    let died = Instant::now();
    providers[1].close();
    registrars[1].kill();
    let mut requests = 0;
    while workloads(&heddle).len() == 3 {
        let (status, body) = get(service, "web", "/");
        assert_eq!((status, body == "b"), (200, false), "it is tried elsewhere");
        requests += 1;
        assert!(died.elapsed() < LEASE_LASTS, "its lease ends");
    }
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
    // Its exit code is passed on.
    let mut ends = world.register(at, &["--at-once", "--", "sh", "-c", "sleep 1; exit 7"]);
    ends.line("registered");
    assert_eq!(ends.code(), Some(7));
    assert!(world.etcd.keys().is_empty());
    // A signal takes it back first, and then ends the command.
    let marker = world.folder.path("ended");
    let script = format!(
        "trap 'etcdctl --endpoints {} get --prefix --keys-only / > {}; exit 3' TERM; while :; do sleep 0.05; done",
        world.etcd.url(),
        as_str(&marker)
    );
    let mut stopped = world.register(at, &["--drain", "0s", "--", "sh", "-c", &script]);
    stopped.line("registered");
    stopped.signal(Signal::TERM);
    assert_eq!(stopped.code(), Some(3));
    assert_eq!(std::fs::read_to_string(marker).expect("a list"), "");
    // What cannot be started registers nothing.
    let mut wrong = world.register(at, &["--", "/no/such/program"]);
    wrong.line("cannot start /no/such/program");
    assert_eq!(wrong.code(), Some(1));
    // Nor does what never takes connections.
    let nobody = Provider::start("x");
    nobody.close();
    let mut silent = world.register(nobody.address, &["--", "sh", "-c", "exit 9"]);
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
fn an_etcd_that_is_killed_takes_nobody_with_it() {
    let mut world = World::new("killed");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &["--ttl", "5s"]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let service = heddle.address(&world.web(), None);

    world.etcd.kill();
    heddle.stderr_line("the registry is not reached");
    registrar.line("etcd is not reached");
    let down = Instant::now();
    while down.elapsed() < LEASE_LASTS {
        assert_eq!(get(service, "web", "/"), (200, "x".to_owned()));
    }
    let (code, answer) = check(&world);
    assert_eq!(
        (code, &answer["registry"]["connected"]),
        (Some(6), &false.into())
    );
    // That it is still away is not said again.
    assert!(registrar.lines_so_far().is_empty());

    world.etcd.restart();
    heddle.stderr_line("the registry is followed");
    registrar.line("registered again");
    assert_eq!(get(service, "web", "/").0, 200);
    let (code, answer) = check(&world);
    assert_eq!(
        (code, &answer["registry"]["providers"]),
        (Some(0), &1.into()),
        "{answer}"
    );
}

#[test]
fn an_etcd_that_lost_everything_is_filled_again_without_a_gap() {
    let mut world = World::new("lost");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &[]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let service = heddle.address(&world.web(), None);
    world.etcd.forget();
    heddle.stderr_line("the registry is not reached");
    world.etcd.restart();
    heddle.stderr_line("the registry is followed");
    eventually("it is registered again", || {
        assert_eq!(
            get(service, "web", "/").0,
            200,
            "nobody is missed meanwhile"
        );
        world.etcd.keys().len() == 1
    });
    registrar.line("registered again: its lease had ended");
    assert_eq!(get(service, "web", "/").0, 200);
}

#[test]
fn a_watch_that_falls_behind_a_compaction_starts_over() {
    let world = World::new("compacted");
    let heddle = world.up();
    let lease = world.etcd.lease();
    let lease = format!("--lease={lease}");
    let value = |port: u16| {
        // What it does not need makes it long enough to fill every buffer on the way.
        let filler = "x".repeat(8_000);
        format!(
            r#"{{"apiVersion":"heddle.dev/v1alpha1","kind":"LocalWorkload","metadata":{{"labels":{{"app":"web"}},"annotations":{{"filler":"{filler}"}}}},"spec":{{"address":"127.9.0.1","ports":[{{"name":"http","port":{port}}}]}}}}"#
        )
    };
    let key = |name: &str| format!("/heddle/v1/providers/compacted/web/{name}");
    world.etcd.ctl(&["put", &lease, &key("before"), &value(1)]);
    eventually_serves(&heddle, 1);

    heddle.signal(Signal::STOP);
    // Far more than fits into its connection, and then what was before is forgotten.
    for round in 0..5 {
        let puts: String = (0..40)
            .map(|n| {
                format!(
                    "put {lease} {} {}\n",
                    key(&format!("p{n}")),
                    value(100 * round + n + 2)
                )
            })
            .collect();
        world.etcd.ctl_with(&["txn"], &format!("\n{puts}\n\n"));
    }
    world.etcd.ctl(&["del", &key("before")]);
    let revision = world.etcd.revision().to_string();
    world.etcd.ctl(&["compact", &revision]);
    heddle.signal(Signal::CONT);

    eventually_serves(&heddle, 40);
    assert!(!workloads(&heddle).contains(&"compacted/web.before".to_owned()));
    eventually("the last values count", || {
        let status = heddle.status();
        status["registry"]["connected"] == true
            && status["config"]["problems"] == Value::Array(Vec::new())
    });
}

#[test]
fn what_is_wrong_is_a_problem_and_nothing_more() {
    let world = World::new("wrong");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &["--name", "good"]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let lease = format!("--lease={}", world.etcd.lease());
    for (key, value, lease) in [
        (
            "/heddle/v1/providers/wrong/web/bad",
            "{not: 'a workload'}",
            &*lease,
        ),
        ("/heddle/v1/providers/wrong/web", "{}", &*lease),
        ("/heddle/v1/providers/wrong/web/stays", "{}", "--lease=0"),
        ("/heddle/v2/providers/wrong/web/elsewhere", "{}", &*lease),
    ] {
        world.etcd.ctl(&["put", lease, key, value]);
    }
    let problems = || {
        let status = heddle.status();
        let problems = status["config"]["problems"].as_array().expect("a list");
        let said = |problem: &Value| problem.as_str().expect("a line").to_owned();
        problems.iter().map(said).collect::<Vec<_>>()
    };
    eventually("three are problems", || problems().len() == 3);
    let said = problems().join("\n");
    for expected in [
        "etcd:/heddle/v1/providers/wrong/web/bad: warning: this is no Kubernetes object",
        "etcd:/heddle/v1/providers/wrong/web: warning: this is no provider's key",
        "etcd:/heddle/v1/providers/wrong/web/stays: warning: it has no lease",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let (code, answer) = check(&world);
    assert_eq!(code, Some(6));
    assert_eq!(
        answer["registry"]["problems"].as_array().map(Vec::len),
        Some(3)
    );
    assert_eq!(workloads(&heddle), ["wrong/web.good"]);
    world
        .etcd
        .ctl(&["del", "--prefix", "/heddle/v1/providers/wrong/web/bad"]);
    world.etcd.ctl(&["del", "/heddle/v1/providers/wrong/web"]);
    world
        .etcd
        .ctl(&["del", "/heddle/v1/providers/wrong/web/stays"]);
    eventually("all is well", || check(&world).0 == Some(0));
    // A folder that is wrong keeps nobody in the mesh who is gone.
    world.folder.write("oops.yaml", "kind: Oops\n");
    eventually("the folder is refused", || {
        heddle.status()["config"]["stale"] == true
    });
    registrar.signal(Signal::TERM);
    eventually_serves(&heddle, 0);
    assert_eq!(heddle.status()["config"]["stale"], true);
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
}

#[test]
fn certificates_and_permissions_of_etcd_are_kept_to() {
    let folder = Folder::new();
    folder.write("web.yaml", &service("secured"));
    let tls = folder.path("tls");
    let etcd = Etcd::secured(folder.path("etcd"), tls.clone());
    for user in ["root", "follow", "web"] {
        etcd.ctl(&["user", "add", &format!("{user}:{user}-password")]);
        etcd.ctl(&["role", "add", user]);
        std::fs::write(folder.path(user), format!("{user}-password\n")).expect("written");
    }
    for (role, what, keys) in [
        ("follow", "read", "/heddle/v1/providers/"),
        ("web", "readwrite", "/heddle/v1/providers/secured/web/"),
    ] {
        etcd.ctl(&[
            "role",
            "grant-permission",
            "--prefix=true",
            role,
            what,
            keys,
        ]);
    }
    for user in ["root", "follow", "web"] {
        etcd.ctl(&["user", "grant-role", user, user]);
    }
    etcd.ctl(&["auth", "enable"]);

    let file = |name: &str| as_str(&tls.join(name)).to_owned();
    let (ca, own, key) = (file("ca.pem"), file("own.pem"), file("own.key"));
    let with = |user: &str| {
        let password = as_str(&folder.path(user)).to_owned();
        [
            "--etcd-ca",
            &ca,
            "--etcd-cert",
            &own,
            "--etcd-key",
            &key,
            "--etcd-user",
            user,
        ]
        .map(str::to_owned)
        .into_iter()
        .chain(["--etcd-password-file".to_owned(), password])
        .collect::<Vec<String>>()
    };
    let follow = [vec!["--etcd".to_owned(), etcd.url()], with("follow")].concat();
    let follow: Vec<&str> = follow.iter().map(String::as_str).collect();
    let heddle = Heddle::up(&folder, &follow);
    let web = with("web");
    let web: Vec<&str> = web.iter().map(String::as_str).collect();
    let registrar = Registrar::start(&etcd, "secured/web", backend("x"), &web);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    // Another Service's keys are not theirs to write.
    let mut other = Registrar::start(&etcd, "secured/other", backend("x"), &web);
    other.line("permission denied");
    assert_eq!(other.code(), Some(1));
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let refused = |args: &[&str], code: i32, expected: &str| {
        let output = heddle(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    let at = ["register", "web", "--address", "127.0.0.1:80"];
    let with = |more: &[&'static str]| [&at[..], more].concat();
    refused(&with(&[]), 2, "there is no registry");
    refused(&with(&["--etcd", "localhost"]), 3, "is no endpoint of etcd");
    refused(
        &with(&["--etcd", "https://localhost:1"]),
        3,
        "need the certificate",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--etcd-user", "x"]),
        3,
        "a user needs a file",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--weight", "0"]),
        3,
        "0 is no weight",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--name", "A"]),
        3,
        "is no provider's name",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--ttl", "1s"]),
        2,
        "expected 2s to 3600s",
    );
    refused(
        &with(&["--etcd", "http://a:1", "--etcd-prefix", "x"]),
        2,
        "is no prefix",
    );
    let any = [
        "register",
        "web",
        "--address",
        "0.0.0.0:80",
        "--etcd",
        "http://a:1",
    ];
    refused(&any, 3, "does not name one place");
    let world = World::new("said");
    let dir = world.folder.manifests();
    refused(
        &["up", as_str(&dir), "--etcd", "x"],
        3,
        "the registry: \"x\" is no endpoint",
    );
}
