//! The consumer of the providers' Service: for each request of the load generator it sends one to the Service, and
//! checks the answer.
//!
//! ```text
//! load generator ─▶ request ─▶ a random string to the Service ─▶ its hash, compared ─▶ 200, or 502
//! ```
//!
//! Each connection of the load generator has a connection of its own to the Service, which stays open: so there are as
//! many requests in flight as the load generator has connections. The last segment of the path, which says how long a
//! provider waits, is passed on unchanged. `/counts` returns the counters, as it does at a provider.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::listen::listen;
use crate::load::{Head, Request, Shape, Target};
use crate::provider::{ANSWER_BYTES, answer, hash, hash_text, wait_ms};
use crate::{ask, http};

/// Bytes of the string that is hashed.
const STRING_BYTES: usize = 128;
/// Limit for a request, and for the head and the body of an answer, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Options of `heddle-lab consumer`.
#[derive(Args)]
pub struct Consumer {
    /// Where to serve; port 0 for any.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// `AUTHORITY@ADDRESS:PORT` of the Service.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// Shares of the targets, where there are several: a new connection goes to the target with the fewest connections
    /// in proportion to its share.
    #[arg(long, value_delimiter = ',')]
    shares: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConsumerCounts {
    /// Answers with the right hash.
    pub(super) right: u64,
    /// Answers with another hash than that of the string that was sent.
    pub(super) wrong_hashes: u64,
    /// Requests without a usable answer, by kind of failure.
    pub(super) failed: BTreeMap<String, u64>,
}

impl ConsumerCounts {
    /// Reads the counters of a consumer.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn ask(address: SocketAddr) -> anyhow::Result<ConsumerCounts> {
        let counts = ask::get(address, "/counts")?;
        serde_json::from_str(&counts).context("the consumer's counts")
    }
}

/// Serves until the process is stopped. Prints the port on a line of its own once it listens.
///
/// # Errors
/// When it cannot listen.
pub fn run(options: &Consumer) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listen(options.listen)?)?;
        println!("{}", listener.local_addr()?.port());
        serve(listener, &options.targets, &options.shares).await
    })
}

/// Targets and counters of all connections, which run on one thread.
struct ConsumerShared {
    targets: Vec<Place>,
    counts: RefCell<ConsumerCounts>,
}

/// A target and its number of open connections.
struct Place {
    target: Target,
    share: u32,
    open: Cell<u32>,
}

async fn serve(listener: TcpListener, targets: &[Target], shares: &[u32]) -> anyhow::Result<()> {
    let place = |(index, target): (usize, &Target)| Place {
        target: target.clone(),
        share: shares.get(index).copied().unwrap_or(1),
        open: Cell::default(),
    };
    let shared = Rc::new(ConsumerShared {
        targets: targets.iter().enumerate().map(place).collect(),
        counts: RefCell::default(),
    });
    for number in 0.. {
        let (stream, _) = listener.accept().await.context("accept")?;
        stream.set_nodelay(true)?;
        let shared = Rc::clone(&shared);
        // The load generator notices a broken connection and counts it.
        tokio::task::spawn_local(async move { drop(connection(stream, &shared, number).await) });
    }
    Ok(())
}

