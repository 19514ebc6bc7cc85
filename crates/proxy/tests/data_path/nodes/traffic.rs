//! Traffic from one node to the other arrives unchanged.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::{Protocol, Settings};

use super::pair::Pair;
use crate::policy::guarded;
use crate::support::{
    Client, GET, Log, PATIENCE, Upstream, bounded, listener, mirror, over, post, quick, refusing,
    serve, workers,
};

pub(crate) fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_request_reaches_a_workload_of_another_node() {
    let pair = Pair::new(mirror(), AppProtocol::Http);
    let mut client = pair.client("shop");
    for turn in 0..3 {
        let response = client
            .ask("GET /a%2Fb?c HTTP/1.1\r\nHost: ECHO.test\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n");
        assert_eq!(response.status(), 200, "{turn}");
        let seen = response.text();
        assert!(seen.starts_with("GET /a%2Fb?c HTTP/1.1\r\n"), "{seen}");
        let forwarded: Vec<_> = seen
            .lines()
            .filter(|line| line.to_ascii_lowercase().starts_with("x-forwarded"))
            .collect();
        let expected = [
            "X-Forwarded-For: 127.0.0.1",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: echo.test",
        ];
        assert_eq!(forwarded, expected, "what the client says is not believed");
    }
    // One connection for all requests.
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_handshakes_total", &[], 1.0);
        side.expect("heddle_handshakes_refused_total", &[], 0.0);
    }
    // Each node counts with the caller's identity.
    let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_http_requests_total", &labels, 3.0);
    }
}

#[test]
fn bytes_between_nodes_are_counted_as_they_are_below_tls() {
    const NAME: &str = "heddle_node_bytes_total";
    let pair = Pair::new(serve(|_| "0123456789".repeat(300)), AppProtocol::Http);
    let mut client = pair.client("shop");
    let [mut sent, mut received] = [0.0; 2];
    for turn in 0..3 {
        let response = client.ask(GET);
        assert_eq!(response.status(), 200, "{turn}");
        let of = |direction| pair.calling.metric(NAME, &[direction]);
        let (more, answered) = (of("sent") - sent, of("received") - received);
        (sent, received) = (of("sent"), of("received"));
        // First both greetings, the destination, and all lines of both heads; later only the differences to earlier
        // heads, which are none, and a response body of 3,000 bytes.
        let most = if turn == 0 { 400.0 } else { 24.0 };
        assert!((10.0..=most).contains(&more), "{turn}: {more}");
        assert!(
            (3_010.0..3_000.0 + most).contains(&answered),
            "{turn}: {answered}"
        );
    }
    // One node sends as many bytes as the other receives.
    pair.called.expect(NAME, &["received"], sent);
    pair.called.expect(NAME, &["sent"], received);
    pair.calling
        .expect(NAME, &["protocol=\"link\""], sent + received);
}

#[test]
fn callers_do_not_share_connections() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Http);
    for caller in ["shop", "intruder", "unidentified"].repeat(2) {
        assert_eq!(pair.get(caller).status(), 200, "{caller}");
    }
    pair.called.expect("heddle_handshakes_total", &[], 3.0);
    for source in ["test/shop", "test/intruder", "unidentified"] {
        let label = format!("source=\"{source}\"");
        pair.called
            .expect("heddle_http_requests_total", &[&label], 2.0);
    }
}

#[test]
fn bodies_arrive_as_they_were_in_both_directions() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Http);
    let body = bytes(3_000_000);
    let sent = body.clone();
    let server = thread::spawn(move || {
        let mut server = upstream.accept();
        for _ in 0..3 {
            assert!(server.head().starts_with("POST /"));
            assert!(server.exact(sent.len()) == sent, "the request's body");
            let length = sent.len();
            server.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
            ));
            server.send(&sent);
        }
    });
    let mut client = pair.client("shop");
    for _ in 0..3 {
        let request = [post(body.len()).as_bytes(), &body].concat();
        let writer = client.send_aside(request);
        assert!(client.response().body == body, "the answer's body");
        writer.join().unwrap();
    }
    server.join().unwrap();
}

