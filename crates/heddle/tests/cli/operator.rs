//! Access of operators, and the answers that they get.

use std::fs::{Permissions, set_permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Resource, Rlimit, Uid, geteuid, getrlimit, prlimit};
use rustix::thread::set_thread_res_uid;

use crate::harness::{
    Folder, Heddle, as_str, backend, backend_at, eventually, get, heddle, service, text,
};

fn mesh(namespace: &str) -> Folder {
    let folder = Folder::new();
    folder.write("a.yaml", &service(namespace, "web", backend("x")));
    folder
}

#[test]
fn status_and_configuration_are_for_people_and_programs() {
    let folder = mesh("told");
    let heddle_up = Heddle::up(&folder, &[]);
    // The addresses are printed before the Worker has taken the configuration.
    eventually("it is ready", || heddle_up.status()["ready"] == true);
    let status = heddle_up.status();
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(3));
    let service = &status["listeners"][0];
    assert_eq!(
        (
            &service["service"],
            &service["port"],
            &service["caller"],
            &service["kind"],
            &service["protocol"]
        ),
        (
            &"told/web".into(),
            &80.into(),
            &serde_json::Value::Null,
            &"service".into(),
            &"http".into()
        )
    );

    let output = heddle(&["status", "--socket", as_str(&folder.socket())]);
    let table = text(&output.stdout);
    for expected in [
        "ready",
        "told/web:80",
        "unidentified",
        "127.",
        "every HTTP service, as http_proxy",
        "SPEAKS",
        "not ours",
    ] {
        assert!(
            table.contains(expected),
            "{expected} is missing in\n{table}"
        );
    }

    let output = heddle(&["status", "--brief", "--socket", as_str(&folder.socket())]);
    let brief = text(&output.stdout);
    assert!(
        brief.contains("ready")
            && brief.contains("\n3 listeners\n")
            && !brief.contains("unidentified"),
        "{brief}"
    );

    let output = heddle(&["config", "dump", "--socket", as_str(&folder.socket())]);
    let config: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(config["mesh"]["services"][0]["name"], "told/web");
    assert_eq!(config["settings"]["drain"]["timeout_ms"], 10_000);
}

#[test]
fn the_bound_on_clients_is_shown_as_it_is_in_force() {
    let folder = mesh("limited");
    let settings = folder.path("heddle.yaml");
    std::fs::write(&settings, "proxy: {bounds: {connections: 1000000}}\n").expect("written");
    let limit = getrlimit(Resource::Nofile).maximum.expect("a limit");
    let heddle = Heddle::up(&folder, &["--config", as_str(&settings)]);
    let shown = &heddle.status()["connections_limit"];
    let expected = shown.as_u64().expect("a number");
    // Each client takes two descriptors, and some are reserved for everything else.
    let most = 1_000_000.min((limit - 32) / 2);
    assert!(expected <= most && expected > most / 2, "{expected}");
    let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
    let line = format!("\nheddle_connections_limit {expected}\n");
    assert!(metrics.contains(&line), "{metrics}");
}

#[test]
fn few_descriptors_leave_some_for_the_operator() {
    let folder = Folder::new();
    let services: Vec<String> = (0..40)
        .map(|n| {
            let address = backend_at([127, 2, 40, n + 1], "x");
            service("scarce", &format!("s{n}"), address)
        })
        .collect();
    folder.write("a.yaml", &services.join("---\n"));
    let settings = folder.path("heddle.yaml.settings");
    std::fs::write(&settings, "proxy: {workers: {max: 1}}").expect("written");
    let config = ["--config", as_str(&settings)];
    let heddle_up = Heddle::start_with_descriptors(100, &folder, &config);
    let said = heddle_up.stderr_line("listeners are wanted");
    assert!(said.contains("ulimit -n"), "{said}");
    heddle_up.stdout_line("SERVICE");
    // The open listeners reach everything, as far as they fit.
    let status = heddle_up.status();
    let listeners = status["listeners"].as_array().expect("a list");
    // 100 minus 32 in reserve and 8 for a Worker; half of the rest.
    assert_eq!(listeners.len(), 30);
    assert!(listeners.iter().all(|l| l["kind"] == "forward-proxy"));
    assert_eq!(status["connections_limit"], 15);
    let problems = status["config"]["listener_problems"].as_array();
    assert_eq!(problems.map(Vec::len), Some(1));
    // At the connection limit, the operator is still answered. A single caller has a lower limit.
    let clients: Vec<_> = listeners
        .iter()
        .map(|listener| listener["address"].as_str().expect("an address"))
        .map(TcpStream::connect)
        .collect();
    assert_eq!(get(heddle_up.metrics(), "x", "/ready").0, 200);
    assert_eq!(heddle_up.status()["ready"], true);
    // Refused clients are counted, logged once, and shown.
    heddle_up.stderr_line("clients are turned away");
    eventually("all are counted", || {
        heddle_up.status()["connections_refused"] == 15
    });
    let output = heddle(&["status", "--socket", as_str(&folder.socket())]);
    let shown = text(&output.stdout);
    assert!(shown.contains("15 of 15 clients, 15 refused"), "{shown}");
    drop(clients);
}

