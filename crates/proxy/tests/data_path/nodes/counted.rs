//! Each request and flow between nodes is counted once by each node. On a single node it is counted under both
//! reporters.

use std::net::{SocketAddr, TcpListener};

use heddle_model::{AppProtocol, WorkloadName};
use heddle_proxy::{Protocol, Settings};
use heddle_telemetry::Registry;

use super::pair::{Pair, Side};
use crate::support::{Client, accept_all, echo_entry, open};

/// Both values of the `reporter` label.
const REPORTERS: [&str; 2] = ["reporter=\"source\"", "reporter=\"destination\""];

/// The sum of a metric over all samples of both nodes with these labels.
fn sum(pair: &Pair, name: &str, labels: &[&str]) -> f64 {
    let of = |registry: &Registry| -> f64 {
        let mut page = String::new();
        registry.render(&mut page);
        let lines = page.lines().filter(|line| {
            line.starts_with(&format!("{name}{{")) && labels.iter().all(|one| line.contains(one))
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    of(&pair.calling.registry) + of(&pair.called.registry)
}

/// A client on the called node itself, with that node's workload as its caller.
fn local(side: &Side) -> Client {
    let caller = WorkloadName::new("test", "echo").unwrap();
    Client::connect(open(&side.proxy, 77, echo_entry(Some(caller))))
}

/// An endpoint that answers with 200, 404 or 503, depending on the path.
fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    accept_all(listener, |stream| {
        let mut client = Client::of(stream);
        while let Some(head) = client.try_head() {
            let status = match head.split([' ', '/']).nth(2) {
                Some("missing") => "404 Not Found",
                Some("broken") => "503 Service Unavailable",
                _ => "200 OK",
            };
            client.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    })
}

fn all_protocols() -> impl Iterator<Item = Settings> {
    [Protocol::Link, Protocol::Http1, Protocol::Http2]
        .into_iter()
        .map(|between_nodes| Settings {
            between_nodes,
            ..Settings::default()
        })
}

#[test]
fn a_known_load_over_two_nodes_sums_to_itself_under_either_reporter() {
    for settings in all_protocols() {
        let pair = Pair::with(&settings, endpoint(), AppProtocol::Http);
        let mut clients = [
            pair.client("shop"),
            pair.client("intruder"),
            pair.client("unidentified"),
            local(&pair.called),
        ];
        let paths = ["fine", "missing", "fine", "broken", "fine"];
        for client in &mut clients {
            for path in paths {
                client.ask(format!("GET /{path} HTTP/1.1\r\nHost: echo.test\r\n\r\n"));
            }
        }
        let requests = "heddle_http_requests_total";
        let shop = "source=\"test/shop\"";
        pair.called.expect(requests, &[], 20.0);
        pair.calling.expect(requests, &[], 15.0);
        for reporter in REPORTERS {
            assert_eq!(sum(&pair, requests, &[reporter]), 20.0, "{reporter}");
            let of = |label: &str| sum(&pair, requests, &[reporter, label]);
            assert_eq!(of("status=\"200\""), 12.0);
            assert_eq!(of("status=\"404\""), 4.0);
            assert_eq!(of("status=\"503\""), 4.0);
            assert_eq!(of(shop), 5.0, "either node names the workload that calls");
            assert_eq!(of("destination_workload=\"test/echo\""), 20.0);
            assert_eq!(of("destination_service=\"test/echo\""), 20.0);
            assert_eq!(of("tls=\"mutual\""), 15.0);
            assert_eq!(of("source=\"unidentified\""), 5.0);
            let principal = "source_principal=\"spiffe://cluster.local/ns/test/sa/shop\"";
            assert_eq!(sum(&pair, requests, &[reporter, shop, principal]), 5.0);
            let durations = "heddle_http_request_duration_seconds_count";
            assert_eq!(sum(&pair, durations, &[reporter]), 20.0);
        }
    }
}

#[test]
fn flows_over_two_nodes_sum_to_themselves_under_either_reporter() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let callers: [&dyn Fn() -> Client; 3] = [
        &|| pair.client("shop"),
        &|| pair.client("intruder"),
        &|| local(&pair.called),
    ];
    // One after the other, since the proxy connects to the endpoint as soon as a client connects.
    for caller in callers {
        let mut client = caller();
        client.send("hello");
        let mut server = upstream.accept();
        assert_eq!(server.exact(5), b"hello");
        server.send("hi");
        assert_eq!(client.exact(2), b"hi");
    }
    let (flows, bytes) = (
        "heddle_tcp_connections_total",
        "heddle_tcp_received_bytes_total",
    );
    pair.called.expect(bytes, &[], 15.0);
    pair.calling.expect(bytes, &[], 10.0);
    for reporter in REPORTERS {
        assert_eq!(sum(&pair, flows, &[reporter]), 3.0);
        assert_eq!(sum(&pair, bytes, &[reporter]), 15.0);
        assert_eq!(sum(&pair, flows, &[reporter, "tls=\"none\""]), 1.0);
        assert_eq!(sum(&pair, flows, &[reporter, "source=\"test/shop\""]), 1.0);
    }
}
