//! Whether a request that exceeds its route's timeout counts as a failure of the endpoint.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{Ejection, Failing, Filters, Mesh};

use crate::balancing::{limited, line, waiting};
use crate::support::{Bed, Client, GET, Upstream, get, listener, post, to_echo};

/// The route's request timeout in milliseconds. Requests for `/slow` have none.
const LIMIT_MS: u64 = 600;
/// More than half of the timeout.
const MOST_OF_IT: Duration = Duration::from_millis(400);

/// An endpoint with a limit of one request, which is ejected after one failure.
fn timed(endpoint: SocketAddr) -> Mesh {
    let rule = |path, limit: Option<u64>| {
        let mut rule = to_echo(path, Filters::default());
        Arc::get_mut(&mut rule.action).unwrap().request_timeout_ms = limit;
        rule
    };
    let mut mesh = limited(&[(endpoint, 1)], line(8, 10_000));
    let service = &mut mesh.services[0];
    service.ports[0].routes = Some(vec![rule("/slow", None), rule("", Some(LIMIT_MS))]);
    service.balancing.ejection = Some(Ejection {
        after: 1,
        on: Failing::ServerError,
        base_ms: 30_000,
        max_percent: 50,
    });
    mesh
}

fn scripted() -> (Upstream, Bed) {
    let upstream = Upstream::new();
    let bed = Bed::of(&timed(upstream.address));
    (upstream, bed)
}

fn ejections(bed: &Bed) -> f64 {
    bed.metric("heddle_upstream_ejections_total", &[])
}

fn pass(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

#[test]
fn a_client_that_withholds_its_body_has_no_endpoint_left_out() {
    let (upstream, bed) = scripted();
    let mut client = bed.sending(post(9) + "half");
    let _server = upstream.asked();
    assert_eq!(client.response().verdict(), (504, "request_timeout"));
    assert_eq!(ejections(&bed), 0.0);
    // Given the whole request, an endpoint that does not answer in time has failed.
    assert_eq!(bed.ask(GET).verdict(), (504, "request_timeout"));
    assert_eq!(ejections(&bed), 1.0);
}

#[test]
fn a_client_that_does_not_read_has_no_endpoint_left_out() {
    let (upstream, bed) = scripted();
    let mut client = bed.sending(GET);
    let mut server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    crate::waits::flood(&mut server.stream);
    bed.expect_rejected("request_timeout", 1.0);
    assert_eq!(ejections(&bed), 0.0);
}

#[test]
fn a_request_that_spent_its_time_in_line_has_no_endpoint_left_out() {
    let (upstream, bed) = scripted();
    let [mut served, mut waits] = [(); 2].map(|()| bed.client());
    served.send(get("/slow"));
    let mut server = upstream.asked();
    waits.send(GET);
    waiting(&bed, 1);
    pass(MOST_OF_IT);
    server.answer("");
    assert_eq!(served.response().status(), 200);
    assert_eq!(waits.response().verdict(), (504, "request_timeout"));
    assert_eq!(ejections(&bed), 0.0);
}

/// A connect that had only the rest of a request's time is no measure of the endpoint.
#[test]
fn an_endpoint_that_had_no_time_to_accept_is_not_passed_over() {
    const FAILURES: &str = "heddle_upstream_connect_failures_total";
    let (listener, address) = listener();
    let bed = Bed::of(&timed(address));
    let [mut served, mut waits] = [(); 2].map(|()| bed.client());
    served.send(get("/slow"));
    let mut server = Client::of(listener.accept().unwrap().0);
    server.head();
    // From now on the accept queue has room for one connection only.
    rustix::net::listen(&listener, 0).unwrap();
    let _only = TcpStream::connect(address).unwrap();
    waits.send(GET);
    waiting(&bed, 1);
    pass(MOST_OF_IT);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(served.response().status(), 200);
    assert_eq!(waits.response().verdict(), (504, "request_timeout"));
    assert_eq!(bed.metric(FAILURES, &[]), 0.0);
    assert_eq!(ejections(&bed), 0.0);
    // A connect that had all of the request's time is a failure.
    assert_eq!(waits.ask(GET).verdict(), (504, "request_timeout"));
    assert_eq!(bed.metric(FAILURES, &[]), 1.0);
    assert_eq!(ejections(&bed), 1.0);
}
