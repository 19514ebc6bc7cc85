//! Servers of these tests that answer badly: each question ends within its limits.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tempfile::TempDir;

use super::super::{ClientError, Limits, Location};
use super::{get, get_within, reply_within};

/// Far longer than [`LIMIT`]: what takes so long had no limit.
const PATIENCE: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_millis(500);

fn limits(bytes: usize) -> Limits {
    Limits { time: LIMIT, bytes }
}

fn at(folder: &TempDir) -> (Location, PathBuf) {
    let path = folder.path().join("s");
    (Location::new(Some(path.clone())), path)
}

/// Asks in a thread, so that a question without an end fails the test.
fn asked(at: Location, limits: Limits) -> (Result<String, ClientError>, Duration) {
    let (sender, answer) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let began = Instant::now();
        let answer = get_within(&at, "/latencies", limits);
        let _late = sender.send((answer, began.elapsed()));
    });
    answer.recv_timeout(PATIENCE).expect("it ends")
}

/// A server that answers each connection in this way.
fn serving(folder: &TempDir, answer: impl Fn(&mut UnixStream) + Send + 'static) -> Location {
    let (at, path) = at(folder);
    let listener = UnixListener::bind(path).expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 1_024];
            let _request = stream.read(&mut head).expect("a request");
            answer(&mut stream);
        }
    });
    at
}

#[test]
fn a_server_that_trickles_is_late_in_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = serving(&folder, |stream| {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while sent.is_ok() {
            thread::park_timeout(LIMIT / 10);
            sent = stream.write_all(b"x");
        }
    });
    let (answer, took) = asked(at, limits(1 << 20));
    assert!(matches!(answer, Err(ClientError::Late(..))), "{answer:?}");
    assert!(took >= LIMIT && took < LIMIT * 10, "{took:?}");
}

/// A socket whose queue of connections is full and stays so.
fn full(path: &PathBuf) -> Vec<OwnedFd> {
    let open = |flags| {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        socket_with(family, kind, flags | SocketFlags::CLOEXEC, None).expect("a socket")
    };
    let address = SocketAddrUnix::new(path).expect("short");
    let mut held = vec![open(SocketFlags::empty())];
    bind(&held[0], &address).expect("bound");
    listen(&held[0], 0).expect("listening");
    loop {
        let one = open(SocketFlags::NONBLOCK);
        match rustix::net::connect(&one, &address) {
            Ok(()) => held.push(one),
            Err(rustix::io::Errno::AGAIN) => return held,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_server_that_never_accepts_is_late() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, path) = at(&folder);
    let held = full(&path);
    let (answer, took) = asked(at, limits(1 << 20));
    assert!(matches!(answer, Err(ClientError::Late(..))), "{answer:?}");
    assert!(took >= LIMIT && took < LIMIT * 10, "{took:?}");
    drop(held);
}

#[test]
fn an_answer_that_is_too_long_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = serving(&folder, |stream| {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while sent.is_ok() {
            sent = stream.write_all(&[b'x'; 4 << 10]);
        }
    });
    let (answer, took) = asked(at, limits(64 << 10));
    let error = answer.expect_err("too long");
    assert!(matches!(error, ClientError::TooLong(..)), "{error}");
    assert!(
        error.to_string().contains("more than 65536 bytes"),
        "{error}"
    );
    assert!(took < LIMIT, "{took:?}");
}

#[test]
fn an_answer_within_its_limits_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let body = "x".repeat(50_000);
    let sent = format!("{head}{body}");
    let length = sent.len();
    let at = serving(&folder, move |stream| {
        let _gone = stream.write_all(sent.as_bytes());
    });
    let (answer, _) = asked(at.clone(), limits(length));
    assert_eq!(answer.expect("an answer"), body);
    let (answer, _) = asked(at, limits(length - 1));
    assert!(
        matches!(answer, Err(ClientError::TooLong(..))),
        "{answer:?}"
    );
}

#[test]
fn a_server_that_is_late_is_told_from_one_that_hangs_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, path) = at(&folder);
    // Only the kernel accepts here, as with a process that has no free descriptor.
    let listener = UnixListener::bind(path).expect("bound");
    let late = get_within(&at, "/status", limits(1)).expect_err("no answer");
    let said = late.to_string();
    assert!(said.contains("did not answer within 0.5 s"), "{said}");
    assert!(!said.contains("own user"), "{said}");
    assert!(
        ClientError::Late(at.clone(), Duration::from_secs(10))
            .to_string()
            .contains("within 10 s")
    );

    thread::spawn(move || listener.incoming().for_each(drop));
    let refused = get(&at, "/status").expect_err("no answer");
    assert!(matches!(refused, ClientError::NoAnswer(..)), "{refused}");
    assert!(
        refused.to_string().contains("its own user and root"),
        "{refused}"
    );
}

#[test]
fn an_error_shows_the_beginning_of_a_long_answer_on_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let answer = format!("HTTP/1.1 500 No\r\n\r\na\nb{}", "x".repeat(50_000));
    let at = serving(&folder, move |stream| {
        let _gone = stream.write_all(answer.as_bytes());
    });
    let (answer, _) = asked(at, limits(1 << 20));
    let said = answer.expect_err("an error").to_string();
    assert!(
        said.starts_with("heddle answered 500: a\\nbxxx") && said.ends_with('…'),
        "{said}"
    );
    assert!(said.chars().count() < 250, "{said}");
}

#[test]
fn a_reply_names_the_process_that_gave_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = serving(&folder, |stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nyes");
    });
    let reply = reply_within(&at, "/workers", limits(1_000)).expect("an answer");
    assert_eq!(reply.body, "yes");
    assert_eq!(reply.process.cast_unsigned(), std::process::id());
}
