//! Connections that begin as HTTP and switch to another protocol (RFC 9110 section 7.8).

use heddle_proxy::Settings;

use crate::support::{Bed, GET, field};

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: echo\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn a_websocket_is_passed_through() {
    let (upstream, bed, log) = Bed::scripted_logged(Settings::default());
    let mut client = bed.client();
    // A frame sent before the response is not lost.
    client.send(format!("{HANDSHAKE}early"));
    let mut server = upstream.accept();
    let head = server.head().to_ascii_lowercase();
    assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    assert!(head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("x-forwarded-for"), "{head}");

    server.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nfirst",
    );
    let head = client.head().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    assert!(head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept"), "{head}");
    assert_eq!(client.exact(5), b"first");
    assert_eq!(server.exact(5), b"early");
    client.send(b"\x81\x02hi");
    assert_eq!(server.exact(4), b"\x81\x02hi");

    bed.expect("heddle_http_requests_total", &["status=\"1"], 1.0);
    bed.expect("heddle_tcp_connections_active", &[], 1.0);
    drop(client);
    assert_eq!(server.rest(), b"");
    drop(server);
    bed.expect("heddle_tcp_connections_active", &[], 0.0);
    bed.expect("heddle_requests_active", &[], 0.0);

    let endpoint = format!(r#""upstream":"{}""#, upstream.address);
    for status in [101, 0] {
        let line = log.line();
        let status = format!(r#""path":"/chat","status":{status},"reason":"ok""#);
        assert!(line.contains(&status), "{line}");
        assert!(line.contains(&endpoint), "{line}");
    }
}

#[test]
fn an_endpoint_that_agrees_to_something_else_is_not_believed() {
    const SAID: &str = "HTTP/1.1 101 Switching Protocols\r\n";
    for (fields, reason) in [
        ("", "upstream_malformed"),
        ("Upgrade: websocket\r\n", "upstream_malformed"),
        ("Connection: upgrade\r\n", "upstream_malformed"),
        (
            "Connection: upgrade\r\nUpgrade: spdy/3.1\r\n",
            "upstream_switched_protocols",
        ),
        (
            "Connection: upgrade\r\nUpgrade: websocket, spdy/3.1\r\n",
            "upstream_switched_protocols",
        ),
        ("Connection: UPGRADE\r\nUpgrade: WebSocket\r\n", ""),
    ] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.sending(HANDSHAKE);
        let mut server = upstream.replying(format!("{SAID}{fields}\r\n"));
        let response = client.response();
        assert_eq!(
            response.field("heddle-reason").unwrap_or_default(),
            reason,
            "{fields:?}"
        );
        assert_eq!(response.status() == 101, reason.is_empty(), "{fields:?}");
        if !reason.is_empty() {
            assert_eq!(server.rest(), b"");
        }
    }
}

#[test]
fn a_server_that_does_not_upgrade_answers_as_usual() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(HANDSHAKE);
    let mut server = upstream.replying("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    assert_eq!(client.response().status(), 403);
    client.send(GET);
    server.head();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(client.response().status(), 204);
}

#[test]
fn an_upgrade_with_a_body_is_refused() {
    let (_upstream, bed) = Bed::scripted();
    let response = bed.ask(
        "POST / HTTP/1.1\r\nHost: echo\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Content-Length: 2\r\n\r\nhi",
    );
    assert_eq!(response.verdict(), (501, "upgrade_not_supported"));
}

#[test]
fn offers_that_may_be_ignored_are() {
    let (upstream, bed) = Bed::scripted();
    for request in [
        "GET / HTTP/1.1\r\nHost: echo\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: echo\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let mut client = bed.sending(request);
        let mut server = upstream.accept();
        let head = server.head().to_ascii_lowercase();
        assert!(!head.contains("upgrade"), "{head}");
        server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.response().status(), 200);
    }
}

/// HTTP in another form would reach the endpoint without being checked by any rule.
#[test]
fn only_what_carries_no_requests_is_offered_on() {
    let (upstream, bed) = Bed::scripted();
    for (upgrade, offered) in [
        ("Upgrade: websocket, h2c", Some("websocket")),
        ("Upgrade: h2c,", None),
        ("Upgrade: h2c, H2C", None),
        (
            "Upgrade: foo/2\r\nUpgrade: h2c\r\nUpgrade: bar",
            Some("foo/2, bar"),
        ),
        ("Upgrade: TLS/1.0, HTTP/2.0", None),
        ("Upgrade: web socket, , a/b/c", None),
    ] {
        let mut client = bed.sending(format!(
            "GET / HTTP/1.1\r\nHost: echo\r\nConnection: upgrade\r\n{upgrade}\r\n\r\n"
        ));
        let mut server = upstream.accept();
        let head = server.head();
        assert_eq!(field(&head, "upgrade"), offered, "{upgrade}");
        let fields = head.to_ascii_lowercase().matches("upgrade").count();
        assert_eq!(fields, if offered.is_some() { 2 } else { 0 }, "{head}");
        server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn an_endpoint_switches_to_what_it_was_offered_or_not_at_all() {
    let (upstream, bed) = Bed::scripted();
    let switched = "upstream_switched_protocols";
    let malformed = "upstream_malformed";
    for (fields, reason) in [
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", switched),
        (
            "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n",
            switched,
        ),
        (
            "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: x\r\n",
            switched,
        ),
        ("Connection: upgrade\r\n", malformed),
        ("Connection: upgrade\r\nUpgrade: ,\r\n", malformed),
        ("Upgrade: websocket\r\n", malformed),
        ("", malformed),
    ] {
        let mut client = bed.sending(HANDSHAKE);
        let _server =
            upstream.replying(format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n"));
        assert_eq!(client.response().verdict(), (502, reason), "{fields}");
    }
    bed.expect("heddle_tcp_connections_total", &[], 0.0);
    // Protocol names are case-insensitive.
    let mut client = bed.sending(HANDSHAKE);
    let _server = upstream.replying(
        "HTTP/1.1 101 X\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n\r\n",
    );
    assert!(client.head().starts_with("HTTP/1.1 101"));
    bed.expect("heddle_tcp_connections_active", &[], 1.0);
}

#[test]
fn an_upgrade_may_say_that_it_has_no_body() {
    let (upstream, bed) = Bed::scripted();
    let mut client =
        bed.sending(HANDSHAKE.replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\nearly"));
    let mut server = upstream.accept();
    assert_eq!(field(&server.head(), "upgrade"), Some("websocket"));
    server.send("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst");
    assert!(client.head().starts_with("HTTP/1.1 101"));
    assert_eq!(client.exact(5), b"first");
    assert_eq!(server.exact(5), b"early");
}

#[test]
fn a_server_that_wants_an_upgrade_says_which() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let _server = upstream.replying(
        "HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: foo/2, bar\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let response = client.response();
    assert_eq!(response.status(), 426);
    assert_eq!(response.field("upgrade"), Some("foo/2, bar"));
    assert_eq!(response.field("connection"), Some("upgrade"));
}
