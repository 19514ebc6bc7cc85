//! Requests that wait at a step, and events during the wait.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{Mesh, Policy, PolicyAction, PolicyName, PolicyRule, ServiceName};
use heddle_telemetry::Registry;

use super::fixture;
use crate::testing::{service, workload};
use crate::{Entry, Proxy, Settings};

const PATIENCE: Duration = Duration::from_secs(10);

/// An endpoint that answers each connection once, with its name, and reports the request that it received.
fn endpoint(name: &'static str) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (say, heard) = sync_channel(8);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            while !request.ends_with(b"end") {
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend_from_slice(&bytes[..n]),
                }
            }
            let _gone = say.send(String::from_utf8_lossy(&request).into_owned());
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                name.len()
            );
            let _gone = write!(stream, "{head}{name}");
        }
    });
    (address, heard)
}

/// A mesh with one Service and one workload with these policies.
fn mesh(endpoint: SocketAddr, policies: Vec<Policy>) -> Mesh {
    let mut echo = workload("echo", endpoint, None);
    echo.policies = policies.iter().map(|policy| policy.name.clone()).collect();
    Mesh {
        generation: 1,
        services: vec![service("echo", endpoint, None).into()],
        workloads: vec![echo.into()].into(),
        policies: policies.into_iter().map(Arc::new).collect(),
        ..Mesh::default()
    }
}

/// Denies all callers.
fn deny() -> Policy {
    Policy {
        name: PolicyName::parse("AuthorizationPolicy test/deny").unwrap(),
        action: PolicyAction::Deny,
        dry_run: false,
        rules: vec![PolicyRule {
            number: 0,
            sources: None,
            ports: Vec::new(),
            http: None,
        }],
    }
}

struct Bed {
    proxy: Proxy,
    address: SocketAddr,
    heard: Receiver<String>,
    registry: Arc<Registry>,
}

impl Bed {
    fn new(settings: Settings) -> (Bed, SocketAddr) {
        let (endpoint, heard) = endpoint("first");
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(settings, Arc::clone(&registry), None).unwrap();
        proxy.apply(&mesh(endpoint, Vec::new()));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let entry = Entry::Service {
            caller: None,
            service: ServiceName::parse("test/echo").unwrap(),
            port: 80,
        };
        proxy.listen(1, socket, entry);
        let bed = Bed {
            proxy,
            address,
            heard,
            registry,
        };
        (bed, endpoint)
    }

    /// Sends a request that waits at a gate, and returns once it waits.
    fn waiting(&self, gate: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("POST /a HTTP/1.1\r\nHost: echo\r\nX-Wait: {gate}\r\n");
        write!(client, "{head}Content-Length: 7\r\n\r\nthe ").unwrap();
        until(|| fixture::has_waiting(gate));
        client
    }

    /// Waits until requests without a gate get the expected answer.
    fn settles(&self, expected: &str) {
        until(|| {
            let mut client = TcpStream::connect(self.address).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client
                .write_all(b"POST /b HTTP/1.1\r\nHost: echo\r\nContent-Length: 3\r\n\r\nend")
                .unwrap();
            answer(client).contains(expected)
        });
    }

    /// Whether the endpoint has received the waiting request.
    fn was_asked(&self) -> bool {
        self.heard
            .try_iter()
            .any(|heard| heard.starts_with("POST /a "))
    }

    fn has_rejected(&self, reason: &str) -> bool {
        let mut text = String::new();
        self.registry.render(&mut text);
        let reason = format!("reason=\"{reason}\"");
        let mut lines = text.lines();
        lines
            .any(|line| line.contains("rejected") && line.contains(&reason) && line.ends_with(" 1"))
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "in vain");
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn answer(mut client: TcpStream) -> String {
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_that_waits_is_sent_when_the_wait_is_over() {
    let (bed, _) = Bed::new(Settings::default());
    let mut client = bed.waiting("sent");
    assert!(!bed.was_asked(), "nothing is sent meanwhile");
    fixture::open("sent");
    client.write_all(b"end").unwrap();
    let heard = bed.heard.recv_timeout(PATIENCE).unwrap();
    assert!(heard.starts_with("POST /a HTTP/1.1\r\n"), "{heard}");
    assert!(heard.ends_with("\r\n\r\nthe end"), "{heard}");
    assert!(answer(client).ends_with("first"));
}

#[test]
fn a_request_whose_policy_is_revoked_while_it_waits_is_refused() {
    let (bed, endpoint) = Bed::new(Settings::default());
    let client = bed.waiting("revoked");
    bed.proxy.apply(&mesh(endpoint, vec![deny()]));
    bed.settles("policy_denied");
    // No part of the request was sent, so the wait continues, and the later steps check the policies again.
    fixture::open("revoked");
    let answer = answer(client);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("Heddle-Reason: policy_denied"), "{answer}");
    assert!(!bed.was_asked());
}

#[test]
fn a_request_that_waits_goes_where_the_configuration_of_then_says() {
    let (bed, _) = Bed::new(Settings::default());
    let mut client = bed.waiting("moved");
    let (other, heard) = endpoint("other");
    bed.proxy.apply(&mesh(other, Vec::new()));
    bed.settles("other");
    fixture::open("moved");
    client.write_all(b"end").unwrap();
    assert!(answer(client).ends_with("other"));
    assert!(heard.try_iter().any(|heard| heard.starts_with("POST /a ")));
    assert!(!bed.was_asked());
}

#[test]
fn a_wait_ends_with_the_time_for_the_request() {
    let mut settings = Settings::default();
    settings.timeouts.response_head = Duration::from_millis(100);
    let (bed, _) = Bed::new(settings);
    let answer = answer(bed.waiting("late"));
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(
        answer.contains("Heddle-Reason: request_timeout"),
        "{answer}"
    );
}

#[test]
fn a_wait_ends_with_its_client() {
    let (bed, _) = Bed::new(Settings::default());
    let client = bed.waiting("gone");
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    until(|| bed.has_rejected("client_gone"));
    assert!(!bed.was_asked());
}

#[test]
fn a_wait_ends_when_the_time_to_drain_is_over() {
    let (bed, _) = Bed::new(Settings::default());
    let client = bed.waiting("drained");
    let drained = bed.proxy.drain(Duration::from_millis(50));
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(drained);
    let answer = answer(client);
    assert!(answer.contains("Heddle-Reason: draining"), "{answer}");
}
