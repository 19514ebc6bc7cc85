//! Every way in which an exchange between two nodes can end, and what the caller's next exchange with the same
//! workload meets.
//!
//! Exchanges of a caller share state between two nodes: a link and the idle connections at its other end, an HTTP/2
//! connection, pooled HTTP/1.1 connections. No ending may disturb the next exchange.

mod endpoint;

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use heddle_model::{AppProtocol, PathMatch, Policy, PolicyAction, PolicyRule};
use heddle_proxy::{Protocol, Settings};

use super::http2::chunked;
use super::pair::Pair;
use super::traffic::bytes;
use crate::policy::{asking_for, from, guarded, policy, with};
use crate::support::{Client, GET, field, post};
pub(super) use endpoint::Endpoint;

/// Two nodes, and an endpoint that acts as its path says.
struct Nodes {
    pair: Pair,
    endpoint: Endpoint,
}

impl Nodes {
    fn client(&self) -> Client {
        self.pair.client("shop")
    }

    fn sending(&self, bytes: impl AsRef<[u8]>) -> Client {
        self.pair.sending("shop", bytes)
    }
}

/// Bytes of a body that exceeds all buffers on the way together.
const LARGE: usize = 1_500_000;

/// Makes one exchange end. Returns the client if its connection can be reused.
type Ending = fn(&Nodes) -> Option<Client>;

