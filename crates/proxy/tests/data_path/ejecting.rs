//! Failures that `eject-on: gateway-failure` counts, and responses that it does not count.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use heddle_model::{AppProtocol, Ejection, Failing, Mesh};
use heddle_proxy::Settings;

use crate::nodes::pair::Pair;
use crate::policy::guarded;
use crate::support::{Bed, Client, GET, Upstream, each_connection, mesh, quick, serve};

const EJECTIONS: &str = "heddle_upstream_ejections_total";

/// An endpoint that runs `act` for each request, and the number of its requests.
fn endpoint(act: impl Fn(&mut Client, usize) + Send + Sync + 'static) -> (SocketAddr, Counted) {
    let counted = Counted::default();
    let asked = Arc::clone(&counted.0);
    let address = each_connection(move |stream| {
        let mut client = Client::of(stream);
        client.stream.set_read_timeout(None).unwrap();
        while client.try_head().is_some() {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            act(&mut client, number);
        }
    });
    (address, counted)
}

#[derive(Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// An endpoint that answers with these statuses in turn, repeatedly.
fn of_statuses(statuses: &'static [u16]) -> (SocketAddr, Counted) {
    endpoint(|client, number| {
        let status = statuses[number % statuses.len()];
        client.send(format!(
            "HTTP/1.1 {status} As Told\r\nContent-Length: 0\r\n\r\n"
        ));
    })
}

/// A mesh with this endpoint and a good one, in round robin; the first is ejected for longer than a test lasts after
/// `after` gateway failures in a row.
fn guarded_from(bad: SocketAddr, after: u32) -> Mesh {
    let mut mesh = mesh(&[bad, serve(|_| "well".into())], None);
    mesh.services[0].balancing.ejection = Some(Ejection {
        after,
        on: Failing::GatewayFailure,
        base_ms: Ejection::LONGEST_MS,
        max_percent: 50,
    });
    mesh
}

/// Sends requests one after the other on one connection, and opens a new connection after an incomplete response.
fn ask(bed: &Bed, times: usize) {
    for _ in 0..times {
        let mut client = bed.sending(GET);
        if let Some(head) = client.try_head() {
            assert!(head.starts_with("HTTP/1.1 "), "{head}");
        }
    }
}

#[test]
fn gateway_failures_in_a_row_leave_an_endpoint_out() {
    let (bad, asked) = of_statuses(&[502, 503, 504]);
    let bed = Bed::of(&guarded_from(bad, 3));
    ask(&bed, 6);
    bed.expect(EJECTIONS, &[], 1.0);
    assert_eq!(asked.get(), 3);
    for _ in 0..6 {
        assert_eq!(bed.ask(GET).body, b"well");
    }
    assert_eq!(asked.get(), 3, "it is left out");
}

#[test]
fn other_answers_are_no_gateway_failures_however_bad_they_are() {
    for status in [400, 404, 408, 429, 499, 500, 501, 505, 507, 511, 599] {
        let (bad, asked) = endpoint(move |client, _| {
            client.send(format!(
                "HTTP/1.1 {status} As Told\r\nContent-Length: 0\r\n\r\n"
            ));
        });
        let bed = Bed::of(&guarded_from(bad, 1));
        ask(&bed, 8);
        assert_eq!(asked.get(), 4, "{status}: every second request");
        assert_eq!(bed.metric(EJECTIONS, &[]), 0.0, "{status}");
    }
}

#[test]
fn any_other_answer_ends_the_row_of_gateway_failures() {
    // At most two in a row, interrupted by a 500 and a 200.
    let (bad, asked) = of_statuses(&[502, 503, 500, 504, 502, 200]);
    let bed = Bed::of(&guarded_from(bad, 3));
    ask(&bed, 24);
    assert_eq!(asked.get(), 12);
    assert_eq!(bed.metric(EJECTIONS, &[]), 0.0);
}

/// Checks that one such request of the endpoint gets this reason, and ejects it.
fn is_a_failure(settings: Settings, reason: &str, bad: SocketAddr) {
    let bed = Bed::with(settings, &guarded_from(bad, 1));
    ask(&bed, 2);
    bed.expect_rejected(reason, 1.0);
    bed.expect(EJECTIONS, &[], 1.0);
    for _ in 0..4 {
        assert_eq!(bed.ask(GET).body, b"well", "{reason}");
    }
}