#[test]
fn an_answer_that_ends_with_the_connection_is_whole_or_cut() {
    for whole in [true, false] {
        let (upstream, pair) = Pair::scripted(AppProtocol::Http);
        let mut client = pair.sending("shop", GET);
        let server = upstream.replying("HTTP/1.1 200 OK\r\n\r\nhello");
        assert!(client.head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.exact(5), b"hello");
        if !whole {
            server.reset_on_drop();
        }
        drop(server);
        let mut rest = [0; 1];
        let ended = std::io::Read::read(&mut client.stream, &mut rest);
        assert_eq!(ended.is_ok(), whole, "{ended:?}");
    }
}

#[test]
fn bytes_pass_and_each_direction_ends_by_itself() {
    for protocol in [AppProtocol::Tcp, AppProtocol::Undeclared] {
        let (upstream, pair) = Pair::scripted(protocol);
        let mut client = pair.sending("shop", [0, 1, 2]);
        let mut server = upstream.accept();
        assert_eq!(server.exact(3), [0, 1, 2]);
        server.send(b"pong");
        assert_eq!(client.exact(4), b"pong");
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.rest(), b"", "the end is passed on");
        server.send(b"later");
        drop(server);
        assert_eq!(client.rest(), b"later");
    }
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Undeclared);
    let mut client = pair.client("shop");
    let mut server = upstream.accept().sending(b"220 hello\r\n");
    assert_eq!(client.exact(11), b"220 hello\r\n");
    client.send(b"EHLO\r\n");
    assert_eq!(server.exact(6), b"EHLO\r\n");
}

#[test]
fn undeclared_http_is_http_on_both_nodes() {
    let pair = Pair::new(serve(|_| "ok".into()), AppProtocol::Undeclared);
    for _ in 0..2 {
        assert_eq!(pair.get("shop").status(), 200);
    }
    let labels = ["source=\"test/shop\""];
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_http_requests_total", &labels, 2.0);
    }
}

#[test]
fn a_reset_is_a_reset_on_the_other_side() {
    let (upstream, pair) = Pair::scripted(AppProtocol::Tcp);
    let client = pair.sending("shop", b"x");
    let mut server = upstream.accept();
    assert_eq!(server.exact(1), b"x");
    server.reset();
    client.expect_reset();
}

#[test]
fn an_endpoint_that_is_away_is_said_so() {
    let away = refusing();
    let pair = Pair::new(away, AppProtocol::Http);
    assert_eq!(pair.get("shop").verdict(), (503, "upstream_connect_failed"));
    let pair = Pair::new(away, AppProtocol::Tcp);
    assert_eq!(pair.client("shop").rest(), b"");
    pair.calling.expect_rejected("upstream_connect_failed", 1.0);
}

#[test]
fn a_trailer_that_connection_names_reaches_no_other_node() {
    const BODY: &str = "1\r\nx\r\n0\r\nX-Hop: 1\r\nX-Sum: 1\r\n\r\n";
    const KEPT: &[u8] = b"1\r\nx\r\n0\r\nx-sum: 1\r\n\r\n";
    let head = "Transfer-Encoding: chunked\r\nConnection: X-Hop\r\n\r\n";
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let (upstream, pair) = Pair::scripted_with(&over(between_nodes), AppProtocol::Http);
        let mut client = pair.sending(
            "shop",
            format!("POST / HTTP/1.1\r\nHost: echo\r\n{head}{BODY}"),
        );
        let mut server = upstream.accept();
        server.head();
        assert_eq!(server.exact(KEPT.len()).to_ascii_lowercase(), KEPT);
        server.send(format!("HTTP/1.1 200 OK\r\n{head}{BODY}"));
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        assert_eq!(client.exact(KEPT.len()).to_ascii_lowercase(), KEPT);
    }
}

