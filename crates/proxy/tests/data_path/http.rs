//! One client, one proxy, one endpoint: forwarding of requests and responses.

use std::time::{Duration, Instant};

use heddle_proxy::Settings;

use crate::support::{Bed, GET, field, get, mesh, mirror, post, serve};

#[test]
fn a_request_passes_and_comes_back() {
    let bed = Bed::mirrored();
    let response = bed.ask("GET /hello?x=1 HTTP/1.1\r\nHost: Echo:80\r\nX-Mine: kept\r\n\r\n");
    assert_eq!(response.status(), 200);
    let seen = response.text();
    assert!(seen.starts_with("GET /hello?x=1 HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "host"), Some("echo"));
    assert_eq!(field(&seen, "x-mine"), Some("kept"));
    assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(field(&seen, "x-forwarded-proto"), Some("http"));
}

#[test]
fn a_connection_carries_many_requests_and_so_does_its_upstream() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    let mut server = None;
    for i in 0..5 {
        client.send(get(&format!("/{i}")));
        let server = server.get_or_insert_with(|| upstream.accept());
        assert!(server.head().starts_with(&format!("GET /{i} ")));
        server.answer("ok");
        assert_eq!(client.response().body, b"ok");
    }
    assert!(upstream.is_quiet());
    bed.expect(
        "heddle_http_requests_total",
        &["status=\"2", "test/echo"],
        5.0,
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let bed = Bed::new(&[serve(|head| head.lines().next().unwrap_or("").to_owned())]);
    let mut client = bed.client();
    let requests: String = (0..20).map(|i| get(&format!("/{i}"))).collect();
    client.send(requests);
    for i in 0..20 {
        assert_eq!(
            client.response().body,
            format!("GET /{i} HTTP/1.1").into_bytes()
        );
    }
}

#[test]
fn bodies_pass_in_both_directions() {
    let (upstream, bed) = Bed::scripted();
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut client = bed.client();
    let sent = body.clone();
    let length = body.len();
    let sender = std::thread::spawn(move || {
        client.send(post(length));
        client.ask(sent)
    });
    let mut server = upstream.asked();
    let received = server.exact(length);
    assert!(
        received == body,
        "the request's body arrived as it was sent"
    );
    server.send(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
    ));
    server.send(&body);
    let response = sender.join().unwrap();
    assert!(
        response.body == body,
        "the response's body arrived as it was sent"
    );
}

#[test]
fn chunks_and_trailers_pass_as_they_are() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    let body = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n";
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: echo\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
    ));
    let mut server = upstream.accept();
    let head = server.head();
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    assert_eq!(server.exact(body.len()), body.as_bytes());
    server.send(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
    ));
    client.head();
    assert_eq!(client.exact(body.len()), body.as_bytes());
    // Both connections are still usable.
    client.send("GET /next HTTP/1.1\r\nHost: echo\r\n\r\n");
    assert!(server.head().starts_with("GET /next "));
}

#[test]
fn an_http_10_client_gets_plain_bytes_and_a_close() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending("GET / HTTP/1.0\r\n\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n wo");
    let head = client.head();
    assert_eq!(field(&head, "transfer-encoding"), None);
    assert_eq!(field(&head, "connection"), Some("close"));
    server.send("rld\r\n0\r\n\r\n");
    assert_eq!(client.rest(), b"hello world");
}

#[test]
fn head_and_bodiless_answers_leave_the_connection_in_step() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending("HEAD / HTTP/1.1\r\nHost: echo\r\n\r\n");
    let mut server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(field(&client.head(), "content-length"), Some("1000"));
    client.send(GET);
    // The endpoint may still send that body; so its connection carries no other request.
    assert_eq!(server.rest(), b"");
    let mut server = upstream.answering("ok");
    assert_eq!(client.response().body, b"ok");
    for status in ["204 No Content", "304 Not Modified"] {
        client.send(GET);
        server.head();
        server.send(format!("HTTP/1.1 {status}\r\n\r\n"));
        assert!(client.head().contains(status));
    }
}