const ENDINGS: [(&str, Ending); 33] = [
    ("a whole answer", |nodes| answered(nodes, "GET", "/", 200)),
    ("an answer without a body", |nodes| {
        answered(nodes, "GET", "/empty", 204)
    }),
    ("an answer to HEAD", |nodes| {
        let mut client = nodes.sending("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        Some(client)
    }),
    ("chunks and trailers", |nodes| {
        let mut client = nodes.sending("GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        let mut chunks = Vec::new();
        while !chunks.ends_with(b"\r\n\r\n") {
            chunks.extend(client.exact(1));
        }
        Some(client)
    }),
    ("an answer that ends with its connection", |nodes| {
        let mut client = nodes.sending("GET /until-close HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 "));
        // A response that cannot end with the connection is chunked.
        if field(&head, "transfer-encoding").is_some() {
            assert_eq!(chunked(&mut client), b"whole");
            return Some(client);
        }
        assert_eq!(client.rest(), b"whole");
        None
    }),
    ("bytes behind the answer", |nodes| {
        answered(nodes, "GET", "/talkative", 200)
    }),
    ("an early answer, and a close", |nodes| {
        early(nodes, "/early", 405, 1_000)
    }),
    ("an early answer to a large body, and a close", |nodes| {
        early(nodes, "/early", 405, LARGE)
    }),
    ("an early answer after an interim one", |nodes| {
        let mut client = posting(nodes, "/early-interim", LARGE);
        // The interim response comes first, or not at all.
        let heads = (0..2).map(|_| client.head());
        assert!(
            heads
                .into_iter()
                .any(|head| head.starts_with("HTTP/1.1 405 "))
        );
        None
    }),
    ("an early answer, and a reset", |nodes| {
        let mut client = posting(nodes, "/early-reset", LARGE);
        // The reset may overtake the response.
        let head = client.try_head();
        assert!(head.is_none_or(|head| head.starts_with("HTTP/1.1 ")));
        None
    }),
    ("a policy's answer", |nodes| {
        answered(nodes, "GET", "/denied", 403)
    }),
    ("a policy's answer to a body of its own segment", |nodes| {
        let mut client =
            nodes.sending("POST /denied HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
        assert_eq!(client.response().status(), 403);
        client.send(bytes(1_000));
        None
    }),
    ("a policy's answer to a body", |nodes| {
        early(nodes, "/denied", 403, 1_000)
    }),
    ("a policy's answer to a large body", |nodes| {
        early(nodes, "/denied", 403, LARGE)
    }),
    (
        "a policy's answer to an offer of another protocol",
        |nodes| {
            let mut client = offering(nodes, "/denied");
            assert_eq!(client.response().status(), 403);
            None
        },
    ),
    (
        "an answer after the client has said that it sends no more",
        |nodes| {
            let mut client = nodes.sending(GET);
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.response().status(), 200);
            None
        },
    ),
    ("a client that ends within its body", |nodes| {
        let client = half_posted(nodes);
        client.stream.shutdown(Shutdown::Write).unwrap();
        None
    }),
    ("a client that resets within its body", |nodes| {
        half_posted(nodes).reset_on_drop();
        None
    }),
    ("a body whose chunks are malformed", |nodes| {
        let mut client = nodes
            .sending("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
        thread::park_timeout(Duration::from_millis(2));
        assert_eq!(client.ask("no size\r\n").status(), 400);
        None
    }),
    ("a client that resets instead of waiting", |nodes| {
        let client = nodes.sending("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
        thread::park_timeout(Duration::from_millis(5));
        client.reset_on_drop();
        None
    }),
    ("a client that resets within the answer", |nodes| {
        let mut client = nodes.sending("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
        client.exact(100);
        client.reset_on_drop();
        None
    }),
    ("an endpoint that resets", |nodes| {
        answered(nodes, "POST", "/reset", 502)
    }),
    ("an endpoint that closes", |nodes| {
        answered(nodes, "POST", "/close", 502)
    }),
    ("an endpoint that speaks something else", |nodes| {
        answered(nodes, "POST", "/garbage", 502)
    }),
    ("an endpoint that resets within the answer", |nodes| {
        truncated(nodes, "/reset-in-body")
    }),
    ("an endpoint that closes within the answer", |nodes| {
        truncated(nodes, "/close-in-body")
    }),
    ("an endpoint that is gone", |nodes| {
        nodes.endpoint.goes();
        let client = early(nodes, "/", 503, 1_000);
        nodes.endpoint.comes_back();
        client
    }),
    ("an endpoint that does not answer in time", |nodes| {
        answered(nodes, "POST", "/silent", 504)
    }),
    ("a policy that ends it", |nodes| {
        let mut client = nodes.sending("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
        thread::park_timeout(Duration::from_millis(5));
        nodes
            .pair
            .apply(&with(nodes.pair.mesh.clone(), vec![deny(from("shop"))]));
        let status = client.try_head();
        assert!(status.is_none_or(|head| head.starts_with("HTTP/1.1 403 ")));
        nodes.pair.apply(&nodes.pair.mesh);
        None
    }),
    ("another protocol that the client ends", |nodes| {
        let mut client = switched(nodes, "/upgrade");
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"");
        None
    }),
    ("another protocol that the endpoint ends", |nodes| {
        let mut client = switched(nodes, "/upgrade-ends");
        assert_eq!(client.rest(), b"");
        None
    }),
    ("another protocol that the client resets", |nodes| {
        switched(nodes, "/upgrade").reset_on_drop();
        None
    }),
    ("another protocol that the endpoint resets", |nodes| {
        let mut client = offering(nodes, "/upgrade-resets");
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        client.send(b"hi");
        // A reset may overtake earlier bytes.
        assert!(b"hi".starts_with(&client.rest()[..]));
        None
    }),
];

/// The next exchange.
type Next = fn(&Nodes);

const NEXT: [(&str, Next); 5] = [
    ("a request", |nodes| {
        answered(nodes, "GET", "/", 200);
    }),
    ("a request with a body", |nodes| posted(nodes, 3_000)),
    ("a request with a large body", |nodes| {
        posted(nodes, 400_000);
    }),
    ("several at once", |nodes| {
        let mut clients: Vec<Client> = (0..4).map(|_| nodes.client()).collect();
        for client in &mut clients {
            client.send(post(4) + "body");
        }
        for client in &mut clients {
            let response = client.response();
            assert_eq!((response.status(), &response.body[..]), (200, &b"body"[..]));
        }
    }),
    ("another protocol", |nodes| {
        let mut client = switched(nodes, "/upgrade");
        client.send(b"more");
        assert_eq!(client.exact(4), b"more");
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"");
    }),
];

/// Sends a request with an empty body, and expects this status.
fn answered(nodes: &Nodes, method: &str, path: &str, status: u16) -> Option<Client> {
    let mut client = nodes.sending(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    ));
    let response = client.response();
    assert_eq!(response.status(), status, "{}", response.head);
    Some(client).filter(|_| response.field("connection") != Some("close"))
}

/// Sends a request with a body, in a thread of its own.
fn posting(nodes: &Nodes, path: &str, length: usize) -> Client {
    let client = nodes.sending(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    ));
    let mut half = client.stream.try_clone().unwrap();
    // The peer may have closed the connection.
    thread::spawn(move || half.write_all(&bytes(length)));
    client
}

/// Sends a request whose response comes before the end of its body.
fn early(nodes: &Nodes, path: &str, status: u16, length: usize) -> Option<Client> {
    let response = posting(nodes, path, length).response();
    assert_eq!(response.status(), status, "{}", response.head);
    None
}

/// Sends a request with a body that the endpoint sends back.
fn posted(nodes: &Nodes, length: usize) {
    let response = posting(nodes, "/", length).response();
    assert_eq!(response.status(), 200, "{}", response.head);
    assert!(response.body == bytes(length), "what was sent comes back");
}

/// Sends a request with only a part of its body.
fn half_posted(nodes: &Nodes) -> Client {
    let client = nodes.sending(post(1_000) + "begun");
    thread::park_timeout(Duration::from_millis(5));
    client
}

/// Sends a request that gets an incomplete response.
fn truncated(nodes: &Nodes, path: &str) -> Option<Client> {
    let mut client = nodes.sending(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    ));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    let rest = client.rest();
    assert!(b"begun".starts_with(&rest[..]), "{rest:?}");
    None
}

