//! A provider of a service: it hashes the body of a request, takes CPU time as an application would, waits as for
//! another service's answer, and works on a limited number of requests at once.
//!
//! ```text
//! connection ─▶ request ─▶ a free place, in the order of arrival ─▶ hash, work, wait ─▶ answer
//! ```
//!
//! Requests that come when all places are taken wait for one, as they would for an application's threads. The last
//! segment of the path says for how many milliseconds the provider waits: `/api/v1/items/7f3a/50`. `/counts` returns
//! the counters since it was last called.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::listen::listen;
use super::work::work;
use super::{ask, http};

/// Bytes of an answer's body: the hash in hexadecimal digits.
pub(super) const ANSWER_BYTES: u64 = 16;
/// Limit for a request, head and body together, in bytes.
const MAX_REQUEST: usize = 64 << 10;
/// The longest wait that a request may ask for.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Options of `heddle-lab provider`.
#[derive(Args)]
pub struct Provider {
    /// Where to serve; port 0 for any.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Requests that it works on at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// CPU time that each answer costs, in microseconds: the work of an application.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    work_us: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Requests answered.
    pub(super) served: u64,
    /// Answered requests that had found no free place.
    pub(super) waited: u64,
    /// The largest number of requests there at one time, in work or waiting.
    pub(super) most: u64,
    /// How long requests were there, in microseconds, all added up. Divided by the elapsed time, this is the average
    /// number of requests there.
    pub(super) there_us: u64,
}

impl Counts {
    /// Reads the counters of a provider, which resets them.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn ask(address: SocketAddr) -> anyhow::Result<Counts> {
        let counts = ask::get(address, "/counts")?;
        serde_json::from_str(&counts).context("the counts")
    }
}

/// Serves until the process is stopped. Prints the port on a line of its own once it listens.
///
/// # Errors
/// When it cannot listen.
pub fn run(options: &Provider) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let places = Semaphore::new(options.at_once as usize);
    let work = Duration::from_micros(options.work_us);
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listen(options.listen)?)?;
        println!("{}", listener.local_addr()?.port());
        serve(listener, places, work).await
    })
}

/// What all connections share, on one thread.
struct Shared {
    places: Semaphore,
    work: Duration,
    counts: Cell<Counts>,
    there: Cell<u64>,
}

async fn serve(listener: TcpListener, places: Semaphore, work: Duration) -> anyhow::Result<()> {
    let shared = Rc::new(Shared {
        places,
        work,
        counts: Cell::default(),
        there: Cell::default(),
    });
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        stream.set_nodelay(true)?;
        let shared = Rc::clone(&shared);
        // The client notices a broken connection.
        tokio::task::spawn_local(async move { drop(connection(stream, &shared).await) });
    }
}

async fn connection(mut stream: TcpStream, shared: &Shared) -> anyhow::Result<()> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        let length = loop {
            match http::request(&bytes) {
                Some((length, _)) if length <= bytes.len() => break length,
                Some((length, _)) => anyhow::ensure!(length <= MAX_REQUEST, "too long"),
                None => anyhow::ensure!(bytes.len() < MAX_REQUEST, "too long"),
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        if http::request(&bytes).is_some_and(|(_, target)| target == b"/counts") {
            return Ok(stream.write_all(shared.counted()?.as_bytes()).await?);
        }
        let answer = shared.answer(&bytes[..length]).await?;
        bytes.drain(..length);
        stream.write_all(answer.as_bytes()).await?;
    }
}

impl Shared {
    /// The answer with the counters, which it resets; the connection ends after it.
    fn counted(&self) -> anyhow::Result<String> {
        Ok(answer(&serde_json::to_string(&self.counts.take())?))
    }

    async fn answer(&self, request: &[u8]) -> anyhow::Result<String> {
        let (_, target) = http::request(request).context("a whole request")?;
        self.there.set(self.there.get() + 1);
        let arrived = tokio::time::Instant::now();
        let waits = self.places.available_permits() == 0;
        let place = self.places.acquire().await?;
        let hash = hash(body(request));
        work(self.work);
        tokio::time::sleep(wait(target)).await;
        drop(place);
        let mut counts = self.counts.get();
        counts.served += 1;
        counts.waited += u64::from(waits);
        counts.most = counts.most.max(self.there.get());
        let there_us = arrived.elapsed().as_micros();
        counts.there_us += u64::try_from(there_us).unwrap_or(u64::MAX);
        self.counts.set(counts);
        self.there.set(self.there.get() - 1);
        Ok(answer(&hash_text(hash)))
    }
}

/// The wait that a target asks for: the number in its last path segment, in milliseconds.
fn wait(target: &[u8]) -> Duration {
    Duration::from_millis(wait_ms(target)).min(MAX_WAIT)
}

/// The number in the last path segment of a target; 0 where there is none.
pub(super) fn wait_ms(target: &[u8]) -> u64 {
    let last = target.rsplit(|byte| *byte == b'/').next();
    last.and_then(http::number).unwrap_or(0)
}

/// The body of a whole request: the string that is hashed.
fn body(request: &[u8]) -> &[u8] {
    let head = memchr::memmem::find(request, b"\r\n\r\n");
    head.map_or(&[], |end| &request[end + 4..])
}

/// A hash as answers carry it, in [`ANSWER_BYTES`] digits.
pub(super) fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

/// FNV-1a (Fowler, Noll, Vo; 64 bits): any hash would do.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub(super) fn answer(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nServer: lab\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests;
