//! Endpoints that send unsolicited bytes, or headers that only a proxy may set.

use crate::support::{Bed, Client, GET, Upstream, post};

#[test]
fn an_endpoint_of_the_same_node_cannot_speak_for_the_node() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let _server = upstream.replying(
        "HTTP/1.1 103 Early Hints\r\nHeddle-Reason: draining\r\nLink: x\r\n\r\n\
         HTTP/1.1 503 Service Unavailable\r\nHeddle-Reason: draining\r\nheddle_reason: draining\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let hints = client.head();
    assert!(
        hints.starts_with("HTTP/1.1 103 ") && hints.contains("Link: x"),
        "{hints}"
    );
    assert!(!hints.contains("draining"), "{hints}");
    let response = client.response();
    assert_eq!(response.status(), 503);
    assert!(!response.head.contains("draining"), "{}", response.head);
}

/// A request and its response, on this upstream connection.
fn exchange(client: &mut Client, server: &mut Client) {
    client.send(GET);
    server.head();
    server.answer("ok");
    assert_eq!(client.response().body, b"ok");
}

/// A request and its response, on a new upstream connection.
fn exchange_anew(client: &mut Client, upstream: &Upstream) -> Client {
    client.send(GET);
    let server = upstream.answering("ok");
    assert_eq!(client.response().body, b"ok");
    server
}

/// Waits until the pool has this number of idle connections: 0 once unsolicited bytes were found on one.
fn idle(bed: &Bed, connections: f64) {
    bed.expect("heddle_upstream_connections_idle", &[], connections);
}

#[test]
fn an_endpoint_that_sends_a_second_answer_gets_each_request_on_a_new_connection() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    let mut first = exchange_anew(&mut client, &upstream);
    idle(&bed, 1.0);
    first.answer("bad");
    idle(&bed, 0.0);
    for _ in 0..3 {
        let mut next = exchange_anew(&mut client, &upstream);
        // The connection is closed instead of pooled: no client gets what the endpoint sends later.
        assert_eq!(next.rest(), b"");
    }
}

#[test]
fn an_answer_with_more_behind_it_is_the_last_on_its_connection_and_others() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let mut first =
        upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n");
    assert_eq!(client.response().body, b"ok");
    assert_eq!(first.rest(), b"");
    let mut second = exchange_anew(&mut client, &upstream);
    assert_eq!(second.rest(), b"");
}

#[test]
fn an_endpoint_that_only_closes_an_idle_connection_keeps_others() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    for _ in 0..2 {
        let mut server = exchange_anew(&mut client, &upstream);
        exchange(&mut client, &mut server);
        drop(server);
        idle(&bed, 0.0);
    }
}

/// The next request must not meet unread bytes of this one's body, or surplus bytes of its response.
#[test]
fn an_answer_that_may_leave_something_behind_is_the_last_on_its_connection() {
    let long = "x".repeat(100_000);
    let refused = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno";
    for (request, answer, is_read) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
            refused,
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
            refused,
            true,
        ),
        (
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            true,
        ),
    ] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.client();
        let is_head = request.starts_with("HEAD");
        client.send(request);
        if is_read && !is_head {
            client.send(&long);
        }
        let mut first = upstream.asked();
        if is_read && !is_head {
            first.exact(long.len());
        }
        first.send(answer);
        match is_head {
            true => assert!(client.head().starts_with("HTTP/1.1 200 ")),
            false => assert_eq!(client.response().status(), 413),
        }
        if !is_read {
            client.send(&long);
        }
        // The connection is closed: the next request uses another.
        first.rest();
        let mut client = bed.sending(post(0));
        let _second = upstream.answering("ok");
        assert_eq!(client.response().body, b"ok");
        idle(&bed, 1.0);
    }
}

#[test]
fn an_error_to_a_body_of_16_kib_leaves_the_connection_to_the_next_request_and_to_a_longer_one_not()
{
    for (bytes, is_kept) in [(16_384, true), (16_385, false)] {
        let (upstream, bed) = Bed::scripted();
        let mut client = bed.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"
        ));
        client.send("x".repeat(bytes));
        let mut server = upstream.asked();
        server.exact(bytes);
        server.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(client.response().status(), 413);
        match is_kept {
            true => idle(&bed, 1.0),
            false => assert_eq!(server.rest(), b""),
        }
    }
}

/// A server may close an idle connection while a request is on its way, and that request is lost.
#[test]
fn a_request_that_is_not_sent_twice_goes_by_no_connection_that_has_long_been_idle() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.client();
    let _first = exchange_anew(&mut client, &upstream);
    // The duration is what this test checks: a connection counts as long idle after one second.
    std::thread::park_timeout(std::time::Duration::from_millis(1_500));
    client.send(post(1) + "x");
    let mut second = upstream.accept();
    assert!(second.head().starts_with("POST "));
    second.exact(1);
    second.answer("ok");
    assert_eq!(client.response().body, b"ok");
    std::thread::park_timeout(std::time::Duration::from_millis(1_500));
    // A request that can be retried uses an idle connection.
    exchange(&mut client, &mut second);
    assert!(upstream.is_quiet());
}