#[test]
fn no_answer_is_a_gateway_failure_too() {
    let default = Settings::default;
    let says = |bytes: &'static str| {
        let (bad, _) = endpoint(move |client, _| {
            client.send(bytes);
            let _ended = client.stream.shutdown(std::net::Shutdown::Both);
        });
        bad
    };
    is_a_failure(default(), "upstream_reset", says(""));
    is_a_failure(default(), "upstream_malformed", says("nonsense\r\n\r\n"));
    let half = says("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    is_a_failure(default(), "upstream_truncated", half);

    // The endpoint has read nothing, so closing resets the connection.
    let resets = each_connection(|stream| {
        let client = Client::of(stream);
        client.stream.peek(&mut [0]).unwrap();
        client.reset();
    });
    is_a_failure(default(), "upstream_reset", resets);

    let (silent, _) = endpoint(|_, _| thread::park());
    let quick = quick(|timeouts| timeouts.response_head = Duration::from_millis(300));
    is_a_failure(quick, "upstream_response_timeout", silent);
}

#[test]
fn a_connection_that_is_refused_is_a_gateway_failure() {
    // The port is bound but no process listens, so it stays refusing for the whole test.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    );
    let socket = socket.unwrap();
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    rustix::net::bind(&socket, &any).unwrap();
    let refuses = rustix::net::getsockname(&socket)
        .unwrap()
        .try_into()
        .unwrap();
    let bed = Bed::of(&guarded_from(refuses, 1));
    // The request is retried on the other endpoint.
    for _ in 0..2 {
        assert_eq!(bed.ask(GET).body, b"well");
    }
    bed.expect(EJECTIONS, &[], 1.0);
    // The ejected endpoint gets no request even when it listens, and after its connect failure is forgotten.
    rustix::net::listen(&socket, 16).unwrap();
    let socket = TcpListener::from(socket);
    socket.set_nonblocking(true).unwrap();
    // Connect failures are forgotten after half a second.
    let passed_over = std::time::Instant::now() + Duration::from_millis(1_000);
    while std::time::Instant::now() < passed_over {
        assert_eq!(bed.ask(GET).body, b"well");
    }
    assert!(socket.accept().is_err(), "it is left out");
}

/// Two nodes: the called one has this limit of connections to the endpoint, and the calling one ejects the endpoint
/// after one gateway failure.
fn two_nodes(endpoint: SocketAddr, connections_per_endpoint: usize) -> Pair {
    let mut mesh = guarded(endpoint, AppProtocol::Http);
    mesh.services[0].balancing.ejection = guarded_from(endpoint, 1).services[0].balancing.ejection;
    let mut called = quick(|timeouts| timeouts.connect = Duration::from_millis(200));
    called.bounds.connections_per_endpoint = connections_per_endpoint;
    Pair::unlike([&Settings::default(), &called], mesh, None, |address| {
        address
    })
}

#[test]
fn what_another_node_answers_for_reasons_of_its_own_is_no_failure_of_the_endpoint() {
    let upstream = Upstream::new();
    let pair = two_nodes(upstream.address, 1);
    let mut first = pair.sending("shop", GET);
    let mut server = upstream.asked();
    // The called node itself answers with this 503.
    assert_eq!(pair.get("intruder").verdict(), (503, "upstream_overflow"));
    assert_eq!(pair.calling.metric(EJECTIONS, &[]), 0.0);
    server.answer("");
    assert_eq!(first.response().status(), 200);
    assert_eq!(pair.calling.metric(EJECTIONS, &[]), 0.0);
}

#[test]
fn gateway_failures_of_an_endpoint_of_another_node_are_its_own() {
    let (bad, _) = of_statuses(&[503]);
    let pair = two_nodes(bad, 1);
    assert_eq!(pair.get("shop").verdict(), (503, ""));
    pair.calling.expect(EJECTIONS, &[], 1.0);

    let upstream = Upstream::new();
    let pair = two_nodes(upstream.address, 1);
    let mut client = pair.sending("shop", GET);
    drop(upstream.asked());
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    pair.calling.expect(EJECTIONS, &[], 1.0);
}