/// An edit that cannot be read for want of descriptors changes nothing; it is read once there are some again.
#[test]
fn an_edit_waits_until_there_are_descriptors_again() {
    let folder = mesh("drained");
    let heddle_up = Heddle::up(&folder, &[]);
    let pid = Pid::from_raw(heddle_up.pid().cast_signed());
    let limit = |current| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current, maximum };
        prlimit(pid, Resource::Nofile, limit).expect("a limit")
    };
    let before = limit(Some(3)).current;
    folder.write("b.yaml", &service("drained", "more", backend("more")));
    heddle_up.stderr_line("Too many open files");
    limit(before);
    let mut status = serde_json::Value::Null;
    eventually("the edit is read", || {
        status = heddle_up.status();
        let listeners = status["listeners"].as_array().into_iter().flatten();
        listeners
            .filter(|listener| listener["service"] == "drained/more")
            .count()
            > 0
    });
    assert_eq!(status["ready"], true);
    let more = heddle_up.address("drained/more", None);
    assert_eq!(get(more, "more.drained", "/"), (200, "more".to_owned()));
}

#[test]
fn too_few_descriptors_are_refused_at_the_start() {
    let folder = mesh("too-few");
    let heddle = Heddle::start_with_descriptors(45, &folder, &[]);
    let said = heddle.stderr_line("45 open files are too few");
    let enough = said.split_once("raise the limit to ");
    let enough = enough.and_then(|(_, rest)| rest.split_once(" or more (ulimit -n)"));
    let enough = enough.and_then(|(number, _)| number.parse().ok());
    assert_eq!(heddle.ended().code(), Some(1));
    let heddle = Heddle::start_with_descriptors(enough.expect("a number"), &folder, &[]);
    heddle.stdout_line("SERVICE");
}

#[test]
fn the_network_is_told_metrics_and_readiness_only() {
    let folder = mesh("network");
    let heddle = Heddle::up(&folder, &[]);
    let at = heddle.metrics();
    assert_eq!(get(at, "x", "/ready"), (200, "ready\n".into()));
    let (status, metrics) = get(at, "x", "/metrics");
    assert_eq!(status, 200);
    for name in [
        "heddle_build_info{",
        "heddle_ready 1",
        "heddle_config_generation 1",
        "heddle_connections_active{",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    for path in ["/status", "/config", "/"] {
        assert_eq!(get(at, "x", path).0, 404, "{path}");
    }
}

#[test]
fn another_user_gets_no_answer_even_with_the_door_open() {
    if !geteuid().is_root() {
        heddle_skips::skipped("only root can become another user");
        return;
    }
    let folder = mesh("peer");
    let heddle = Heddle::up(&folder, &[]);
    // Open up the file modes, which alone would refuse other users.
    let parent = folder.socket().parent().expect("a folder").to_owned();
    set_permissions(parent, Permissions::from_mode(0o755)).expect("a mode");
    set_permissions(folder.socket(), Permissions::from_mode(0o666)).expect("a mode");
    let socket = folder.socket();
    let asked = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65_534);
        // Changes the user of this thread only.
        set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let mut stream = UnixStream::connect(socket).expect("the door is open");
        // The server may close it before all is sent.
        let _closed = stream.write_all(b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut answer = Vec::new();
        let _closed = stream.read_to_end(&mut answer);
        answer
    });
    assert_eq!(text(&asked.join().expect("no panic")), "");
    let line = heddle.stderr_line("refused at the admin socket");
    assert!(line.contains("uid=65534"), "{line}");
    assert_eq!(heddle.status()["ready"], true);
}
