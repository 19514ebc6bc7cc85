//! Requests through a running mesh, while its manifests change.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::harness::{
    Folder, Heddle, LONG, as_str, backend, backend_at, eventually, get, service, text,
};

#[test]
fn a_request_is_carried_counted_and_logged() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("carried", "web", backend("hello")));
    let log = folder.path("access.log");
    let heddle = Heddle::up(&folder, &["--access-log", as_str(&log)]);

    let for_all = heddle.address("carried/web", None);
    assert_eq!(
        get(for_all, "web", "/a?token=secret"),
        (200, "hello".into())
    );
    let own = heddle.address("carried/web", Some("carried/web"));
    assert_eq!(get(own, "web", "/b"), (200, "hello".into()));
    let proxy = heddle.forward_proxy("carried/web");
    assert_eq!(
        get(proxy, "web.carried", "http://web.carried/c"),
        (200, "hello".into())
    );

    eventually("all three are counted", || {
        let (status, metrics) = get(heddle.metrics(), "x", "/metrics");
        assert_eq!(status, 200);
        let counted = |source: &str, count: u32| {
            let begins =
                format!("heddle_http_requests_total{{reporter=\"source\",source=\"{source}\",");
            let ends = format!("tls=\"none\",status=\"200\"}} {count}");
            let service = "destination_service=\"carried/web\"";
            metrics.lines().any(|line| {
                line.starts_with(&begins) && line.contains(service) && line.ends_with(&ends)
            })
        };
        counted("unidentified", 1) && counted("carried/web", 2)
    });
    let mut text = String::new();
    eventually("all three are logged", || {
        text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().count() == 3
    });
    assert!(!text.contains("secret"), "{text}");
    let first: serde_json::Value =
        serde_json::from_str(text.lines().next().unwrap_or("")).expect("JSON");
    assert_eq!(
        (
            &first["source"],
            &first["path"],
            &first["status"],
            &first["reason"]
        ),
        (
            &"unidentified".into(),
            &"/a".into(),
            &200.into(),
            &"ok".into()
        )
    );
}

