use std::net::TcpListener;

use super::*;
use crate::load::request::{Head, Shape};

/// A connection that nothing was sent on, waiting for an answer.
fn awaiting() -> (Connection, Instant, TcpListener) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind");
    let address = listener.local_addr().expect("address");
    let shape = Shape {
        head: Head::Plain,
        body_bytes: 0,
        answer_bytes: 4,
        changing: false,
        random_body: false,
        tail: None,
    };
    let request = Request::new(&shape, "echo.lab", 0);
    let mut connection = Connection::open(address, request).expect("connect");
    let due = Instant::now();
    connection.state = State::Head { due };
    (connection, due, listener)
}

#[test]
fn an_answer_may_come_in_any_pieces() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    for first in 1..answer.len() {
        let (mut connection, due, _listener) = awaiting();
        assert_eq!(
            connection.consume(&answer[..first], 4),
            Ok(Progress::Waiting),
            "{first}"
        );
        assert_eq!(
            connection.consume(&answer[first..], 4),
            Ok(Progress::Answered { due })
        );
        assert!(!connection.busy());
    }
}

#[test]
fn an_answer_that_is_wrong_is_a_failure() {
    let cases: [(&[u8], Failure); 5] = [
        (
            b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbody",
            Failure::Status,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody!",
            Failure::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody!",
            Failure::Surplus,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n", Failure::Malformed),
        (b"hello\r\n\r\n", Failure::Malformed),
    ];
    for (bytes, expected) in cases {
        let (mut connection, _, _listener) = awaiting();
        assert_eq!(connection.consume(bytes, 4), Err(expected));
    }
}

#[test]
fn bytes_that_were_not_asked_for_are_a_failure() {
    let (mut connection, _, _listener) = awaiting();
    connection.state = State::Idle;
    assert_eq!(
        connection.consume(b"HTTP/1.1 408 Timeout\r\n\r\n", 4),
        Err(Failure::Surplus)
    );
}

#[test]
fn a_closed_connection_is_a_failure_and_can_be_opened_again() {
    let (mut connection, _, listener) = awaiting();
    drop(listener.accept().expect("accept"));
    let mut scratch = [0; 64];
    let closed = loop {
        match connection.receive(&mut scratch, 4) {
            Ok(Progress::Waiting) => std::thread::yield_now(),
            other => break other,
        }
    };
    assert_eq!(closed, Err(Failure::Closed));
    connection.reopen().expect("reopen");
    assert!(!connection.busy());
}
