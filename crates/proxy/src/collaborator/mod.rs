//! The Collaborator: the coroutine that serves the requests of a client connection, one at a time.
//!
//! ```text
//!   arrive ──▶ steps ──▶ forward ──▶ answer ──▶ pump ──▶ finish ──▶ (next request, or close)
//!     │        │ ▲ └──┐      │           │         │
//!     │        ▼ │    └──────┴───────────┴─────────┴── failure ──▶ respond ──▶ (next request, or linger)
//!     │        wait
//!     └── closed, idle too long, draining ──▶ close
//! ```
//!
//! | state | left when | by |
//! |---|---|---|
//! | arrive | a head is complete, refused or late | [`arrive`] |
//! | steps | a backend is found, or Heddle answers itself | [`steps`], [`wait`] |
//! | forward | an endpoint has room and the request is sent | [`room`], [`forward`] |
//! | answer | the response's head has arrived and is passed on | [`answer`] |
//! | pump | both bodies are transferred | [`crate::pump`] |
//! | finish | counted and logged | [`finish`] |
//!
//! Between two awaits a Collaborator may use the Worker's [`Scratch`]; across an await it keeps only the data in
//! [`Connection`] and [`Exchange`]. An idle connection holds no buffer.

mod answer;
mod arrive;
mod attempt;
mod decision;
mod edits;
mod exchange;
mod finish;
mod forward;
mod judge;
mod reply;
mod respond;
mod room;
mod steps;
mod trailers;
mod tunnel;
mod wait;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::door::Door;
use crate::env::{Alarm, Outcome, WorkKey};
use crate::failure::Failure;
use crate::intake::Intake;
use crate::opaque::Flow;
use crate::parcel::Origin;
use crate::parcel::{Contents, State};
use crate::side::Side;
use crate::upstream::{Endpoint, Lease, Upstream};
use crate::worker::Worker;
use arrive::NextRequest;
use exchange::Exchange;
use reply::Reply;
use steps::{LastCalled, LastFound};
pub(crate) use tunnel::{Served, Tunnel};

/// Bytes of heads after which other tasks get their turn, and the least that one head counts: 16 requests, or fewer
/// long ones.
const TURN_BYTES: usize = 16 * 1024;
const REQUEST_BYTES: usize = 1024;

/// The part of the current turn that the requests of a connection have used, in bytes of heads.
#[derive(Debug, Default)]
struct TurnUsage {
    bytes: usize,
}

impl TurnUsage {
    /// Counts a request that was served after a wait or at once. Returns whether it is time to yield to other tasks.
    fn add(&mut self, head_bytes: usize, waited: bool) -> bool {
        if waited {
            self.bytes = 0;
            return false;
        }
        self.bytes += head_bytes.max(REQUEST_BYTES);
        let full = self.bytes >= TURN_BYTES;
        if full {
            self.bytes = 0;
        }
        full
    }
}

/// One client connection.
pub(crate) struct Connection {
    worker: Rc<Worker>,
    door: Arc<Door>,
    /// The account to which the connection's work is charged.
    key: WorkKey,
    client: Side,
    address: SocketAddr,
    /// The client's IP address, as header fields and logs show it.
    peer: Box<str>,
    /// Whether the client's own forwarding fields (`X-Forwarded-…`) are trusted.
    trusted: bool,
    alarm: Alarm,
    /// When the first byte of the current request arrived, or the wait for it began.
    began: Instant,
    served: u64,
    taken: TurnUsage,
    /// The client has half-closed.
    client_ended: bool,
    shown: LoggedRequestLine,
    /// The protocols to which the client offers to upgrade, as they are offered to the endpoint; empty for nearly every
    /// request.
    offer: Vec<u8>,
    called: LastCalled,
    found: LastFound,
    last: Option<Rc<Endpoint>>,
    /// A connection to an endpoint that only this client may use, because it has the client's source address. It was
    /// made before the protocol was known, and serves the first request.
    own: Option<Box<(Rc<Endpoint>, Upstream)>>,
}