/// The calling node's response and log line for a request and a flow, when it uses `address` for the other node.
fn expect_away(settings: &Settings, address: SocketAddr, status: u16, reason: &str) {
    for protocol in [AppProtocol::Http, AppProtocol::Tcp] {
        let upstream = Upstream::new();
        let (writes, log) = Log::open();
        let mesh = guarded(upstream.address, protocol);
        let pair = Pair::unlike([settings, settings], mesh, Some(writes), |_| address);
        match protocol {
            AppProtocol::Http => assert_eq!(pair.get("shop").verdict(), (status, reason)),
            _ => assert_eq!(pair.client("shop").rest(), b""),
        }
        let named = format!(r#""reason":"{reason}""#);
        // Retried as often as for an endpoint that refuses connections.
        log.expect(&[&named, r#""blame":"node""#, r#""attempts":3"#]);
        pair.calling.expect_rejected(reason, 1.0);
        let failures = "heddle_upstream_connect_failures_total";
        assert!(pair.calling.metric(failures, &[]) > 0.0);
        assert!(upstream.is_quiet());
    }
}

#[test]
fn a_node_that_takes_no_connection_is_to_blame_and_not_the_endpoint() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        expect_away(&over(between_nodes), refusing(), 503, "node_connect_failed");
    }
}

#[test]
fn a_node_that_is_silent_is_to_blame_and_not_the_endpoint() {
    // Its kernel accepts connections, but nothing reads them.
    let (_silent, address) = listener();
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let mut settings = quick(|timeouts| timeouts.connect = Duration::from_millis(200));
        settings.between_nodes = between_nodes;
        expect_away(&settings, address, 504, "node_connect_timeout");
    }
}

#[test]
fn connections_between_nodes_move_from_worker_to_worker() {
    let settings = Settings {
        between_nodes: Protocol::Http1,
        ..workers(3, 3)
    };
    let (upstream, pair) = Pair::scripted_with(&settings, AppProtocol::Tcp);
    let body = Arc::new(bytes(1_000_000));
    let client = pair.sending("shop", b"x");
    let mut server = upstream.accept();
    assert_eq!(server.exact(1), b"x");
    // Sends the same bytes again and again, until the connection has moved often enough.
    let enough = Arc::new(AtomicBool::new(false));
    let ways = [&client.stream, &server.stream].map(|stream| {
        let mut stream = stream.try_clone().unwrap();
        let (body, enough) = (Arc::clone(&body), Arc::clone(&enough));
        thread::spawn(move || {
            let mut sent = 0;
            for piece in body.chunks(50_000).cycle() {
                if enough.load(Ordering::Relaxed) {
                    break;
                }
                stream.write_all(piece).unwrap();
                sent += piece.len();
                thread::park_timeout(Duration::from_micros(500));
            }
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        })
    });
    let heard = [server, client].map(|mut end| {
        let body = Arc::clone(&body);
        thread::spawn(move || {
            let rest = end.rest();
            let is_same = rest.chunks(body.len()).all(|part| body.starts_with(part));
            assert!(is_same, "what comes is what was sent");
            rest.len()
        })
    });
    let until = Instant::now() + PATIENCE;
    while pair.called.metric("heddle_connections_moved_total", &[]) < 5.0 {
        assert!(Instant::now() < until, "it moves");
        pair.calling.proxy.rotate();
        pair.called.proxy.rotate();
        thread::park_timeout(Duration::from_millis(5));
    }
    enough.store(true, Ordering::Relaxed);
    let sent = ways.map(|way| way.join().unwrap());
    assert_eq!(heard.map(|end| end.join().unwrap()), sent);
}

#[test]
fn a_workload_gets_no_more_than_its_share_of_a_nodes_connections() {
    let settings = bounded(|bounds| bounds.connections = 80);
    let (upstream, pair) = Pair::scripted_with(&settings, AppProtocol::Tcp);
    // Each caller also has a share of its own node's connections; none is used up here.
    let of = |caller: &str, count| -> Vec<Client> {
        let clients = (0..count).map(|_| pair.client(caller));
        clients.collect()
    };
    let first = of("intruder", 20);
    // Each caller has its own link, so the order of arrival would otherwise be random.
    pair.called.expect("heddle_connections_active", &[], 20.0);
    let clients = (first, of("shop", 25));
    // Half of what the reserved eighth and one link of each caller leave of the limit.
    let refused = "heddle_connections_over_share_total";
    pair.called.expect(refused, &[], 11.0);
    pair.called.expect("heddle_connections_active", &[], 34.0);
    let labels = ["source=\"test/shop\"", "reason=\"upstream_overflow\""];
    let failed = "heddle_tcp_connections_failed_total";
    pair.calling.expect(failed, &labels, 11.0);
    // The endpoint accepts none of them: the kernel resets them.
    drop((clients, upstream));
    pair.called.expect("heddle_connections_active", &[], 0.0);
}
