//! Failures: which reason the client gets, and that other requests do not suffer.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

use heddle_model::{AppProtocol, Mesh};
use heddle_proxy::Settings;

use crate::support::{
    Bed, Client, GET, PREFACE, Upstream, field, mesh, post, refusing, serve, speaking,
    unused_address,
};

#[test]
fn a_service_without_endpoints_is_a_503_and_keeps_the_connection() {
    let (bed, log) = Bed::logged(Settings::default(), &mesh(&[], None));
    let mut client = bed.client();
    for _ in 0..2 {
        assert_eq!(client.ask(GET).verdict(), (503, "no_endpoint"));
        log.expect(&[r#""upstream":null"#, r#""attempts":0"#]);
    }
    bed.expect_rejected("no_endpoint", 2.0);
}

#[test]
fn an_endpoint_that_refuses_is_passed_over_for_one_that_does_not() {
    let bed = Bed::new(&[refusing(), serve(|_| "here".into())]);
    let mut client = bed.client();
    for _ in 0..4 {
        assert_eq!(client.ask(GET).body, b"here");
    }
    // After the first failure it is passed over for a while.
    bed.expect("heddle_upstream_connect_failures_total", &[], 1.0);
}

#[test]
fn endpoints_that_all_refuse_are_a_503() {
    let bed = Bed::new(&[refusing(), unused_address()]);
    assert_eq!(bed.ask(GET).verdict(), (503, "upstream_connect_failed"));
}

/// A client whose first request was answered, and the endpoint's connection, which is idle in the pool.
fn answered_once() -> (Upstream, Bed, Client, Client) {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let first = upstream.answering("");
    client.response();
    (upstream, bed, client, first)
}

#[test]
fn a_request_on_a_stale_connection_is_sent_again() {
    let (upstream, bed, mut client, mut first) = answered_once();
    // The endpoint closes while the next request is on its way: it reads the head and closes.
    client.send(GET);
    first.head();
    drop(first);
    let _second = upstream.answering("again");
    assert_eq!(client.response().body, b"again");
    bed.expect("heddle_upstream_retries_total", &[], 1.0);
}

#[test]
fn a_request_that_an_endpoint_had_is_not_said_to_have_reached_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bed = Bed::new(&[listener.local_addr().unwrap()]);
    let mut client = bed.sending(GET);
    let mut server = Client::of(listener.accept().unwrap().0);
    server.head();
    server.answer("ok");
    assert_eq!(client.response().status(), 200);
    client.send(GET);
    server.head();
    // The retry finds no endpoint.
    drop(listener);
    drop(server);
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    bed.expect("heddle_upstream_retries_total", &[], 2.0);
}

#[test]
fn a_short_body_is_sent_again_with_its_request() {
    // Almost the longest body that is retried.
    let long = "x".repeat(3_700);
    for (framing, body) in [
        ("Content-Length: 5", "hello"),
        ("Content-Length: 3700", &long),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let (upstream, bed, mut client, mut first) = answered_once();
        // A pipelined request follows directly: it must not be taken for a part of the body.
        let put = format!("PUT /{{}} HTTP/1.1\r\nHost: echo\r\n{framing}\r\n\r\n{body}");
        client.send(put.replace("{}", "one") + &put.replace("{}", "two"));
        assert!(first.head().starts_with("PUT /one "));
        assert_eq!(first.exact(body.len()), body.as_bytes());
        drop(first);
        let mut second = upstream.accept();
        for path in ["one", "two"] {
            let head = second.head();
            assert!(head.starts_with(&format!("PUT /{path} ")), "{head}");
            assert_eq!(second.exact(body.len()), body.as_bytes());
            second.answer("again");
            assert_eq!(client.response().body, b"again");
        }
        bed.expect("heddle_upstream_retries_total", &[], 1.0);
    }
}

#[test]
fn a_long_body_is_sent_once() {
    // The shorter body also exceeds 4 KiB together with its head.
    for length in [4_090, 5_000] {
        let (upstream, _bed, mut client, mut first) = answered_once();
        let body = "x".repeat(length);
        client.send(format!(
            "PUT / HTTP/1.1\r\nHost: echo\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        first.head();
        assert_eq!(first.exact(length), body.as_bytes());
        drop(first);
        assert_eq!(client.response().verdict(), (502, "upstream_reset"));
        assert!(upstream.is_quiet());
    }
}

#[test]
fn a_post_on_a_stale_connection_is_not_sent_again() {
    let (upstream, _bed, mut client, mut first) = answered_once();
    client.send(post(0));
    first.head();
    drop(first);
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    assert!(upstream.is_quiet());
}

#[test]
fn a_pooled_connection_that_was_closed_is_not_used() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let first =
        upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.response();
    drop(first);
    client.send(post(0));
    let _second = upstream.answering("");
    assert_eq!(client.response().status(), 200);
}

#[test]
fn an_endpoint_that_talks_out_of_turn_is_not_believed() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let mut first = upstream.asked();
    // A second, unsolicited response must not become the response of the next request.
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
    assert_eq!(client.response().body, b"a");
    client.send(GET);
    let _second = upstream.answering("c");
    assert_eq!(client.response().body, b"c");
}

#[test]
fn what_is_wrong_with_an_answer_is_said_of_the_answer() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let _server = upstream.accept().sending("220 mail.example ESMTP\r\n");
    let response = client.response();
    assert_eq!(response.status(), 502);
    let said = response.text();
    assert!(
        said.starts_with("heddle: the endpoint's answer: the "),
        "{said}"
    );
}