/// The parts of a request's head that the access log shows, kept because the head may be gone when the log line is
/// written. Reused; empty without an access log.
#[derive(Debug, Default)]
struct LoggedRequestLine {
    method: Vec<u8>,
    path: Vec<u8>,
    authority: Vec<u8>,
}

impl LoggedRequestLine {
    fn keep(&mut self, method: &[u8], path: &[u8], authority: &[u8]) {
        self.clear();
        self.method.extend_from_slice(method);
        self.path.extend_from_slice(path);
        self.authority.extend_from_slice(authority);
    }

    fn clear(&mut self) {
        self.method.clear();
        self.path.clear();
        self.authority.clear();
    }
}

/// What happens to a client connection after a request.
enum After {
    /// Wait for the next request.
    KeepAlive,
    /// The response is complete: close.
    Close,
    /// The response is incomplete: close so that the client does not take it as complete.
    Cut,
    /// The client may still be sending: closing at once would destroy the response on its way.
    Linger,
    /// The connection was upgraded: it carries another protocol from now on.
    Upgraded(Box<Upgraded>),
    /// It was told that it carries bytes from now on, to where the door leads.
    Tunnel(Arc<Door>),
}

/// The endpoint's side of an upgraded connection.
struct Upgraded {
    upstream: Upstream,
    lease: Lease,
    origin: Origin,
}

impl Connection {
    pub(crate) fn new(
        worker: Rc<Worker>,
        door: Arc<Door>,
        key: WorkKey,
        client: Side,
        address: SocketAddr,
    ) -> Self {
        let peer = address.ip().to_canonical();
        Connection {
            trusted: worker
                .settings
                .trusted_sources
                .iter()
                .any(|network| network.contains(peer)),
            peer: shown(peer),
            address,
            alarm: worker.alarms.alarm_of(&door, &client),
            client,
            began: worker.clock.now(),
            served: 0,
            taken: TurnUsage::default(),
            client_ended: false,
            shown: LoggedRequestLine::default(),
            offer: Vec::new(),
            called: LastCalled::default(),
            found: LastFound::default(),
            last: None,
            own: None,
            door,
            key,
            worker,
        }
    }

    /// A connection that moved here from another Worker. `last` is the endpoint that answered last; the wait for the
    /// next request began at `since`.
    pub(crate) fn resumed(self, served: u64, since: Instant, last: Option<Rc<Endpoint>>) -> Self {
        Connection {
            served,
            began: since,
            last,
            ..self
        }
    }

    /// A connection that already has an endpoint connection for its first request.
    pub(crate) fn with_own(self, endpoint: Rc<Endpoint>, upstream: Upstream) -> Self {
        Connection {
            own: Some(Box::new((endpoint, upstream))),
            ..self
        }
    }

