//! Clients that continue whatever happens: each sends a request, records its result and its times, and sends the next.
//!
//! Half of the clients keep their connection as long as it lasts, half open one for each request. Times are those of
//! the wall clock, which all processes share, so that they can be compared with the times at which a proxy was killed.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::http;

/// The timeout for a connection, and for an answer: less than the interval between two kills of a proxy.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Bytes of body that are asked for.
const BODY_BYTES: usize = 128;

/// Options of `heddle-lab persist`.
#[derive(Args, Clone)]
pub struct Persist {
    /// Where to send.
    #[arg(long)]
    to: SocketAddr,
    /// The host of the requests.
    #[arg(long)]
    host: String,
    #[arg(long)]
    clients: usize,
    /// Pause of each client between an answer and its next request, in milliseconds.
    #[arg(long)]
    pause_ms: u64,
    #[arg(long)]
    seconds: f64,
}

/// A request and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Microseconds of Unix time.
    pub(super) began_us: u64,
    pub(super) ended_us: u64,
    /// Why the request failed, if it did.
    pub(super) failed: Option<String>,
}

/// Sends requests until the time is up, and prints all results as one line of JSON.
///
/// # Errors
/// When a thread cannot be started, or the clock is before 1970.
pub fn run(options: &Persist) -> anyhow::Result<()> {
    let end = now_us() + Duration::from_secs_f64(options.seconds).as_micros() as u64;
    let clients = (0..options.clients).map(|number| {
        let options = options.clone();
        thread::Builder::new().spawn(move || client(&options, number % 2 == 0, end))
    });
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    for client in clients {
        let asked = client.join();
        all.extend(asked.ok().context("a client panicked")?);
    }
    all.sort_by_key(|asked: &Asked| asked.began_us);
    let mut line = serde_json::to_vec(&all)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

/// Microseconds of Unix time.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

fn client(options: &Persist, keeps: bool, end: u64) -> Vec<Asked> {
    let request = format!(
        "GET /api/v1/items/{BODY_BYTES} HTTP/1.1\r\nHost: {}\r\nX-Lab-Canary: no\r\n\r\n",
        options.host
    );
    let mut kept = None;
    let mut all = Vec::new();
    while now_us() < end {
        let began_us = now_us();
        let asked = exchange(options.to, request.as_bytes(), &mut kept);
        if !keeps || asked.is_err() {
            kept = None;
        }
        all.push(Asked {
            began_us,
            ended_us: now_us(),
            failed: asked.err().map(|error| format!("{error:#}")),
        });
        thread::park_timeout(Duration::from_millis(options.pause_ms));
    }
    all
}

fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut byte));
    let is_open = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    !is_open || stream.set_nonblocking(false).is_err()
}

fn exchange(to: SocketAddr, request: &[u8], kept: &mut Option<TcpStream>) -> anyhow::Result<()> {
    // Like any client with a pool: a connection that was closed meanwhile is not used again.
    if kept.as_ref().is_some_and(is_closed) {
        *kept = None;
    }
    let stream = match kept {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect_timeout(&to, PATIENCE).context("no connection")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            kept.insert(stream)
        }
    };
    stream.write_all(request).context("not sent")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).context("no answer")?;
        anyhow::ensure!(read > 0, "closed");
        answer.extend_from_slice(&piece[..read]);
        let head = http::response(&answer);
        let head = head.map_err(|why| anyhow::anyhow!("malformed: {why:?}"))?;
        let Some(head) = head else { continue };
        anyhow::ensure!(head.status == 200, "status {}", head.status);
        if answer.len() >= head.head_len + BODY_BYTES {
            anyhow::ensure!(answer.len() == head.head_len + BODY_BYTES, "surplus");
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream;

    #[test]
    fn what_a_server_answers_is_good_and_what_none_answers_is_noted() {
        let port = upstream::in_background();
        let options = |port| Persist {
            to: SocketAddr::from((upstream::address(0), port)),
            host: "shop".to_owned(),
            clients: 1,
            pause_ms: 1,
            seconds: 1.0,
        };
        for keeps in [true, false] {
            let all = client(&options(port), keeps, now_us() + 100_000);
            assert!(!all.is_empty());
            assert!(all.iter().all(|asked| asked.failed.is_none()), "{all:?}");
        }
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let all = client(&options(port), true, now_us() + 20_000);
        assert!(all.iter().all(|asked| asked.failed.is_some()), "{all:?}");
    }
}