#[test]
fn what_is_no_request_was_meant_for_the_listeners_service() {
    let (bed, log) = Bed::logged(Settings::default(), &mesh(&[], None));
    let no_body = "POST / HTTP/1.1\r\nHost: echo\r\nConnection: upgrade\r\n\
                   Upgrade: websocket\r\nContent-Length: 2\r\n\r\nhi";
    for (sent, reason) in [
        (
            "\x16\x03\x01\x00\u{5}\x01\x00\x00\x01\x03\r\n\r\n",
            "tls_on_plaintext",
        ),
        ("nonsense\r\n\r\n", "malformed_request_line"),
        (no_body, "upgrade_not_supported"),
    ] {
        assert_eq!(bed.ask(sent).verdict().1, reason);
        let named = format!(r#""reason":"{reason}""#);
        log.expect(&[&named, r#""destination_service":"test/echo""#]);
    }
    let labels = ["test/echo", "status=\"4"];
    bed.expect("heddle_http_requests_total", &labels, 2.0);

    // Even after the Service was removed.
    let mut client = bed.client();
    bed.apply(&Mesh {
        generation: 2,
        ..Mesh::default()
    });
    assert_eq!(client.ask(GET).verdict(), (503, "service_gone"));
    log.expect(&[r#""destination_service":"test/echo""#]);
    // A pool would keep a connection that never leads anywhere again.
    assert!(client.rest().is_empty());
}

#[test]
fn malformed_answers_are_a_502() {
    for bad in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.sending(GET);
        let _server = upstream.replying(bad);
        assert_eq!(client.response().status(), 502, "{bad:?}");
    }
}

#[test]
fn a_body_that_is_malformed_from_the_start_is_a_502() {
    for version in ["1.1", "1.0"] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.sending(format!("GET / HTTP/{version}\r\nHost: echo\r\n\r\n"));
        let _server =
            upstream.replying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX");
        assert_eq!(client.response().verdict(), (502, "chunk_data_end"));
        bed.expect("heddle_http_requests_total", &["status=\"5"], 1.0);
    }
}

/// What a client sees of a response that only the end of the connection delimits: `answer`, then `ending`.
fn cut(request: &str, answer: &str, ending: impl FnOnce(Client)) -> (Vec<u8>, bool) {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(request);
    let server = upstream.replying(answer);
    assert_eq!(field(&client.head(), "connection"), Some("close"));
    let mut seen = client.exact(4);
    ending(server);
    let end = client.stream.read_to_end(&mut seen);
    let reset = end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    (seen, reset)
}

#[test]
fn an_answer_that_only_the_end_frames_is_reset_when_it_is_cut() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhalf";
    assert_eq!(
        cut(GET, until_close, Client::reset),
        (b"half".to_vec(), true)
    );
    assert_eq!(cut(GET, until_close, drop), (b"half".to_vec(), false));

    let old = "GET / HTTP/1.0\r\nHost: echo\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let malformed = |mut server: Client| server.send("x");
    let whole = |mut server: Client| server.send("0\r\n\r\n");
    assert_eq!(cut(old, chunked, drop), (b"half".to_vec(), true));
    assert_eq!(cut(old, chunked, malformed), (b"half".to_vec(), true));
    assert_eq!(cut(old, chunked, whole), (b"half".to_vec(), false));
}

#[test]
fn a_flood_of_interim_answers_is_a_502() {
    let flood = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (count, status) in [(100, 200), (101, 502)] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.sending(GET);
        let _server = upstream.replying(flood.repeat(count) + whole);
        for _ in 0..100 {
            assert_eq!(client.head(), flood);
        }
        assert_eq!(client.response().status(), status);
    }
}

#[test]
fn a_body_that_may_not_be_there_does_not_become_the_next_answer() {
    for odd in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.sending(GET);
        let mut first = upstream.replying(odd);
        while !client.head().starts_with("HTTP/1.1 204 ") {}
        assert_eq!(first.rest(), b"", "the connection is not kept: {odd:?}");
    }
}