#[test]
fn a_body_that_waits_for_100_is_asked_for_and_sent() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    client
        .send("PUT / HTTP/1.1\r\nHost: echo\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    let mut server = upstream.accept();
    assert_eq!(field(&server.head(), "expect"), Some("100-continue"));
    server.send("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    client.send("body");
    assert_eq!(server.exact(4), b"body");
    server.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status(), 201);
}

#[test]
fn a_body_that_ends_with_the_connection_passes() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let mut server = upstream.replying("HTTP/1.1 200 OK\r\n\r\nall of ");
    let head = client.head();
    assert_eq!(field(&head, "connection"), Some("close"));
    server.send("it");
    drop(server);
    assert_eq!(client.rest(), b"all of it");
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(post(1_000_000) + "begin");
    let _server = upstream.replying(
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig",
    );
    let response = client.response();
    assert_eq!(
        (response.status(), response.body.as_slice()),
        (413, &b"big"[..])
    );
    assert_eq!(response.field("connection"), Some("close"));
}

#[test]
fn fields_of_one_connection_stay_on_it() {
    let bed = Bed::mirrored();
    let request = "GET / HTTP/1.1\r\nHost: echo\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
         Proxy-Authorization: Basic eA==\r\nTE: gzip\r\nUpgrade: h2c\r\n\r\n";
    let seen = bed.ask(request).text();
    for name in [
        "connection",
        "x-hop",
        "keep-alive",
        "proxy-authorization",
        "te",
        "upgrade",
    ] {
        assert_eq!(field(&seen, name), None, "{name} in {seen}");
    }
}

#[test]
fn a_clients_own_forwarding_fields_are_stripped_and_counted() {
    let bed = Bed::mirrored();
    let mut client = bed.sending(
        "GET / HTTP/1.1\r\nHost: echo\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
         X-Real-IP: 1.2.3.4\r\nX-Forwarded-Client-Cert: x\r\nx_forwarded_for: 1.2.3.4\r\n\
         X.Forwarded.For: 1.2.3.4\r\nX~Real_IP: 1.2.3.4\r\n\r\n",
    );
    let seen = client.response().text();
    assert!(!seen.contains("1.2.3.4"), "{seen}");
    assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    bed.expect("heddle_forwarding_headers_stripped_total", &[], 7.0);
}

#[test]
fn a_trusted_sources_forwarding_fields_are_kept_and_its_own_address_is_added() {
    for (trusted, is_trusted) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let settings = Settings {
            trusted_sources: vec![trusted.parse().unwrap()],
            ..Settings::default()
        };
        let bed = Bed::with(settings, &mesh(&[mirror()], None));
        let mut client = bed.sending(
            "GET / HTTP/1.1\r\nHost: echo\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: h\r\nForwarded: for=x\r\n\r\n",
        );
        let seen = client.response().text();
        let (came_by, proto, host, forwarded, stripped) = match is_trusted {
            true => (
                "1.2.3.4, 5.6.7.8, 127.0.0.1",
                "https",
                "h",
                Some("for=x"),
                0.0,
            ),
            false => ("127.0.0.1", "http", "echo", None, 5.0),
        };
        assert_eq!(field(&seen, "x-forwarded-for"), Some(came_by), "{seen}");
        assert_eq!(field(&seen, "x-forwarded-proto"), Some(proto), "{seen}");
        assert_eq!(field(&seen, "x-forwarded-host"), Some(host), "{seen}");
        assert_eq!(field(&seen, "forwarded"), forwarded, "{seen}");
        for name in [
            "x-forwarded-for:",
            "x-forwarded-proto:",
            "x-forwarded-host:",
        ] {
            let lines = seen.to_ascii_lowercase().matches(name).count();
            assert_eq!(lines, 1, "{name} {seen}");
        }
        bed.expect("heddle_forwarding_headers_stripped_total", &[], stripped);
    }
}

#[test]
fn a_line_of_the_log_is_there_within_about_a_second_though_nothing_else_happens() {
    let upstream = serve(|_| "ok".into());
    let (bed, log) = Bed::logged(Settings::default(), &mesh(&[upstream], None));
    let mut client = bed.client();
    assert_eq!(client.ask(GET).status(), 200);
    let answered = Instant::now();
    log.expect(&["\"status\":200"]);
    let waited = answered.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
}