async fn connection(
    mut stream: TcpStream,
    shared: &ConsumerShared,
    number: u64,
) -> anyhow::Result<()> {
    let mut bytes = Vec::with_capacity(2048);
    let mut service: Option<CalledService> = None;
    loop {
        let length = loop {
            match http::request(&bytes) {
                Some((length, _)) if length <= bytes.len() => break length,
                _ => anyhow::ensure!(bytes.len() < MAX_BYTES, "too long"),
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        let (_, target) = http::request(&bytes).context("a whole request")?;
        if target == b"/counts" {
            let counts = serde_json::to_string(&*shared.counts.borrow())?;
            return Ok(stream.write_all(answer(&counts).as_bytes()).await?);
        }
        let wait_ms = wait_ms(target);
        bytes.drain(..length);
        let service = service.get_or_insert_with(|| CalledService::new(shared, wait_ms, number));
        let answered = match service.ask().await {
            Ok(hash) => {
                shared.counts.borrow_mut().right += 1;
                answer(&hash)
            }
            Err(wrong) => {
                shared.count(wrong);
                "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
        };
        stream.write_all(answered.as_bytes()).await?;
    }
}

impl ConsumerShared {
    /// The target with the fewest open connections in proportion to its share.
    fn next(&self) -> &Place {
        let filled = |place: &&Place| {
            u64::from(place.open.get()) * (1 << 32) / u64::from(place.share.max(1))
        };
        let free = self.targets.iter().filter(|place| place.share > 0);
        free.min_by_key(filled).unwrap_or(&self.targets[0])
    }

    fn count(&self, wrong: Wrong) {
        let mut counts = self.counts.borrow_mut();
        match wrong {
            Wrong::Hash => counts.wrong_hashes += 1,
            Wrong::Failed(kind) => *counts.failed.entry(kind).or_default() += 1,
        }
    }
}

/// Why the load generator gets 502 instead of 200.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Hash,
    Failed(String),
}

fn failed(kind: impl Into<String>) -> Wrong {
    Wrong::Failed(kind.into())
}

/// The calls of one connection to the Service.
struct CalledService<'shared> {
    place: &'shared Place,
    request: Request,
    stream: Option<TcpStream>,
    bytes: Vec<u8>,
}

impl CalledService<'_> {
    fn new(shared: &ConsumerShared, wait_ms: u64, number: u64) -> CalledService<'_> {
        let place = shared.next();
        place.open.set(place.open.get() + 1);
        let shape = Shape {
            head: Head::Browser,
            body_bytes: STRING_BYTES as u64,
            answer_bytes: ANSWER_BYTES,
            changing: true,
            random_body: true,
            tail: Some(wait_ms.to_string()),
        };
        CalledService {
            place,
            request: Request::new(&shape, &place.target.authority, number),
            stream: None,
            bytes: Vec::with_capacity(1024),
        }
    }

    /// Sends the next string and returns the hash that the Service answers.
    async fn ask(&mut self) -> Result<String, Wrong> {
        let answered = self.exchange().await;
        if answered.is_err() {
            // Bytes that still arrive on this connection would belong to no request.
            self.stream = None;
        }
        self.bytes.clear();
        answered
    }

    async fn exchange(&mut self) -> Result<String, Wrong> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(self.place.target.address).await;
                let stream = stream.map_err(|error| failed(format!("connect: {error}")))?;
                let nodelay = stream.set_nodelay(true);
                nodelay.map_err(|error| failed(format!("connect: {error}")))?;
                none.insert(stream)
            }
        };
        let sent = self.request.next();
        let right = hash_text(hash(&sent[sent.len() - STRING_BYTES..]));
        let written = stream.write_all(sent).await;
        written.map_err(|_| failed("the connection ended"))?;
        let (status, body) = loop {
            match stream.read_buf(&mut self.bytes).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(failed("the connection ended")),
            }
            let head = http::response(&self.bytes).map_err(|_| failed("no HTTP"))?;
            let Some(head) = head else {
                if self.bytes.len() > MAX_BYTES {
                    return Err(failed("the answer is too long"));
                }
                continue;
            };
            let body = &self.bytes[head.head_len..];
            if body.len() as u64 >= head.content_length {
                break (head.status, body);
            }
            if head.content_length > MAX_BYTES as u64 {
                return Err(failed("the answer is too long"));
            }
        };
        match status {
            200 if body == right.as_bytes() => Ok(right),
            200 => Err(Wrong::Hash),
            status => Err(failed(format!("status {status}"))),
        }
    }
}

impl Drop for CalledService<'_> {
    fn drop(&mut self) {
        self.place.open.set(self.place.open.get() - 1);
    }
}

#[cfg(test)]
mod tests;
