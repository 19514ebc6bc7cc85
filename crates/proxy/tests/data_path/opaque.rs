//! Connections whose bytes are forwarded unchanged, and the detection of such connections.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use crate::support::{
    Bed, GET, Log, PATIENCE, PREFACE, Upstream, bounded, count, forward, plain, quick, refusing,
    speaking,
};
use crate::waits::flood;

/// A proxy for an endpoint of this protocol that the test scripts.
fn scripted(protocol: AppProtocol) -> (Upstream, Bed) {
    let upstream = Upstream::new();
    let bed = Bed::of(&speaking(protocol, &[upstream.address]));
    (upstream, bed)
}

/// As [`scripted`], with settings and an access log.
fn logged(settings: Settings, protocol: AppProtocol) -> (Upstream, Bed, Log) {
    let upstream = Upstream::new();
    let (bed, log) = Bed::logged(settings, &speaking(protocol, &[upstream.address]));
    (upstream, bed, log)
}

#[test]
fn bytes_pass_both_ways_and_each_direction_ends_by_itself() {
    let (upstream, bed) = scripted(AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());

    client.send(b"\x00\xffhello");
    assert_eq!(server.exact(7), b"\x00\xffhello");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), b"");
    // The client has closed its direction; the server has not.
    server.send(b"and more");
    assert_eq!(client.exact(8), b"and more");
    drop(server);
    assert_eq!(client.rest(), b"");

    let labels = [
        "source=\"unidentified\"",
        "destination_service=\"test/echo\"",
    ];
    bed.expect("heddle_tcp_connections_total", &labels, 1.0);
    bed.expect("heddle_tcp_connections_active", &labels, 0.0);
    bed.expect("heddle_tcp_received_bytes_total", &labels, 7.0);
    bed.expect("heddle_tcp_sent_bytes_total", &labels, 8.0);
    bed.expect("heddle_connections_active", &[], 0.0);
    bed.expect("heddle_upstream_connections_active", &[], 0.0);
}

#[test]
fn what_was_said_at_the_end_arrives_after_the_flow_is_over() {
    let (upstream, bed) = scripted(AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.rest(), b"");
    // More than the proxy can write to a client that does not read: the rest stays in the kernel when the proxy
    // closes.
    let said = vec![7; 300_000];
    server.send(&said);
    drop(server);
    bed.expect("heddle_connections_active", &[], 0.0);
    assert_eq!(client.rest().len(), said.len());
}

#[test]
fn a_slow_reader_stops_the_sender_and_gets_every_byte() {
    const SIZE: usize = 32 << 20;
    let (upstream, bed) = scripted(AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    let sender = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        server.send(bytes);
    });
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    while at < SIZE {
        let n = client.stream.read(&mut buffer).unwrap();
        assert!(n > 0, "ended after {at}");
        for (offset, byte) in buffer[..n].iter().enumerate() {
            assert_eq!(usize::from(*byte), (at + offset) % 251);
        }
        at += n;
        assert!(bed.metric("heddle_buffer_blocks_active", &[]) < 64.0);
    }
    sender.join().unwrap();
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    let (upstream, bed) = scripted(AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    server.send(b"half a mess");
    assert_eq!(client.exact(11), b"half a mess");
    // Closing with unread bytes makes the kernel send a reset.
    client.send(b"unread");
    assert_eq!(server.stream.peek(&mut [0; 1]).unwrap(), 1);
    drop(server);
    client.expect_reset();
    bed.expect_rejected("upstream_reset", 1.0);
}

