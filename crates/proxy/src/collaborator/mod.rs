//! The Collaborator: the coroutine that carries a client connection's requests, one at a time.
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
//! | arrive | a head is whole, refused or late | [`arrive`] |
//! | steps | a backend is found or the answer is ours | [`steps`], [`wait`] |
//! | forward | an endpoint has room and the request is sent | [`room`], [`forward`] |
//! | answer | the response's head is there and is passed on | [`answer`] |
//! | pump | both bodies are through | [`crate::pump`] |
//! | finish | counted and logged | [`finish`] |
//!
//! Between two awaits a Collaborator may use the Worker's [`Scratch`]; across an await it keeps
//! only what is in [`Connection`] and [`Exchange`]. An idle connection holds no buffer.

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

/// Bytes of heads after which others get their turn, and as how many a short head counts: 16
/// requests, or fewer long ones.
const TURN_BYTES: usize = 16 * 1024;
const REQUEST_BYTES: usize = 1024;

/// How much of one turn the requests of a connection have taken.
#[derive(Debug, Default)]
struct TurnUsage {
    bytes: usize,
}

impl TurnUsage {
    /// A request with a head of so many bytes was served, after a wait or at once. Returns whether
    /// it is time to let others go on.
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
    /// The account that it works on.
    key: WorkKey,
    client: Side,
    address: SocketAddr,
    /// The client's address, without the port, as fields and logs show it.
    peer: Box<str>,
    /// Whether the client's own forwarding fields are believed.
    trusted: bool,
    alarm: Alarm,
    /// When the first byte of the request under way came, or the wait for it began.
    began: Instant,
    /// Requests answered so far.
    served: u64,
    taken: TurnUsage,
    /// The client has said that it will send no more.
    client_ended: bool,
    shown: LoggedRequestLine,
    /// The protocols that the client offers to speak after the answer under way, as they are offered to the
    /// endpoint; empty for nearly every request.
    offer: Vec<u8>,
    called: LastCalled,
    found: LastFound,
    /// The endpoint that answered last.
    last: Option<Rc<Endpoint>>,
    /// A connection to an endpoint that speaks with this client's address, for its first request: it was made
    /// before it was known that there would be one, and is good for no other client.
    own: Option<Box<(Rc<Endpoint>, Upstream)>>,
}

/// What the access log shows of a request's first line, kept because the head may be gone by the
/// time the line is written. Reused; empty without an access log.
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

/// What becomes of a client connection after a request.
enum After {
    /// The next request may come.
    KeepAlive,
    /// Everything was said: close.
    Close,
    /// Not everything was said, and the client is not to take it for everything.
    Cut,
    /// The client may still be sending; closing at once would destroy the answer on its way.
    Linger,
    /// It was upgraded, and speaks something else with the endpoint from now on.
    Upgraded(Box<Upgraded>),
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

    /// A connection that has had requests answered elsewhere, the last of them by `last`, and has
    /// waited for another since then.
    pub(crate) fn resumed(self, served: u64, since: Instant, last: Option<Rc<Endpoint>>) -> Self {
        Connection {
            served,
            began: since,
            last,
            ..self
        }
    }

    /// A connection for whose first request there is one to an endpoint.
    pub(crate) fn with_own(self, endpoint: Rc<Endpoint>, upstream: Upstream) -> Self {
        Connection {
            own: Some(Box::new((endpoint, upstream))),
            ..self
        }
    }

    /// Serves the connection until it closes, leaves, or is upgraded.
    pub(crate) async fn serve(mut self: Box<Self>) -> Outcome<Box<Flow>> {
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
                    return Outcome::Next(Box::new((*self).into_flow(*upgraded)));
                }
            }
        }
    }

    /// Lets others have their turn when requests that wait for nothing have filled one: those that
    /// Heddle answers itself come as fast as the client sends them. A request right behind one that an endpoint has
    /// answered waits until it is known whether that has said more than its answer.
    async fn give_way(&mut self, head_bytes: usize) {
        // The clock stands still within a turn.
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

    /// Takes the connection, which is between two messages, off this Worker.
    fn leave(self: Box<Self>, intake: Intake) -> Outcome<Box<Flow>> {
        debug_assert!(self.client.inbox.is_empty() && self.client.outbox.is_empty());
        let last = self.last.as_ref();
        let bound = self.worker.bound();
        let upstream = last.and_then(|endpoint| {
            let asking = self.asking(&bound.snapshot.guards, endpoint, true);
            let worker = &self.worker;
            (worker.upstreams).let_go(endpoint, &asking, &worker.clock, &self.door.owner)
        });
        let Ok(client) = self.client.pack() else {
            // Only a runtime that has ended does not let go of a socket.
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
        // No message says any more where it ends.
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

    /// Serves one request, whose head has so many bytes or was refused: from here to [`finish`],
    /// which takes the exchange, there is one way.
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
            Err(Reply::Redirect { status }) => (self.redirect(&mut exchange, status).await, None),
            Err(Reply::Failure(failure)) => {
                (self.fail(&mut exchange, failure).await, Some(failure))
            }
        };
        self.finish(exchange, failure);
        after
    }
}

/// An address in the form of RFC 7239 without brackets, which `X-Forwarded-For` has none of.
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