#[test]
fn an_edit_takes_effect_within_a_second_and_touches_no_connection() {
    let folder = Folder::new();
    let (one, two) = (backend("one"), backend("two"));
    folder.write("a.yaml", &service("edit", "web", one));
    let heddle = Heddle::up(&folder, &[]);
    let address = heddle.address("edit/web", None);
    let wait_for = |name: &str| {
        let began = Instant::now();
        eventually("the edit takes effect", || {
            let (status, body) = get(address, "web", "/");
            assert_eq!(status, 200, "no request fails: {body}");
            body == name
        });
        began.elapsed()
    };
    wait_for("one");
    // On a busy machine one change may be slow; if Heddle is slow, all are.
    let mut fastest = Duration::MAX;
    for _ in 0..2 {
        folder.write("a.yaml", &service("edit", "web", two));
        fastest = fastest.min(wait_for("two"));
        folder.write("a.yaml", &service("edit", "web", one));
        fastest = fastest.min(wait_for("one"));
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    assert_eq!(heddle.address("edit/web", None), address);
}

#[test]
fn a_bad_edit_is_reported_and_the_last_good_state_stays() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("bad-edit", "web", backend("good")));
    let heddle = Heddle::up(&folder, &[]);
    let address = heddle.address("bad-edit/web", None);

    folder.write(
        "b.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {prots: []}\n",
    );
    let line = heddle.stderr_line("b.yaml:4");
    assert!(line.contains("spec.prots"), "{line}");
    heddle.stderr_line("Service default/x: refused, and left out");
    assert_eq!(get(address, "web", "/"), (200, "good".into()));
    let status = heddle.status();
    assert_eq!(
        (&status["config"]["stale"], &status["ready"]),
        (&false.into(), &true.into())
    );
    let refused = &status["config"]["refused"][0];
    assert_eq!(refused["object"], "Service default/x");
    assert_eq!(refused["in_force"], "nothing");
    let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
    let counted = "heddle_config_objects_refused{in_force=\"nothing\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    let said =
        text(&crate::harness::heddle(&["status", "--socket", as_str(&folder.socket())]).stdout);
    let line = "b.yaml:1: Service default/x: refused, and left out";
    assert!(said.contains(line), "{said}");
    assert_eq!(
        status["config"]["problems"].as_array().map(Vec::len),
        Some(1)
    );

    std::fs::remove_file(folder.manifests().join("b.yaml")).expect("removed");
    eventually("the folder is good again", || {
        heddle.status()["config"]["refused"] == serde_json::json!([])
    });
    assert_eq!(
        heddle.status()["config"]["problems"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}

#[test]
fn a_folder_that_is_emptied_tears_nothing_down() {
    let folder = Folder::new();
    let manifest = service("emptied", "web", backend("still here"));
    folder.write("a.yaml", &manifest);
    let heddle = Heddle::up(&folder, &[]);
    let address = heddle.address("emptied/web", None);

    std::fs::remove_file(folder.manifests().join("a.yaml")).expect("removed");
    let line = heddle.stderr_line("this folder holds no manifest");
    assert!(line.contains("kind: List, items: []"), "{line}");
    heddle.stderr_line("the last good state is still served");
    assert_eq!(get(address, "web", "/"), (200, "still here".into()));
    let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
    assert!(metrics.contains("heddle_config_stale 1"), "{metrics}");

    folder.write("a.yaml", "apiVersion: v1\nkind: List\nitems: []\n");
    eventually("nothing is served, as was asked for", || {
        std::net::TcpStream::connect(address).is_err()
    });
    assert_eq!(heddle.status()["config"]["stale"], false);
}

#[test]
fn a_manifest_that_is_emptied_among_others_closes_its_services_and_says_so() {
    let folder = Folder::new();
    let two = [
        service("blank", "web", backend("x")),
        service("blank", "api", backend_at([127, 2, 41, 1], "x")),
    ];
    folder.write("a.yaml", &two.join("---\n"));
    let kept = service("blank", "kept", backend_at([127, 2, 41, 2], "x"));
    folder.write("b.yaml", &kept);
    let heddle = Heddle::up(&folder, &[]);
    folder.write("a.yaml", "");
    heddle.stderr_line("a.yaml: warning: this file is empty");
    heddle.stderr_line("no longer served: blank/api, blank/web");
    let status = heddle.status();
    assert_eq!(status["config"]["services"], 1);
    assert_eq!(status["config"]["stale"], false);
    assert_eq!(
        status["config"]["problems"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn services_come_and_go_without_a_restart() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("come", "first", backend("first")));
    let heddle = Heddle::up(&folder, &[]);
    let first = heddle.address("come/first", None);

    folder.write(
        "b.yaml",
        &service("come", "second", backend_at([127, 0, 0, 2], "second")),
    );
    heddle.stderr_line("generation=2");
    let second = heddle.address("come/second", None);
    assert_eq!(get(second, "second", "/"), (200, "second".into()));
    assert_eq!(get(first, "first", "/"), (200, "first".into()));

    std::fs::remove_file(folder.manifests().join("b.yaml")).expect("removed");
    heddle.stderr_line("generation=3");
    eventually("its listener is closed", || {
        std::net::TcpStream::connect(second).is_err()
    });
    assert_eq!(get(first, "first", "/"), (200, "first".into()));
    assert_eq!(heddle.address("come/first", None), first);
}

#[test]
fn a_port_that_is_taken_everywhere_costs_one_line_a_listener() {
    let everywhere = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = everywhere.local_addr().expect("an address").port();
    let Some(instead) = port.checked_add(10_000) else {
        return;
    };
    let folder = Folder::new();
    let manifest = service("everywhere", "web", backend("x"));
    folder.write(
        "a.yaml",
        &manifest.replace("port: 80,", &format!("port: {port},")),
    );
    let heddle = Heddle::start(&folder, &[]);
    let lines = heddle.stderr_before("serving");
    let said: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("in use by another process"))
        .collect();
    // One line for the address for all callers, one for the workload's own.
    assert_eq!(said.len(), 2, "{lines:#?}");
    let address = heddle.address("everywhere/web", None);
    assert_eq!(address.port(), instead);
    assert!(
        said.iter()
            .any(|line| line.ends_with(&format!("everywhere/web is at {address}"))),
        "{said:#?}"
    );
}

#[test]
fn a_listener_that_could_not_be_opened_is_tried_again() {
    // Given a port that another process has on every address, and the one that takes its place as well …
    let (taken, instead) =
        std::iter::repeat_with(|| TcpListener::bind("0.0.0.0:0").expect("a port"))
            .find_map(|taken| {
                let port = taken.local_addr().expect("an address").port();
                let instead = TcpListener::bind(("0.0.0.0", port.checked_add(10_000)?)).ok()?;
                Some((taken, instead))
            })
            .expect("two ports");
    let port = taken.local_addr().expect("an address").port();
    let folder = Folder::new();
    let manifest = service("retried", "web", backend("x"));
    folder.write(
        "a.yaml",
        &manifest.replace("port: 80,", &format!("port: {port},")),
    );
    let heddle = Heddle::start(&folder, &[]);
    heddle.stderr_line("serving");
    let problems = || {
        let (_, metrics) = get(heddle.metrics(), "x", "/metrics");
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("heddle_listener_problems "));
        value.expect("the metric").to_owned()
    };
    assert_ne!(problems(), "0");
    // … when both are free again, it opens without an edit.
    drop((taken, instead));
    eventually("its listeners are open", || problems() == "0");
    let address = heddle.address("retried/web", None);
    assert_eq!(get(address, "web", "/"), (200, "x".into()));
}