    /// Serves the connection until it closes, leaves, or carries no more requests.
    pub(crate) async fn serve(mut self: Box<Self>) -> Outcome<Served> {
        poll_fn(|cx| {
            self.alarm.wakes(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            let head_bytes = match self.next_request().await {
                NextRequest::Closed => return Outcome::Over,
                NextRequest::Leave(intake) => return self.leave(intake),
                NextRequest::Request { head_bytes } => Ok(head_bytes),
                NextRequest::Refused(failure) => Err(failure),
            };
            let after = self.serve_request(head_bytes).await;
            self.alarm.clear();
            match after {
                After::KeepAlive => {
                    self.client.end_message();
                    self.client_ended = false;
                    self.give_way(head_bytes.unwrap_or(0)).await;
                    self.began = self.worker.clock.now();
                }
                After::Close => {
                    self.part().await;
                    return Outcome::Over;
                }
                After::Cut => return Outcome::Over,
                After::Linger => {
                    self.linger().await;
                    return Outcome::Over;
                }
                After::Upgraded(upgraded) => {
                    let flow = Box::new((*self).into_flow(*upgraded));
                    return Outcome::Next(Served::Upgraded(flow));
                }
                After::Tunnel(door) => {
                    return Outcome::Next(Served::Tunnel((*self).into_tunnel(door)));
                }
            }
        }
    }

    /// Yields to other tasks when requests that never had to wait have filled a turn: responses that Heddle makes
    /// itself come as fast as the client sends requests. A request that directly follows one that an endpoint has
    /// answered first waits until it is known whether the endpoint has sent more than its response.
    async fn give_way(&mut self, head_bytes: usize) {
        // The clock does not advance within a turn.
        let waited = self.began != self.worker.clock.now();
        if waited && !self.client.inbox.is_empty() {
            self.worker.looks.next().await;
        }
        if !self.taken.add(head_bytes, waited) {
            return;
        }
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Packs the connection, which is between two requests, for another Worker.
    fn leave(self: Box<Self>, intake: Intake) -> Outcome<Served> {
        debug_assert!(self.client.inbox.is_empty() && self.client.outbox.is_empty());
        let last = self.last.as_ref();
        let bound = self.worker.bound();
        let upstream = last.and_then(|endpoint| {
            let asking = self.asking(&bound.snapshot.guards, endpoint, true);
            let worker = &self.worker;
            (worker.upstreams).let_go(endpoint, &asking, &worker.clock, &self.door.owner)
        });
        let Ok(client) = self.client.pack() else {
            // Deregistering a socket fails only when the runtime has ended.
            return Outcome::Over;
        };
        let contents = Contents {
            door: self.door,
            client,
            peer: self.address,
            state: State::Http {
                served: self.served,
                since: self.began,
                upstream,
            },
        };
        Outcome::Leave(Box::new(contents), intake)
    }

    fn into_flow(self, upgraded: Upgraded) -> Flow {
        // No HTTP framing marks the end of the stream any more, so an unexpected end must be a reset.
        for side in [&self.client, &upgraded.upstream.side] {
            side.reset_on_close(true);
        }
        let flow = Flow::join(
            self.worker,
            self.door,
            (self.client, self.address),
            (upgraded.upstream, upgraded.lease),
            upgraded.origin,
        );
        flow.begun()
    }

    /// Serves one request, whose head was parsed (its length is given) or refused. Every path from here leads to
    /// [`finish`], which takes the exchange.
    ///
    /// [`finish`]: Self::finish
    async fn serve_request(&mut self, head_bytes: Result<usize, Failure>) -> After {
        self.worker.stats.requests_active.inc();
        let mut exchange = Exchange::begin(&self.worker, self.began);
        let outcome = match head_bytes {
            Ok(head_bytes) => {
                exchange.request.head_bytes = head_bytes;
                match self.decide(&mut exchange).await {
                    Ok(()) => self.forward(&mut exchange).await,
                    Err(reply) => Err(reply),
                }
            }
            Err(failure) => Err(failure.into()),
        };
        let (after, failure) = match outcome {
            Ok(after) => (after, None),
            Err(Reply::Tunnel) => (Box::pin(self.begin_tunnel(&mut exchange)).await, None),
            Err(Reply::Redirect { status }) => (self.redirect(&mut exchange, status).await, None),
            Err(Reply::Failure(failure)) => {
                (self.fail(&mut exchange, failure).await, Some(failure))
            }
        };
        self.finish(exchange, failure);
        after
    }
}

/// An address in text form. IPv6 addresses have no brackets (unlike in RFC 7239), since `X-Forwarded-For` has none.
fn shown(address: IpAddr) -> Box<str> {
    address.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_for_nothing_fill_a_turn() {
        for (head_bytes, turn) in [(1, 16), (1024, 16), (4096, 4), (100_000, 1)] {
            let mut taken = TurnUsage::default();
            for _ in 0..2 {
                let full = (1..).find(|_| taken.add(head_bytes, false));
                assert_eq!(full, Some(turn), "heads of {head_bytes} bytes");
            }
        }
    }

    #[test]
    fn a_wait_is_a_turn_for_others() {
        let mut taken = TurnUsage::default();
        assert!((0..1000).all(|i| !taken.add(1024, i % 15 == 0)));
    }
}