#[test]
fn a_reset_before_it_is_known_what_a_client_speaks_is_passed_on() {
    for first in ["", "GE", "PUT /important/file HTT"] {
        let (upstream, bed, log) = logged(Settings::default(), AppProtocol::Undeclared);
        let mut client = bed.client();
        let server = upstream.accept();
        client.send(first);
        client.reset();
        server.expect_reset();
        let line = failed(&bed, &log, "client_reset");
        assert!(line.contains(r#""blame":"downstream""#), "{line}");
        bed.expect("heddle_connections_active", &[], 0.0);
        bed.expect("heddle_upstream_connections_active", &[], 0.0);
    }
}

/// The proxy does not read from the side that resets, since the other side accepts no bytes.
#[test]
fn a_reset_is_noticed_while_the_other_side_does_not_read() {
    for (reason, from_client) in [("client_reset", true), ("upstream_reset", false)] {
        let (upstream, bed, log) = logged(Settings::default(), AppProtocol::Tcp);
        let (client, server) = (bed.client(), upstream.accept());
        let (mut sender, other) = match from_client {
            true => (client, server),
            false => (server, client),
        };
        flood(&mut sender.stream);
        sender.reset();
        failed(&bed, &log, reason);
        bed.expect("heddle_tcp_connections_active", &[], 0.0);
        bed.expect("heddle_connections_active", &[], 0.0);
        drop(other);
    }
}

#[test]
fn a_reset_is_noticed_after_the_end_of_a_stream() {
    for (reason, from_client) in [("client_reset", true), ("upstream_reset", false)] {
        let (upstream, bed, log) = logged(Settings::default(), AppProtocol::Tcp);
        let (client, server) = (bed.client(), upstream.accept());
        let (sender, mut other) = match from_client {
            true => (client, server),
            false => (server, client),
        };
        sender.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(other.rest(), b"");
        sender.reset();
        failed(&bed, &log, reason);
        // Its stream has already ended, so a read would not show the reset.
        let patience = Instant::now() + PATIENCE;
        while other.stream.take_error().unwrap().is_none() {
            assert!(Instant::now() < patience, "{reason}: no reset");
            std::thread::yield_now();
        }
    }
}

/// Waits until one connection to the Service has failed for this reason; returns its log line.
fn failed(bed: &Bed, log: &Log, reason: &str) -> String {
    bed.expect_rejected(reason, 1.0);
    let service = "destination_service=\"test/echo\"";
    let labels = ["source=\"unidentified\"", service, reason];
    bed.expect("heddle_tcp_connections_failed_total", &labels, 1.0);
    let named = format!(r#""reason":"{reason}""#);
    log.expect(&[&named, r#""destination_service":"test/echo""#])
}

#[test]
fn a_connection_on_which_neither_side_speaks_ends() {
    for protocol in [AppProtocol::Tcp, AppProtocol::Undeclared] {
        let settings = quick(|timeouts| timeouts.tcp_idle = Duration::from_millis(200));
        let (upstream, bed, log) = logged(settings, protocol);
        let (client, server) = (bed.client(), upstream.accept());
        client.expect_reset();
        server.expect_reset();
        let line = failed(&bed, &log, "tcp_idle_timeout");
        assert!(line.contains(r#""attempts":1"#), "{line}");
    }
}

#[test]
fn an_endpoint_that_refuses_resets_the_connection_and_is_named() {
    let address = refusing();
    for protocol in [AppProtocol::Tls, AppProtocol::Undeclared] {
        let (bed, log) = Bed::logged(Settings::default(), &speaking(protocol, &[address]));
        let mut client = bed.client();
        if protocol == AppProtocol::Undeclared {
            // It may still turn out to be HTTP, so the proxy waits a moment.
            client.send(b"\x16");
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        client.expect_reset();
        let line = failed(&bed, &log, "upstream_connect_failed");
        let named = format!(r#""upstream":"{address}","#);
        assert!(line.contains(&named), "{line}");
        assert!(
            line.contains(r#""request_bytes":0,"response_bytes":0,"#),
            "{line}"
        );
        assert!(line.contains(r#""attempts":3"#), "{line}");
        assert!(line.contains(r#""blame":"upstream""#), "{line}");
    }
}

#[test]
fn a_connection_that_stays_open_has_a_line_before_it_is_over() {
    let (upstream, bed, log) = logged(Settings::default(), AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    client.send("hello");
    assert_eq!(server.exact(5), b"hello");
    // Nothing is sent meanwhile.
    let line = log.line();
    let open = [
        r#""reason":"open","blame":"""#,
        r#""request_bytes":5,"response_bytes":0"#,
        r#""protocol":"tcp""#,
        r#""node":"here""#,
    ];
    assert!(open.iter().all(|part| line.contains(part)), "{line}");
    drop(server);
    drop(client);
    log.expect(&[r#""reason":"ok""#, r#""request_bytes":5"#]);
}

#[test]
fn what_has_no_endpoint_says_so() {
    let (bed, log) = Bed::logged(Settings::default(), &speaking(AppProtocol::Tcp, &[]));
    bed.client().expect_reset();
    let line = failed(&bed, &log, "no_endpoint");
    assert!(line.contains(r#""upstream":null"#), "{line}");
    assert!(line.contains(r#""attempts":0"#), "{line}");
}

/// SMTP, MySQL and SSH servers speak first: the client waits for their greeting.
#[test]
fn a_server_that_speaks_first_does_not_wait() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    server.send("220 mail.example ESMTP\r\n");
    assert_eq!(client.exact(24), b"220 mail.example ESMTP\r\n");
    // Bytes that look like HTTP are payload now.
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(server.exact(18), b"GET / HTTP/1.1\r\n\r\n");
    bed.expect("heddle_tcp_connections_active", &[], 1.0);
}

#[test]
fn a_client_that_speaks_another_protocol_is_passed_on() {
    for first in [
        &b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"[..],
        PREFACE.as_bytes(),
        b"EHLO me\r\n",
        b"GET https://a/ HTTP/1.1\r\n",
        b"GET key\r\n",
    ] {
        let (upstream, bed) = scripted(AppProtocol::Undeclared);
        let mut client = bed.sending(first);
        let mut server = upstream.accept();
        assert_eq!(server.exact(first.len()), first);
        server.send("answer");
        assert_eq!(client.exact(6), b"answer");
    }
}

/// Half a request line could still become HTTP: the proxy waits one second for the rest, not the timeout of a request
/// head or the idle timeout.
#[test]
fn a_request_line_that_does_not_go_on_is_passed_on_after_a_second() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let half_a_line = || {
        let (mut client, mut server) = (bed.client(), upstream.accept());
        let began = Instant::now();
        client.send("GET / HTT");
        assert_eq!(server.exact(9), b"GET / HTT");
        (began.elapsed(), client, server)
    };
    // A busy machine may add to the wait, but never shortens it.
    let tries: Vec<_> = (0..3).map(|_| half_a_line()).collect();
    let waits = || tries.iter().map(|(wait, ..)| *wait);
    let (shortest, second) = (waits().min().unwrap(), Duration::from_secs(1));
    assert!(shortest >= second.mul_f64(0.9), "{shortest:?}");
    assert!(shortest < second * 2, "{shortest:?}");
    let (_, mut client, mut server) = tries.into_iter().next().unwrap();
    bed.expect("heddle_tcp_connections_active", &[], 1.0);
    // Later bytes belong to the stream, even if they look like HTTP.
    client.send("P/1.1\r\n\r\n");
    assert_eq!(server.exact(9), b"P/1.1\r\n\r\n");
    drop(server);
    assert_eq!(client.rest(), b"");
}

#[test]
fn http_on_an_undeclared_port_is_http_however_it_arrives() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    for byte in b"GET /a HTTP/1.1\r\nHost: echo\r\nConnection: x\r\nX: y\r\n\r\n" {
        client.stream.write_all(&[*byte]).unwrap();
    }
    let head = server.head();
    assert!(head.contains("X-Forwarded-For: 127.0.0.1"), "{head}");
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(client.response().status(), 204);
    // From here it is HTTP, over the upstream connection that was opened before that was known.
    client.send("GET /b HTTP/1.1\r\nHost: echo\r\n\r\n");
    server.head();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(client.response().status(), 204);
    assert!(upstream.is_quiet());
    bed.expect("heddle_http_requests_total", &["status=\"2"], 2.0);
    bed.expect("heddle_tcp_connections_total", &[], 0.0);
}

/// None of these bypasses HTTP rules: each gets an HTTP response.
#[test]
fn what_turns_out_to_be_http_is_closed_and_not_reset() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let mut client = bed.sending("GET / HTTP/1.1\r\nHost: echo.test\r\nConnection: close\r\n\r\n");
    let mut server = upstream.answering("ok");
    assert_eq!(client.response().body, b"ok");
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    bed.expect("heddle_upstream_connections_idle", &[], 1.0);
    drop(bed);
    assert_eq!(server.stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn unusual_requests_are_http_too() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let long = format!("GET /{} HTTP/1.1\r\nHost: echo\r\n\r\n", "a".repeat(5000));
    for (request, status) in [
        ("PROPFIND / HTTP/1.1\r\nHost: echo\r\n\r\n", 204),
        ("get / HTTP/1.1\r\nHost: echo\r\n\r\n", 204),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: echo\r\n\r\n", 204),
        (long.as_str(), 204),
        ("\nGET / HTTP/1.1\r\nHost: echo\r\n\r\n", 400),
    ] {
        let (mut client, mut server) = (bed.client(), upstream.accept());
        client.send(request);
        if status == 204 {
            assert!(server.head().contains("X-Forwarded-For"), "{request:?}");
            server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
        assert_eq!(client.response().status(), status, "{request:?}");
    }
    bed.expect("heddle_tcp_connections_total", &[], 0.0);
}

/// Bytes that could be the beginning of a request, from clients that wait for a response to them.
#[test]
fn what_stays_unclear_is_passed_on() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    for first in ["ruok", "P", "\r\n"] {
        let (mut client, mut server) = (bed.client(), upstream.accept());
        client.send(first);
        assert_eq!(server.exact(first.len()), first.as_bytes());
        server.send("imok");
        assert_eq!(client.exact(4), b"imok");
    }
}

/// A client that connects before rules exist and sends its request afterwards is subject to the rules.
#[test]
fn rules_hold_for_clients_that_connected_before_them() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    // The last client waits for a greeting of the server.
    let requests = [
        ("GET /private HTTP/1.1\r\nHost: echo\r\n\r\n", 404),
        ("\n\nGET /private HTTP/1.1\r\nHost: echo\r\n\r\n", 400),
        ("\x16\x03\x01 /private\r\n\r\n", 400),
        ("GET /private HTTP/1.1\r\nHost: echo\r\n\r\n", 404),
    ];
    let mut clients: Vec<_> = requests
        .map(|(request, status)| (bed.client(), upstream.accept(), request, status))
        .into();
    // The only rule is for `/public`, without backends.
    let public = plain("/public", forward(Vec::new()));
    let mut after = speaking(AppProtocol::Undeclared, &[upstream.address]);
    after.generation = 2;
    after.services[0].ports[0].routes = Some(vec![public]);
    bed.apply(&after);
    clients[3].1.send("220 mail.example ESMTP\r\n");
    for (client, server, request, status) in &mut clients {
        assert_eq!(client.ask(*request).status(), *status, "{request:?}");
        server.stream.set_nonblocking(true).unwrap();
        let nothing = server.stream.peek(&mut [0; 1]).map_or(0, |n| n);
        assert_eq!(nothing, 0, "{request:?} reached the endpoint");
    }
    bed.expect("heddle_tcp_connections_total", &[], 0.0);
}

#[test]
fn what_is_declared_by_the_time_the_client_speaks_counts() {
    let (upstream, bed) = scripted(AppProtocol::Undeclared);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    let mut after = speaking(AppProtocol::Tcp, &[upstream.address]);
    after.generation = 2;
    bed.apply(&after);
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(server.exact(18), b"GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn who_asks_in_http_is_told_that_no_endpoint_answers() {
    let bed = Bed::of(&speaking(AppProtocol::Undeclared, &[refusing()]));
    assert_eq!(bed.ask(GET).verdict(), (503, "upstream_connect_failed"));
    // A client of another protocol, or one that waits for a greeting, only sees the connection closed.
    for words in [&b"\x00\x01\x02"[..], b""] {
        assert_eq!(bed.sending(words).rest(), b"");
    }
}

#[test]
fn who_finds_no_block_left_is_told_so_in_its_own_protocol() {
    let settings = bounded(|bounds| bounds.blocks = 16);
    let (_upstream, bed, log) = logged(settings, AppProtocol::Undeclared);
    let unfinished: Vec<_> = (0..16)
        .map(|_| bed.sending("GET / HTTP/1.1\r\nHost: echo\r\nA: "))
        .collect();
    bed.expect("heddle_buffer_blocks_active", &[], 16.0);
    bed.sending(b"\x16\x03\x01").expect_reset();
    failed(&bed, &log, "buffers_exhausted");
    let mut client = bed.sending(GET);
    assert_eq!(client.response().verdict(), (503, "buffers_exhausted"));
    // Unread bytes must not turn the close into a reset, which could destroy the response.
    assert!(matches!(client.stream.read(&mut [0; 1]), Ok(0)));
    drop(unfinished);
}

#[tokio::test]
async fn a_drain_that_cuts_an_opaque_connection_says_so() {
    let (upstream, bed, log) = logged(Settings::default(), AppProtocol::Tcp);
    let (mut client, mut server) = (bed.client(), upstream.accept());
    client.send("busy");
    assert_eq!(server.exact(4), b"busy");
    let registry = bed.registry.clone();
    let drained = bed.proxy.drain(Duration::from_millis(50)).await;
    assert_eq!(drained.cut, 1);
    log.expect(&[r#""reason":"draining","blame":"heddle""#]);
    let rejected = "heddle_tcp_connections_failed_total";
    assert_eq!(count(&registry, rejected, &["draining"]), 1.0);
    assert_eq!(count(&registry, rejected, &["tcp_idle_timeout"]), 0.0);
}
