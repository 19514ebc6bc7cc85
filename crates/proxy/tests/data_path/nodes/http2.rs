//! Two nodes with HTTP/2 between them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use heddle_model::AppProtocol;
use heddle_proxy::{Entry, Protocol};

use super::pair::{Pair, id};
use super::traffic::bytes;
use super::trust::denied;
use crate::policy::allow;
use crate::support::{Client, GET, Upstream, field, get, mirror, over, post, refusing, serve};

fn scripted() -> (Upstream, Pair) {
    Pair::scripted_with(&over(Protocol::Http2), AppProtocol::Http)
}

/// A pair with an endpoint that answers by itself.
fn pair(endpoint: SocketAddr) -> Pair {
    Pair::with(&over(Protocol::Http2), endpoint, AppProtocol::Http)
}

/// Reads a chunked body without trailers.
pub(super) fn chunked(client: &mut Client) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(client.exact(1));
        }
        let size = std::str::from_utf8(&line).unwrap().trim_end();
        let size = usize::from_str_radix(size, 16).unwrap();
        body.extend(client.exact(size));
        assert_eq!(client.exact(2), b"\r\n");
        if size == 0 {
            return body;
        }
    }
}

#[test]
fn requests_share_a_connection_and_say_what_they_said() {
    let pair = pair(mirror());
    let mut clients: Vec<Client> = (0..3).map(|_| pair.client("shop")).collect();
    for turn in 0..3 {
        for client in &mut clients {
            let response = client.ask(
                "GET /a%2Fb?c HTTP/1.1\r\nHost: ECHO.test\r\nX-Forwarded-For: 1.2.3.4\r\n\
                 heddle-destination: 00\r\nCookie: a=b\r\n\r\n",
            );
            assert_eq!(response.status(), 200, "{turn}");
            let seen = response.text();
            let expected = "GET /a%2Fb?c HTTP/1.1\r\n\
                 host: echo.test\r\n\
                 cookie: a=b\r\n\
                 x-forwarded-for: 127.0.0.1\r\n\
                 x-forwarded-proto: http\r\n\
                 x-forwarded-host: echo.test\r\n\r\n";
            assert_eq!(seen, expected);
        }
    }
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_handshakes_total", &[], 1.0);
        let labels = ["source=\"test/shop\"", "destination_service=\"test/echo\""];
        side.expect("heddle_http_requests_total", &labels, 9.0);
    }
}

#[test]
fn callers_do_not_share_connections() {
    let pair = pair(serve(|_| "ok".into()));
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
    const SIZES: [usize; 4] = [0, 4096, 1 << 20, 3_000_000];
    let (upstream, pair) = scripted();
    let server = thread::spawn(move || {
        let mut server = upstream.accept();
        for size in SIZES {
            assert!(server.head().starts_with("POST /"));
            assert!(server.exact(size) == bytes(size), "the request's {size}");
            server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"));
            server.send(bytes(size));
        }
    });
    let mut client = pair.client("shop");
    for size in SIZES {
        let request = [post(size).into_bytes(), bytes(size)].concat();
        let writer = client.send_aside(request);
        assert!(client.response().body == bytes(size), "the answer's {size}");
        writer.join().unwrap();
    }
    server.join().unwrap();
}

