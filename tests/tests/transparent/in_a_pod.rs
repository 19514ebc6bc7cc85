//! Programs in pods that are not unmodified ones: this test binary, whose role is in its environment.

mod opaque;

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The variable with the role.
pub(crate) const ROLE: &str = "HEDDLE_TEST_ROLE";
/// Prefix of output lines that are meant for the test.
pub(crate) const LINE: &str = "@ ";
/// Timeout of every wait of a client.
const WAIT: Duration = Duration::from_secs(8);
/// Number of connections that a flood opens at a time.
const ROUND: usize = 1_000;
/// Pause between two requests of one client, so that others get CPU time.
const BETWEEN: Duration = Duration::from_millis(5);

/// Not a test, but the entry point of a program in a pod.
#[test]
#[ignore = "a program of a pod"]
fn runs() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words.as_slice() {
        ["serve", port] => serve(port.parse().expect("a port")),
        ["anew", to] => load(to.parse().expect("an address"), false),
        ["kept", to] => load(to.parse().expect("an address"), true),
        ["talk", to] => talk(to.parse().expect("an address")),
        ["dial", to] => dial(to.parse().expect("an address")),
        ["echo", to] => opaque::echo(to.parse().expect("an address")),
        ["say", at] => opaque::say(at.parse().expect("an address")),
        ["hear", to] => opaque::hear(to.parse().expect("an address"), None),
        ["hear", to, from] => opaque::hear(
            to.parse().expect("an address"),
            Some(from.parse().expect("an address")),
        ),
        ["keep", at] => opaque::keep(at.parse().expect("an address")),
        ["hold", count, to] => opaque::hold(
            count.parse().expect("a number"),
            to.parse().expect("an address"),
        ),
        ["flood", count, to] => flood(
            count.parse().expect("a number"),
            to.parse().expect("an address"),
        ),
        ["begin", count, to] => begin(
            count.parse().expect("a number"),
            to.parse().expect("an address"),
        ),
        other => panic!("an unknown role: {other:?}"),
    }
}

/// Microseconds on the monotonic clock, which all processes of a machine share.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    u64::try_from(us).unwrap_or_default()
}

/// Answers HTTP requests with the caller's address, and echoes lines that begin with `echo`.
fn serve(port: u16) {
    let listener = TcpListener::bind(("::", port)).expect("a port");
    for stream in listener.incoming().flatten() {
        thread::spawn(move || answer(&stream));
    }
}

fn answer(stream: &TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let peer = stream.peer_addr().ok()?.ip().to_canonical();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut writer = stream;
        if line.starts_with("echo") {
            writer.write_all(line.as_bytes()).ok()?;
            continue;
        }
        while line != "\r\n" {
            line.clear();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        let body = format!("seen as {peer}\n");
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        writer.write_all(text.as_bytes()).ok()?;
    }
}

/// Sends one request after the other until standard input ends, and reports start, duration and result of each.
fn load(to: SocketAddr, keeps: bool) {
    until_told(|| {
        let mut kept = None;
        move || {
            let began = now_us();
            let stream = match kept.take() {
                Some(stream) => Ok(stream),
                None => connect(to),
            };
            let (stream, outcome) = match stream.and_then(|stream| Ok((ask(&stream)?, stream))) {
                Ok((status, stream)) => (Some(stream), status),
                Err(error) => (None, error.kind().to_string().replace(' ', "-")),
            };
            if keeps {
                kept = stream;
            }
            println!("{LINE}{began} {} {outcome}", now_us() - began);
            thread::park_timeout(BETWEEN);
        }
    });
}

fn until_told<W: FnMut()>(work: impl FnOnce() -> W) {
    let watcher = thread::spawn(|| {
        let mut nothing = Vec::new();
        let _ended = std::io::stdin().read_to_end(&mut nothing);
    });
    let mut work = work();
    while !watcher.is_finished() {
        work();
    }
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, WAIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT))?;
    Ok(stream)
}

/// Sends one request, and reads its answer to the end; returns the status.
fn ask(stream: &TcpStream) -> std::io::Result<String> {
    let mut writer = stream;
    writer.write_all(b"GET / HTTP/1.1\r\nhost: server\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut status = String::new();
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if status.is_empty() {
            status = line.split(' ').nth(1).unwrap_or("?").to_owned();
        }
        if line == "\r\n" {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(status)
}

/// Exchanges one line after the other over one connection.
fn talk(to: SocketAddr) {
    let stream = connect(to).expect("a connection");
    until_told(|| {
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut writer = stream;
        let mut number = 0;
        move || {
            let began = now_us();
            number += 1;
            let text = format!("echo {number}\n");
            let mut heard = String::new();
            let sent = writer.write_all(text.as_bytes());
            let outcome = match sent.and_then(|()| reader.read_line(&mut heard)) {
                Ok(_) if heard == text => "200".to_owned(),
                Ok(_) => format!("heard:{:?}", heard.trim()),
                Err(error) => error.kind().to_string().replace(' ', "-"),
            };
            println!("{LINE}{began} {} {outcome}", now_us() - began);
            thread::park_timeout(BETWEEN);
        }
    });
}

/// Opens connections and holds the successful ones, retrying the others, until standard input ends.
fn flood(count: usize, to: SocketAddr) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("descriptors");
    until_told(|| {
        let mut held = Vec::new();
        move || {
            for _ in 0..ROUND.min(count - held.len()) {
                if let Ok(stream) = TcpStream::connect_timeout(&to, WAIT) {
                    held.push(stream);
                }
            }
            // Connections that were reset do not count as held.
            let is_held = |stream: &TcpStream| {
                let open = stream
                    .set_nonblocking(true)
                    .and_then(|()| stream.peek(&mut [0]));
                open.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            held.retain(is_held);
            println!("{} held", held.len());
            thread::park_timeout(BETWEEN);
        }
    });
}

/// Starts this number of connections at once.
fn begin(count: usize, to: SocketAddr) {
    let dials = (0..count).map(|_| thread::spawn(move || TcpStream::connect_timeout(&to, WAIT)));
    let dials: Vec<_> = dials.collect();
    for dial in dials {
        let _outcome = dial.join();
    }
}

/// Sends one request over a new connection.
fn dial(to: SocketAddr) {
    let began = now_us();
    let outcome = connect(to).and_then(|stream| ask(&stream));
    let outcome = outcome.unwrap_or_else(|error| error.kind().to_string().replace(' ', "-"));
    println!("{LINE}{began} {} {outcome}", now_us() - began);
}