#[test]
fn requests_that_wait_for_nothing_are_answered_however_many_come_at_once() {
    const MANY: usize = 5_000;
    let bed = Bed::new(&[]);
    let mut client = bed.client();
    let mut sender = client.stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || sender.write_all(GET.repeat(MANY).as_bytes()));
    for _ in 0..MANY {
        assert_eq!(client.response().verdict(), (503, "no_endpoint"));
    }
    sent.join().unwrap().unwrap();
}

#[test]
fn an_answer_that_breaks_off_ends_the_connection() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    client.head();
    drop(server);
    assert_eq!(client.rest(), b"half");
    bed.expect_rejected("upstream_truncated", 1.0);
}

#[test]
fn a_malformed_request_is_refused_with_its_reason_and_closed() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(
        "GET / HTTP/1.1\r\nHost: echo\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(
        client.response().verdict(),
        (400, "content_length_with_transfer_encoding")
    );
    assert_eq!(client.rest(), b"");
    assert!(upstream.is_quiet());
}

#[test]
fn what_is_not_built_is_refused_with_a_reason() {
    let upstream = Upstream::new();
    let bed = Bed::new(&[upstream.address]);
    // What a client sends for its tunnel is no request.
    let connect = "CONNECT echo:80 HTTP/1.1\r\nHost: echo:80\r\n\r\n";
    let mut client = bed.sending(connect.to_owned() + "GET /tunnel HTTP/1.1\r\nHost: echo\r\n\r\n");
    assert_eq!(client.response().verdict(), (501, "connect_not_supported"));
    assert_eq!(client.rest(), b"");
    assert!(upstream.is_quiet());
}

#[test]
fn http2_is_carried_as_bytes_and_refused_with_a_reason_where_there_are_rules() {
    let upstream = serve(|_| "bytes".into());
    for (rules, status) in [(None, 200), (Some(Vec::new()), 501)] {
        let mut mesh = mesh(&[upstream], rules);
        mesh.services[0].ports[0].protocol = AppProtocol::Grpc;
        let bed = Bed::of(&mesh);
        let response = bed.ask(GET);
        assert_eq!(response.status(), status);
        // A forwarded byte stream gets no header of the proxy.
        let reason = (status == 501).then_some("protocol_not_supported");
        assert_eq!(response.field("heddle-reason"), reason);
    }
}

/// An HTTP/2 client is recognized by the first line of its preface.
#[test]
fn an_http2_client_reaches_the_endpoint_as_bytes_and_is_refused_where_there_are_rules() {
    let upstream = Upstream::new();
    let mut mesh = speaking(AppProtocol::Grpc, &[upstream.address]);
    let bed = Bed::of(&mesh);
    let mut client = bed.sending(PREFACE);
    let mut server = upstream.accept();
    assert_eq!(server.exact(PREFACE.len()), PREFACE.as_bytes());
    server.send("\0\0\0\x04\0\0\0\0\0");
    assert_eq!(client.exact(9), b"\0\0\0\x04\0\0\0\0\0");

    mesh.services[0].ports[0].routes = Some(Vec::new());
    let bed = Bed::of(&mesh);
    let mut client = bed.sending(PREFACE);
    assert_eq!(client.response().verdict(), (505, "http2_preface"));
    assert_eq!(client.rest(), b"");
    assert!(upstream.is_quiet());
}