#[test]
fn many_requests_are_under_way_at_once() {
    let endpoint = serve(|head| head.len().to_string().repeat(5_000));
    let pair = pair(endpoint);
    thread::scope(|scope| {
        for number in 0..32 {
            let mut client = pair.client("shop");
            scope.spawn(move || {
                for turn in 0..8 {
                    let long = "x".repeat(number * 40 + turn);
                    let length = number * 500;
                    client.send(format!(
                        "POST /{long} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                    ));
                    let response = client.ask(bytes(length));
                    assert_eq!(response.status(), 200);
                    assert!(response.body.len() >= 10_000);
                }
            });
        }
    });
    let labels = ["source=\"test/shop\""];
    pair.called
        .expect("heddle_http_requests_total", &labels, 256.0);
    // One connection for each Worker of the calling node, which has one Worker.
    pair.called.expect("heddle_handshakes_total", &[], 1.0);
}

#[test]
fn chunks_are_chunks_at_the_other_end() {
    let (upstream, pair) = scripted();
    let mut client = pair.client("shop");
    let mut server: Option<Client> = None;
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("6;x=y\r\nheddle\r\n");
        let server = server.get_or_insert_with(|| upstream.accept());
        let head = server.head();
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
        // Bytes are forwarded before the end of the body is known.
        assert_eq!(server.exact(11), b"6\r\nheddle\r\n");
        client.send("4\r\n-end\r\n0\r\nX-Trailer: kept\r\nHost: other\r\n\r\n");
        let end = b"4\r\n-end\r\n0\r\nx-trailer: kept\r\n\r\n";
        assert_eq!(server.exact(end.len()), end);
        server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
        let head = client.head();
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
        assert_eq!(client.exact(7), b"2\r\nok\r\n");
        server.send("1\r\n!\r\n0\r\n\r\n");
        assert_eq!(chunked(&mut client), b"!");
    }
}

#[test]
fn interim_answers_come_before_the_final_one() {
    let (upstream, pair) = scripted();
    let mut client = pair.sending(
        "shop",
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    );
    let mut server = upstream.accept();
    assert_eq!(field(&server.head(), "expect"), Some("100-continue"));
    server.send("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    client.send("hi");
    assert_eq!(server.exact(2), b"hi");
    server.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(field(&client.head(), "link"), Some("x"));
    assert_eq!(client.response().status(), 204);
}

#[test]
fn answers_without_a_body_have_none() {
    let (upstream, pair) = scripted();
    let mut client = pair.sending("shop", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = upstream.accept();
    assert!(server.head().starts_with("HEAD / "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
    assert_eq!(field(&client.head(), "content-length"), Some("12345"));
    client.send(GET);
    let mut server = upstream.accept();
    assert!(server.head().starts_with("GET / "));
    server.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\n\r\n");
    assert_eq!(field(&client.head(), "content-length"), Some("12345"));
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(server.head().starts_with("GET /2 "));
}

#[test]
fn what_breaks_at_the_endpoint_breaks_one_request() {
    let (upstream, pair) = scripted();
    let (mut first, mut second) = (pair.client("shop"), pair.client("shop"));
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut other = upstream.accept();
    assert!(other.head().starts_with("GET /second"));
    // Before the response begins.
    first.send(post(0));
    let server = upstream.asked();
    server.reset();
    assert_eq!(first.response().verdict(), (502, "upstream_reset"));
    // In the middle of a response.
    first.send(post(0));
    let server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    first.head();
    assert_eq!(first.exact(5), b"hello");
    server.reset();
    assert_eq!(first.rest(), b"");
    // The other request continues.
    other.answer("ok");
    assert_eq!(second.response().body, b"ok");
    pair.called.expect("heddle_handshakes_total", &[], 1.0);
}

#[test]
fn an_endpoint_that_answers_early_need_not_take_the_rest() {
    let (upstream, pair) = scripted();
    let mut client = pair.sending("shop", post(9_000_000) + "begun");
    let mut server = upstream.asked();
    assert_eq!(server.exact(5), b"begun");
    server.send(
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch",
    );
    drop(server);
    let answer = client.response();
    assert_eq!((answer.status(), &*answer.body), (413, &b"much"[..]));
    assert_eq!(client.rest(), b"");
    pair.called.expect("heddle_requests_active", &[], 0.0);
    pair.called.expect("heddle_handshakes_total", &[], 1.0);
}

#[test]
fn a_client_that_goes_takes_its_request_along_and_no_other() {
    let (upstream, pair) = scripted();
    let mut stays = pair.sending("shop", "GET /stays HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut other = upstream.asked();
    let heads = [GET.to_owned(), post(10) + "hello"];
    for head in heads {
        let goes = pair.sending("shop", head);
        let mut server = upstream.asked();
        goes.reset();
        server.rest();
    }
    let gone = ["reason=\"client_gone\""];
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_requests_rejected_total", &gone, 2.0);
    }
    other.answer("ok");
    assert_eq!(stays.response().body, b"ok");
    pair.called.expect("heddle_handshakes_total", &[], 1.0);
}

#[test]
fn a_client_that_reads_slowly_stops_its_endpoint_and_no_other() {
    let (upstream, pair) = scripted();
    let mut slow = pair.sending("shop", GET);
    let mut server = upstream.asked();
    let size = 32_000_000;
    let sender = thread::spawn(move || {
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"));
        for _ in 0..size / 100_000 {
            server.send(vec![b'x'; 100_000]);
        }
    });
    slow.head();
    for turn in 0..20 {
        let mut quick = pair.sending("shop", GET);
        if turn == 0 {
            let mut server = upstream.accept();
            thread::spawn(move || {
                while server.try_head().is_some() {
                    server.answer("ok");
                }
            });
        }
        assert_eq!(quick.response().body, b"ok");
    }
    assert!(!sender.is_finished(), "it is held up");
    assert_eq!(slow.exact(size).len(), size);
    sender.join().unwrap();
}

#[test]
fn what_may_become_something_else_has_a_connection_of_its_own() {
    let (upstream, pair) = scripted();
    let mut client = pair.sending(
        "shop",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
    );
    let mut server = upstream.accept();
    assert_eq!(field(&server.head(), "upgrade"), Some("echo"));
    server.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101"));
    client.send("ping");
    assert_eq!(server.exact(4), b"ping");
    server.send("pong");
    assert_eq!(client.exact(4), b"pong");
    for protocol in [AppProtocol::Tcp, AppProtocol::Undeclared] {
        let pair = Pair::with(&over(Protocol::Http2), upstream.address, protocol);
        let mut client = pair.sending("shop", [0, 1, 2]);
        let mut server = upstream.accept();
        assert_eq!(server.exact(3), [0, 1, 2]);
        server.send(b"pong");
        assert_eq!(client.exact(4), b"pong");
    }
}

#[test]
fn undeclared_http_is_http_on_both_nodes() {
    let pair = Pair::with(
        &over(Protocol::Http2),
        serve(|_| "ok".into()),
        AppProtocol::Undeclared,
    );
    for _ in 0..2 {
        assert_eq!(pair.get("shop").status(), 200);
    }
    let labels = ["source=\"test/shop\""];
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_http_requests_total", &labels, 2.0);
    }
}

#[test]
fn a_path_that_http2_cannot_say_goes_as_it_is() {
    let pair = pair(mirror());
    let seen = pair.ask("shop", get("/?<a>")).text();
    assert!(seen.starts_with("GET /?<a> HTTP/1.1\r\n"), "{seen}");
}

#[test]
fn policies_hold_and_say_so() {
    let mut pair = pair(serve(|_| "ok".into()));
    pair.guard(allow("shop"));
    assert_eq!(pair.get("shop").status(), 200);
    assert_eq!(pair.get("intruder").verdict(), (403, "policy_denied"));
    assert_eq!(pair.get("shop").status(), 200);
}

#[test]
fn a_node_that_is_away_is_said_so_and_found_again() {
    let pair = pair(serve(|_| "ok".into()));
    pair.called.proxy.unlisten(1);
    while TcpStream::connect(pair.mesh_address).is_ok() {
        thread::yield_now();
    }
    assert_eq!(pair.get("shop").verdict(), (503, "node_connect_failed"));
    let socket = TcpListener::bind(pair.mesh_address).unwrap();
    pair.called.proxy.listen(1, socket, Entry::Mesh);
    assert_eq!(pair.get("shop").status(), 200);
    let failures = "heddle_upstream_connect_failures_total";
    assert!(pair.calling.metric(failures, &[]) > 0.0);
}

#[test]
fn an_endpoint_that_is_away_is_said_so() {
    let pair = pair(refusing());
    assert_eq!(pair.get("shop").verdict(), (503, "upstream_connect_failed"));
}

#[test]
fn an_answer_that_ends_with_the_connection_is_whole_or_cut() {
    for whole in [true, false] {
        let (upstream, pair) = scripted();
        let mut client = pair.sending("shop", GET);
        let server = upstream.replying("HTTP/1.1 200 OK\r\n\r\nhello");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        // The length is unknown, so the body is chunked.
        assert_eq!(client.exact(10), b"5\r\nhello\r\n");
        if !whole {
            server.reset_on_drop();
        }
        drop(server);
        match whole {
            true => assert_eq!(client.exact(5), b"0\r\n\r\n"),
            false => assert_eq!(client.rest(), b""),
        }
    }
}

#[test]
fn a_request_under_way_of_a_denied_caller_ends_and_is_told_why() {
    let (upstream, pair) = scripted();
    let mut client = pair.sending("intruder", GET);
    let mut server = upstream.asked();
    let trust = pair.trust(&[&pair.authority], denied(&id("intruder")));
    pair.called_trusts(&trust);
    assert_eq!(client.response().verdict(), (503, "identity_revoked"));
    assert_eq!(server.rest(), b"");
    // New connections of this caller are refused, too.
    assert_eq!(pair.get("intruder").verdict(), (503, "peer_refused"));
}

#[test]
fn a_node_that_proves_another_identity_is_not_called() {
    let pair = pair(serve(|_| "ok".into()));
    pair.called_is_another();
    assert_eq!(pair.get("shop").verdict(), (503, "peer_refused"));
}