#[test]
fn an_endpoint_that_fails_is_named_and_so_is_its_return() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let folder = Folder::new();
    folder.write("a.yaml", &service("named", "web", address));
    let heddle = Heddle::up(&folder, &[]);
    let web = heddle.address("named/web", None);
    assert_eq!(get(web, "web", "/").0, 503);
    let line = heddle.stderr_line("an endpoint cannot be connected to");
    let named = format!("endpoint={address}");
    assert!(line.contains(&named) && line.contains("refused"), "{line}");

    let listener = TcpListener::bind(address).expect("the same port");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop(stream);
        }
    });
    get(web, "web", "/");
    let line = heddle.stderr_line("can be connected to again");
    assert!(line.contains(&named), "{line}");
}

/// Idle connections to other endpoints are closed to make room for a new request.
#[test]
fn idle_connections_to_endpoints_make_room_when_descriptors_run_out() {
    const LIMIT: usize = 15;
    const CLIENTS: usize = 12;
    const SERVICES: u8 = 8;
    let folder = Folder::new();
    let manifests: Vec<String> = (1..=SERVICES)
        .map(|n| {
            let address = patient_backend([127, 2, 42, n], CLIENTS);
            service("room", &format!("s{n}"), address)
        })
        .collect();
    folder.write("a.yaml", &manifests.join("---\n"));
    let settings = folder.path("heddle.yaml");
    std::fs::write(&settings, "proxy: {workers: {max: 1}}\n").expect("written");
    let config = ["--config", as_str(&settings)];
    let heddle = Heddle::start_with_descriptors(100, &folder, &config);
    heddle.stdout_line("SERVICE");
    assert_eq!(heddle.status()["connections_limit"], LIMIT);
    // A single caller gets only a share of the connections.
    let proxies: Vec<SocketAddr> = (1..=SERVICES)
        .map(|n| heddle.forward_proxy(&format!("room/s{n}")))
        .collect();
    let callers = proxies.iter().cycle().take(CLIENTS);
    let mut clients: Vec<TcpStream> = callers
        .map(|proxy| TcpStream::connect(proxy).expect("connected"))
        .collect();
    for n in 1..=SERVICES {
        for client in &mut clients {
            write!(
                client,
                "GET http://s{n}.room/ HTTP/1.1\r\nhost: s{n}.room\r\n\r\n"
            )
            .expect("sent");
        }
        for client in &mut clients {
            client.set_read_timeout(Some(LONG)).expect("a timeout");
            let mut answer = [0; 256];
            let read = client.read(&mut answer).expect("an answer");
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert!(answer.starts_with("HTTP/1.1 200"), "service {n}: {answer}");
        }
    }
}

/// A server that keeps its connections open, and answers once this many requests have come.
fn patient_backend(ip: [u8; 4], requests: usize) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from((ip, 0))).expect("a port");
    let address = listener.local_addr().expect("an address");
    let all = Arc::new(Barrier::new(requests));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                loop {
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if reader.read_line(&mut line).is_ok_and(|read| read == 0) {
                            return;
                        }
                    }
                    all.wait();
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    let _client_is_gone = (&stream).write_all(answer);
                }
            });
        }
    });
    address
}
