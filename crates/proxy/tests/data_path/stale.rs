//! A PUT with a body on a connection that its endpoint closes: it is retried where that is documented, and an
//! application never gets it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::AppProtocol;

use crate::nodes::pair::Pair;
use crate::support::{Bed, Client, GET, Upstream, each_connection, field};

/// Lengths of a body that can be retried, and of one that is too long.
const SHORT: usize = 100;
const LONG: usize = 100_000;

fn put(body: &str) -> String {
    let length = body.len();
    format!("PUT /thing HTTP/1.1\r\nHost: echo\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// A client whose first request was answered, and the endpoint's connection, which is idle in the pool.
fn answered_once() -> (Upstream, Bed, Client, Client) {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(GET);
    let first = upstream.answering("");
    client.response();
    bed.expect("heddle_upstream_connections_idle", &[], 1.0);
    (upstream, bed, client, first)
}

#[test]
fn a_put_whose_connection_is_closed_with_nothing_of_it_read_is_sent_once() {
    for body in ["x".repeat(SHORT), "x".repeat(LONG)] {
        let (upstream, bed, mut client, first) = answered_once();
        // The request is in the endpoint's receive buffer, but its program reads nothing more.
        let sent = client.send_aside(put(&body).into_bytes());
        first.stream.peek(&mut [0]).unwrap();
        first.reset();
        sent.join().unwrap();
        match body.len() {
            SHORT => {
                let mut second = upstream.accept();
                assert!(second.head().starts_with("PUT /thing "));
                assert_eq!(second.exact(SHORT), body.as_bytes());
                second.answer("had it");
                assert_eq!(client.response().body, b"had it");
                bed.expect("heddle_upstream_retries_total", &[], 1.0);
            }
            _ => {
                assert_eq!(client.response().verdict(), (502, "upstream_reset"));
                bed.expect("heddle_upstream_retries_total", &[], 0.0);
            }
        }
        assert!(upstream.is_quiet());
    }
}

#[test]
fn a_put_whose_body_comes_behind_its_head_is_sent_once() {
    let (upstream, bed, mut client, mut first) = answered_once();
    let whole = put(&"x".repeat(SHORT));
    let (head, body) = whole.split_at(whole.len() - SHORT);
    client.send(head);
    // The head was forwarded without the body.
    assert!(first.head().starts_with("PUT /thing "));
    client.send(body);
    assert_eq!(first.exact(SHORT), body.as_bytes());
    drop(first);
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    bed.expect("heddle_upstream_retries_total", &[], 0.0);
    assert!(upstream.is_quiet());
}

#[test]
fn a_put_that_was_answered_in_part_is_not_sent_again() {
    let (upstream, bed, mut client, mut first) = answered_once();
    client.send(put(&"x".repeat(SHORT)));
    first.head();
    first.exact(SHORT);
    // The application has the request, as its interim response shows.
    first.send("HTTP/1.1 102 Processing\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 102 "));
    drop(first);
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    bed.expect("heddle_upstream_retries_total", &[], 0.0);
    assert!(upstream.is_quiet());
}

#[test]
fn a_put_on_a_new_connection_is_sent_once_however_short_it_is() {
    let (upstream, bed) = Bed::scripted();
    let mut client = bed.sending(put("hello"));
    let mut first = upstream.asked();
    first.exact(5);
    drop(first);
    assert_eq!(client.response().verdict(), (502, "upstream_reset"));
    bed.expect("heddle_upstream_retries_total", &[], 0.0);
    assert!(upstream.is_quiet());
}

/// Waits for more than a second, after which a connection counts as long idle.
fn long() {
    let over = Instant::now() + Duration::from_millis(1_500);
    while let Some(left) = over.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

#[test]
fn a_short_put_goes_by_a_connection_however_long_it_was_idle() {
    let (upstream, _bed, mut client, mut first) = answered_once();
    long();
    client.send(put("hello"));
    assert!(first.head().starts_with("PUT /thing "));
    assert_eq!(first.exact(5), b"hello");
    first.answer("had it");
    assert_eq!(client.response().body, b"had it");
    assert!(upstream.is_quiet());
}

/// Servers close idle connections at any time, so a request that cannot be retried avoids a connection that was long
/// idle.
#[test]
fn a_long_put_goes_by_no_connection_that_has_long_been_idle() {
    let (upstream, _bed, mut client, _first) = answered_once();
    long();
    let body = "x".repeat(LONG);
    let sent = client.send_aside(put(&body).into_bytes());
    let mut second = upstream.accept();
    assert!(second.head().starts_with("PUT /thing "));
    assert_eq!(second.exact(LONG), body.as_bytes());
    second.answer("had it");
    sent.join().unwrap();
    assert_eq!(client.response().body, b"had it");
}

/// An endpoint that answers GET, and closes after it has read a whole PUT; also returns the number of PUTs.
fn closing() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let had = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&had);
    let address = each_connection(move |stream| {
        let mut client = Client::of(stream);
        client.stream.set_read_timeout(None).unwrap();
        while let Some(head) = client.try_head() {
            let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
            client.exact(length);
            if head.starts_with("PUT ") {
                counts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            client.answer("");
        }
    });
    (address, had)
}

#[test]
fn between_two_nodes_a_long_put_reaches_the_application_once() {
    let (endpoint, had) = closing();
    let pair = Pair::new(endpoint, AppProtocol::Http);
    for times in 1..=3 {
        // This leaves an idle connection in the called node's pool.
        assert_eq!(pair.get("shop").status(), 200);
        let body = "x".repeat(LONG);
        let mut client = pair.client("shop");
        let sent = client.send_aside(put(&body).into_bytes());
        assert_eq!(client.response().verdict(), (502, "upstream_reset"));
        sent.join().unwrap();
        assert_eq!(had.load(Ordering::SeqCst), times);
    }
    for side in [&pair.calling, &pair.called] {
        side.expect("heddle_upstream_retries_total", &[], 0.0);
    }
}
