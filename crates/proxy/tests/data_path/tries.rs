//! The timeout of one try (`timeouts.backendRequest`), beside that of the whole request (`timeouts.request`).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::Filters;

use crate::support::{Bed, Client, GET, Upstream, mesh, post, quick, to_echo};

/// More than half of a try's timeout, and much less than all of it: two such waits exceed one try's timeout.
const WAIT: Duration = Duration::from_millis(1_800);
const TRY_MS: u64 = 3_000;

/// A proxy for a scripted endpoint, with these timeouts of a request and of a try, in milliseconds.
fn bed(request_ms: Option<u64>, try_ms: Option<u64>) -> (Upstream, Bed) {
    let upstream = Upstream::new();
    let mut rule = to_echo("", Filters::default());
    let action = Arc::get_mut(&mut rule.action).unwrap();
    (action.request_timeout_ms, action.backend_timeout_ms) = (request_ms, try_ms);
    // The proxy's own timeout, which applies only to routes without timeouts.
    let settings = quick(|timeouts| timeouts.response_head = Duration::from_millis(1));
    let bed = Bed::with(settings, &mesh(&[upstream.address], Some(vec![rule])));
    (upstream, bed)
}

/// Waits for this time, which is what the test checks.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

#[test]
fn a_try_that_takes_too_long_is_a_504_and_is_not_made_again() {
    for request in [GET.to_owned(), post(0)] {
        let (upstream, bed) = bed(None, Some(200));
        let began = Instant::now();
        let mut client = bed.sending(request);
        let mut server = upstream.asked();
        assert_eq!(client.response().verdict(), (504, "request_timeout"));
        // A Worker's clock has whole milliseconds.
        assert!(began.elapsed() >= Duration::from_millis(199));
        // A late response is dropped: the upstream connection is closed, and the client's continues.
        assert_eq!(server.rest(), b"");
        client.send(GET);
        let _second = upstream.answering("in time");
        assert_eq!(client.response().body, b"in time");
        assert!(upstream.is_quiet());
        bed.expect_rejected("request_timeout", 1.0);
        bed.expect("heddle_upstream_retries_total", &[], 0.0);
    }
}

#[test]
fn the_time_of_a_try_is_over_in_the_middle_of_its_answer_too() {
    let (upstream, bed) = bed(None, Some(500));
    let mut client = bed.sending(GET);
    let _server = upstream.replying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.rest(), b"half", "it is cut, not ended");
    bed.expect_rejected("request_timeout", 1.0);
}

#[test]
fn the_shorter_of_both_times_counts() {
    for (request_ms, try_ms) in [
        (Some(200), Some(3_600_000)),
        (Some(3_600_000), Some(200)),
        // A zero means no timeout.
        (Some(0), Some(200)),
        (Some(200), Some(0)),
    ] {
        let (upstream, bed) = bed(request_ms, try_ms);
        let began = Instant::now();
        let mut client = bed.sending(GET);
        let _server = upstream.asked();
        assert_eq!(client.response().verdict(), (504, "request_timeout"));
        let took = began.elapsed();
        // Deadlines are in whole milliseconds of a clock that is rounded down.
        assert!(took >= Duration::from_millis(199), "after {took:?}");
    }
}

/// Sends a request on a reused connection whose endpoint closes after [`WAIT`], so the request is retried; the second
/// endpoint connection answers [`WAIT`] later. Returns the client's status and reason.
fn two_tries(request_ms: Option<u64>, try_ms: Option<u64>) -> (u16, String, Bed) {
    let (upstream, bed) = bed(request_ms, try_ms);
    let mut client = bed.sending(GET);
    let mut first: Client = upstream.answering("");
    assert_eq!(client.response().status(), 200);
    client.send(GET);
    first.head();
    pass(WAIT);
    drop(first);
    let mut second = upstream.asked();
    pass(WAIT);
    // The proxy may have given the request up.
    let _gone = std::io::Write::write_all(
        &mut second.stream,
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    let response = client.response();
    let (status, reason) = response.verdict();
    (status, reason.to_owned(), bed)
}

#[test]
fn each_try_has_its_own_time_and_all_of_them_that_of_the_request() {
    // Two tries that take six tenths of their timeout each.
    let (status, reason, bed) = two_tries(None, Some(TRY_MS));
    assert_eq!((status, reason.as_str()), (200, ""));
    bed.expect("heddle_upstream_retries_total", &[], 1.0);
    // The same timeout for the request ends during the second try.
    let (status, reason, bed) = two_tries(Some(TRY_MS), Some(TRY_MS));
    assert_eq!((status, reason.as_str()), (504, "request_timeout"));
    bed.expect("heddle_upstream_retries_total", &[], 1.0);
}
