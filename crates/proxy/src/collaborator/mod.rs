//! The Collaborator: the coroutine that carries a client connection's requests, one at a time.
//!
//! ```text
//!   arrive ──▶ prepare ──▶ forward ──▶ answer ──▶ pump ──▶ finish ──▶ (next request, or close)
//!     │           │           │           │         │
//!     │           └───────────┴───────────┴─────────┴── failure ──▶ respond ──▶ (next request, or linger)
//!     └── closed, idle too long, draining ──▶ close
//! ```
//!
//! | state | left when | by |
//! |---|---|---|
//! | arrive | a head is whole, refused or late | [`arrive`] |
//! | prepare | a backend is found or the answer is ours | [`prepare`], [`encode`] |
//! | forward | the request is sent | [`forward`] |
//! | answer | the response's head is there and is passed on | [`answer`] |
//! | pump | both bodies are through | [`pump`] |
//! | finish | counted and logged | [`finish`] |
//!
//! Between two awaits a Collaborator may use the Worker's [`Scratch`]; across an await it keeps
//! only what is in [`Connection`] and [`Exchange`]. An idle connection holds no buffer.

mod answer;
mod arrive;
mod encode;
mod exchange;
mod finish;
mod forward;
mod prepare;
mod pump;
mod respond;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use heddle_wire::http1::{Edits, RequestHead, ResponseHead};
use tokio::net::TcpStream;

use crate::io::Side;
use crate::listener::Listener;
use crate::worker::{Alarm, Millis, Worker};
use arrive::Arrived;
use exchange::Exchange;
use prepare::{LastCalled, Prepared};

/// What a Worker's Collaborators share between two awaits, so that a request allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    request: RequestHead,
    response: ResponseHead,
    edits: Edits,
    /// A head that was split over blocks, made contiguous.
    linear: Vec<u8>,
    /// The message on its way out.
    out: Vec<u8>,
    /// The request's path where it is not the one that was sent.
    path: Vec<u8>,
    /// The request's authority in canonical form.
    authority: Vec<u8>,
    /// A field value in the making.
    value: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch::default()
    }
}

/// One client connection.
pub(crate) struct Connection {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    client: Side,
    /// The client's address, without the port, as fields and logs show it.
    peer: Box<str>,
    /// Whether the client's own forwarding fields are believed.
    trusted: bool,
    alarm: Alarm,
    /// When the first byte of the request under way came.
    began: Instant,
    /// Requests answered so far.
    served: u64,
    shown: Shown,
    called: LastCalled,
}

/// What the access log shows of a request's first line, kept because the head may be gone by the
/// time the line is written. Reused; empty without an access log.
#[derive(Debug, Default)]
struct Shown {
    method: Vec<u8>,
    path: Vec<u8>,
}

impl Shown {
    fn keep(&mut self, method: &[u8], path: &[u8]) {
        self.clear();
        self.method.extend_from_slice(method);
        self.path.extend_from_slice(path);
    }

    fn clear(&mut self) {
        self.method.clear();
        self.path.clear();
    }
}

/// What becomes of a client connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The next request may come.
    KeepAlive,
    /// Everything was said: close.
    Close,
    /// The client may still be sending; closing at once would destroy the answer on its way.
    Linger,
}

impl Connection {
    pub(crate) fn new(
        worker: Rc<Worker>,
        listener: Rc<Listener>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Self {
        worker.stats.connections_total.inc();
        worker.stats.connections_active.inc();
        let peer = peer.ip().to_canonical();
        Connection {
            trusted: worker
                .settings
                .trusted_sources
                .iter()
                .any(|network| network.contains(peer)),
            peer: shown(peer),
            alarm: worker.alarms.alarm(),
            client: Side::new(stream),
            began: worker.clock.now(),
            served: 0,
            shown: Shown::default(),
            called: LastCalled::default(),
            listener,
            worker,
        }
    }

    /// Serves the connection until it closes.
    pub(crate) async fn serve(mut self) {
        poll_fn(|cx| {
            self.alarm.wakes(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            let after = match self.next_request().await {
                Arrived::Closed => break,
                Arrived::Request { head_bytes } => self.serve_request(head_bytes).await,
                Arrived::Refused(failure) => {
                    let mut exchange = Exchange::begin(&self.worker, self.began);
                    self.worker.stats.requests_active.inc();
                    self.fail(&mut exchange, failure).await
                }
            };
            self.alarm.clear();
            match after {
                After::KeepAlive => {}
                After::Close => break,
                After::Linger => {
                    self.linger().await;
                    break;
                }
            }
        }
    }

    async fn serve_request(&mut self, head_bytes: usize) -> After {
        self.worker.stats.requests_active.inc();
        let mut exchange = Exchange::begin(&self.worker, self.began);
        exchange.head_bytes = head_bytes;
        let outcome = match self.prepare(&mut exchange) {
            Ok(Prepared::Forward) => self.forward(&mut exchange).await,
            Ok(Prepared::Redirect { status }) => Ok(self.redirect(&mut exchange, status).await),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(after) => {
                self.finish(&exchange, None);
                after
            }
            Err(failure) => self.fail(&mut exchange, failure).await,
        }
    }

    /// Milliseconds from now, or never for a wait without limit.
    fn after(&self, wait: std::time::Duration) -> Millis {
        if wait.is_zero() {
            return Millis::MAX;
        }
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.worker.clock.now_ms().saturating_add(wait)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.worker.stats.connections_active.dec();
    }
}

/// An address in the form of RFC 7239 without brackets, which `X-Forwarded-For` has none of.
fn shown(address: IpAddr) -> Box<str> {
    address.to_string().into()
}

#[cfg(test)]
mod tests;