fn offering(nodes: &Nodes, path: &str) -> Client {
    nodes.sending(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
    ))
}

/// An upgraded connection, over which bytes have gone both ways.
fn switched(nodes: &Nodes, path: &str) -> Client {
    let mut client = offering(nodes, path);
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.send(b"hi");
    assert_eq!(client.exact(2), b"hi");
    client
}

fn deny(rule: PolicyRule) -> Policy {
    policy("denied", PolicyAction::Deny, vec![rule])
}

/// Combines every ending with every next exchange.
fn every_ending_leaves_nothing(between_nodes: Protocol) {
    let mut settings = Settings {
        between_nodes,
        ..Settings::default()
    };
    settings.timeouts.response_head = Duration::from_millis(1_500);
    let endpoint = Endpoint::new();
    let rule = asking_for(PathMatch::Exact("/denied".into()));
    let mesh = with(
        guarded(endpoint.address, AppProtocol::Http),
        vec![deny(rule)],
    );
    let nodes = Nodes {
        pair: Pair::of(&settings, mesh),
        endpoint,
    };
    let mut wrong = Vec::new();
    for (ending, end) in ENDINGS {
        for (next, go_on) in NEXT {
            let case = || {
                let same = end(&nodes);
                go_on(&nodes);
                go_on(&nodes);
                if let Some(mut client) = same {
                    assert_eq!(client.ask(GET).status(), 200, "on the same connection");
                }
            };
            // Reports all failures, not only the first one.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)).is_err() {
                wrong.push(format!("{next} after {ending}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{between_nodes:?}: {wrong:#?}");
    // No exchange is left, and none has cost the link.
    for side in [&nodes.pair.calling, &nodes.pair.called] {
        side.expect("heddle_requests_active", &[], 0.0);
        side.expect("heddle_tcp_connections_active", &[], 0.0);
        if between_nodes == Protocol::Link {
            side.expect("heddle_links_total", &[], 1.0);
        }
    }
}

#[test]
fn over_links_every_ending_leaves_nothing_to_the_next() {
    every_ending_leaves_nothing(Protocol::Link);
}

#[test]
fn over_http2_every_ending_leaves_nothing_to_the_next() {
    every_ending_leaves_nothing(Protocol::Http2);
}

#[test]
fn over_http1_every_ending_leaves_nothing_to_the_next() {
    every_ending_leaves_nothing(Protocol::Http1);
}
