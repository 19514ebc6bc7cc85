//! Connections from other nodes, and from stock proxies such as Envoys: verifies the caller, and reads which endpoint it
//! calls.
//!
//! ```text
//!   accepted ─▶ handshake ─▶ preface ─▶ a connection like any other, by a door of its own
//!        │         │            └─ malformed, late ──▶ closed
//!        │         └─ refused, late ─────────────────▶ closed, counted by its reason
//!        └─ its SYN was of lower effort: accepted for a Worker for offline callers, if there is one
//! ```
//!
//! A stock proxy sends no preface: it has named the Service's port in the handshake, and this node chooses the endpoint.
//! It gets no status either.
//!
//! The preface is only a request. This node decides whether the endpoint is here and has the requested identity, which
//! protocol its port speaks, and what its policies allow.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use heddle_model::{SpiffeId, StockDestination};
use heddle_transport::{Identities, Protocol};
use heddle_wire::link::Hello;
use heddle_wire::preface::{Kind, Preface, Status};
use tokio::net::TcpStream;

use crate::door::Door;
use crate::entry::{Forwarded, Inbound};
use crate::env::{Alarm, Outcome};
use crate::failure::Reason;
use crate::handshake::{Handshake, HandshakeError};
use crate::http2::InboundHttp2;
use crate::io::WireSide;
use crate::link::InboundLink;
use crate::permits::{Share, SharePermit};
use crate::side::Side;
use crate::worker::Worker;

/// Time for a refused peer to receive the reason.
const FAREWELL: Duration = Duration::from_millis(500);

/// A connection from another node before its handshake.
pub(crate) struct Greeting {
    worker: Rc<Worker>,
    door: Arc<Door>,
    stream: TcpStream,
    peer: SocketAddr,
    alarm: Alarm,
}

/// Why the connection failed before a request.
enum GreetingError {
    Handshake(HandshakeError),
    Preface(String),
    Late,
    Gone,
    /// Evicted to make room for a newer connection that has not finished its handshake either.
    Full,
}

impl Greeting {
    pub(crate) fn new(
        worker: Rc<Worker>,
        door: Arc<Door>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Self {
        let alarm = worker.alarms.alarm();
        Greeting {
            worker,
            door,
            stream,
            peer,
            alarm,
        }
    }

    /// Makes the handshake, reads the first bytes, and returns the next stage.
    pub(crate) async fn greet(self: Box<Self>) -> Outcome<Met> {
        let Greeting {
            worker,
            door,
            stream,
            peer,
            alarm,
        } = *self;
        let Some(identities) = worker.identities() else {
            tracing::debug!(%peer, "another node connects before this node has an identity");
            return Outcome::Over;
        };
        let by = worker.after(worker.settings.timeouts.request_head);
        poll_fn(|cx| {
            alarm.wakes(cx.waker());
            alarm.set(by);
            Poll::Ready(())
        })
        .await;
        let greeted = {
            let place = worker.unproven.place(&alarm);
            let greeted = greeted(&worker, &identities, &alarm, stream).await;
            match greeted {
                Err(GreetingError::Late) if place.is_evicted() => Err(GreetingError::Full),
                greeted => greeted,
            }
        };
        match greeted {
            Ok((side, Greeted::Link(hello))) => Outcome::Next(Met::Link(Box::new(InboundLink {
                links: Rc::clone(&worker.links),
                door,
                side,
                hello,
                peer,
                alarm,
            }))),
            Ok((side, Greeted::Http2)) => Outcome::Next(Met::Http2(Box::new(InboundHttp2 {
                connections: Rc::clone(&worker.http2),
                side,
                peer,
                alarm,
            }))),
            Ok((side, Greeted::Connection(inbound))) => {
                drop(alarm);
                let share_permit = match share_permit(&worker, &inbound) {
                    Ok(share_permit) => share_permit,
                    Err(()) => return over_share(&worker, &inbound, side.into()),
                };
                let door = Door::inbound_of(inbound, Some(share_permit));
                Outcome::Next(Met::Connection {
                    worker,
                    door,
                    side: Box::new(side.into()),
                    peer,
                })
            }
            Ok((side, Greeted::Gateway(forwarded))) => {
                drop(alarm);
                let Some(share_permits) = gateway_permits(&worker, &forwarded) else {
                    worker.stats.connections_refused.inc();
                    worker.stats.connections_over_share.inc();
                    return Outcome::Over;
                };
                Outcome::Next(Met::Connection {
                    door: Door::forwarded_of(forwarded, share_permits),
                    worker,
                    side: Box::new(side.into()),
                    peer,
                })
            }
            Err(failed) => {
                say_refused(&worker, peer, &failed);
                Outcome::Over
            }
        }
    }
}

/// The kind of a connection from another node, after its handshake.
pub(crate) enum Met {
    /// A single connection, with its own door.
    Connection {
        worker: Rc<Worker>,
        door: Arc<Door>,
        side: Box<Side>,
        peer: SocketAddr,
    },
    Link(Box<InboundLink>),
    Http2(Box<InboundHttp2>),
}

/// What a peer asks for after its handshake.
enum Greeted {
    Connection(Inbound),
    /// Each request names its own destination.
    Gateway(Forwarded),
    Link(Hello),
    /// Each request names its own endpoint.
    Http2,
}

async fn greeted(
    worker: &Rc<Worker>,
    identities: &Identities,
    alarm: &Alarm,
    stream: TcpStream,
) -> Result<(WireSide, Greeted), GreetingError> {
    let session = identities.accept().map_err(|error| {
        let refusal = heddle_transport::Refusal::Tls(error.to_string());
        GreetingError::Handshake(HandshakeError::Refused(refusal))
    })?;
    let mut handshake = Handshake::accept(stream, session);
    worker.stats.handshakes.inc();
    let shaken = poll_fn(|cx| match alarm.rang() {
        true => Poll::Ready(Err(GreetingError::Late)),
        false => handshake
            .poll(cx, &worker.pace)
            .map_err(GreetingError::Handshake),
    });
    let shaken = shaken.await;
    if let Err(GreetingError::Handshake(HandshakeError::Refused(_))) = &shaken {
        alarm.set(worker.after(FAREWELL));
        poll_fn(|cx| match alarm.rang() {
            true => Poll::Ready(()),
            false => handshake.poll_farewell(cx),
        })
        .await;
    }
    shaken?;
    let mut side = handshake
        .finish(worker.clock.now(), &worker.pool, identities)
        .map_err(GreetingError::Handshake)?;
    let refused = |refusal| GreetingError::Handshake(HandshakeError::Refused(refusal));
    // Checked against the current trust and revocations, which may have changed since the handshake began.
    worker.check(&side).map_err(refused)?;
    // If the peer's identity is revoked before its preface is complete, the alarm rings.
    alarm.rests_on(&side);
    let greeted = poll_fn(|cx| poll_first_words(cx, worker, alarm, &mut side)).await;
    worker.check(&side).map_err(refused)?;
    Ok((side, greeted?))
}

fn poll_first_words(
    cx: &mut Context<'_>,
    worker: &Worker,
    alarm: &Alarm,
    side: &mut WireSide,
) -> Poll<Result<Greeted, GreetingError>> {
    let mut linear = Vec::new();
    if let Some(asked) = of_stock(worker, side) {
        return Poll::Ready(asked);
    }
    if side.protocol() == Some(Protocol::Http2) {
        return Poll::Ready(Ok(Greeted::Http2));
    }
    loop {
        if alarm.rang() {
            return Poll::Ready(Err(GreetingError::Late));
        }
        let bytes = side.inbox.contiguous(side.inbox.len(), &mut linear);
        if side.protocol() == Some(Protocol::Link) {
            // The hello is the first frame, and stays in the inbox for the link.
            let hello =
                Hello::parse(bytes).map_err(|error| GreetingError::Preface(error.to_string()))?;
            if let Some((hello, _)) = hello {
                return Poll::Ready(Ok(Greeted::Link(hello)));
            }
        } else {
            let parsed =
                Preface::parse(bytes).map_err(|error| GreetingError::Preface(error.to_string()))?;
            if let Some((preface, length)) = parsed {
                let inbound = understood(&preface, side);
                side.inbox.consume(length);
                return Poll::Ready(inbound.map(Greeted::Connection));
            }
        }
        let pool = &worker.pool;
        match ready!(side.poll_fill(cx, pool, pool.block_size())) {
            Ok(n) if n > 0 => {}
            Ok(_) => return Poll::Ready(Err(GreetingError::Gone)),
            Err(error) => {
                return Poll::Ready(Err(GreetingError::Handshake(HandshakeError::of(error))));
            }
        }
    }
}

/// Refuses a connection because the called workload has used up its share. A connection for requests is reset: its node
/// treats that like a lost endpoint.
fn over_share(worker: &Worker, inbound: &Inbound, mut side: Side) -> Outcome<Met> {
    worker.stats.connections_refused.inc();
    worker.stats.connections_over_share.inc();
    match inbound.kind {
        Kind::Bytes => inbound.turn_away(worker, &mut side, Reason::UpstreamOverflow),
        Kind::Http => side.reset_on_close(true),
    }
    drop(side);
    Outcome::Over
}

/// What a stock proxy calls, if the peer is one.
fn of_stock(worker: &Worker, side: &WireSide) -> Option<Result<Greeted, GreetingError>> {
    let (asked, caller) = (side.asked()?, &side.proof()?.peer.id);
    let kind = match side.protocol()? {
        Protocol::StockHttp => Kind::Http,
        Protocol::StockBytes => Kind::Bytes,
        Protocol::Link | Protocol::Http1 | Protocol::Http2 => return None,
    };
    let snapshot = worker.snapshot();
    Some(match asked {
        StockDestination::Port(asked) => {
            let port = snapshot.find(&asked.service, asked.port);
            let endpoint = port.and_then(|port| snapshot.port(port).next_hosted(&asked.account));
            let inbound = Inbound::of_stock(asked, kind, caller, endpoint);
            Ok(Greeted::Connection(inbound))
        }
        StockDestination::Gateway(account) => {
            let gateway = snapshot.guards.claims().gateway(account, caller);
            let gateway = gateway.filter(|_| kind == Kind::Http);
            let gateway = gateway.ok_or_else(|| {
                GreetingError::Preface(format!("this node is no gateway {account} for {caller}"))
            });
            gateway.map(|gateway| {
                Greeted::Gateway(Forwarded {
                    gateway: gateway.clone(),
                    account: account.clone(),
                    caller: caller.clone(),
                    to: None,
                })
            })
        }
    })
}

/// Takes permits of the share of a gateway's workload, and of its caller's; `None` when one of these is used up.
fn gateway_permits(worker: &Worker, forwarded: &Forwarded) -> Option<[SharePermit; 2]> {
    let snapshot = worker.snapshot();
    let of_gateway = snapshot.called.workloads.get(&forwarded.gateway)?;
    let of_caller = of_gateway.of_lazy(forwarded.caller.service_account()?);
    let permit = |share: &Arc<Share>| permit_of(worker, share);
    Some([permit(&of_caller)?, permit(of_gateway)?])
}

/// Takes a permit of a share. That there is none is logged.
fn permit_of(worker: &Worker, share: &Arc<Share>) -> Option<SharePermit> {
    let share_permit = share.share_permit();
    if share_permit.is_none() {
        share.say_spent(worker.clock.now());
    }
    share_permit
}

fn understood(preface: &Preface<'_>, side: &WireSide) -> Result<Inbound, GreetingError> {
    let called = side.called().and_then(SpiffeId::service_account);
    let (Some(called), Some(caller)) = (called, side.proof()) else {
        return Err(GreetingError::Preface(
            "the identity of the caller or of the called workload is missing".to_owned(),
        ));
    };
    Inbound::of(preface, called, &caller.peer.id).map_err(GreetingError::Preface)
}

/// Takes a permit of the called workload's share. Connections that call nothing on this node have a common share: they
/// are told so, and may stay open.
///
/// # Errors
/// When that share is used up, or there is no configuration yet.
fn share_permit(worker: &Worker, inbound: &Inbound) -> Result<SharePermit, ()> {
    let snapshot = worker.snapshot();
    let (service, port, endpoint) = (&inbound.service, inbound.port, inbound.endpoint);
    let share = snapshot.called(service, port, endpoint).ok_or(())?;
    permit_of(worker, share).ok_or(())
}

fn say_refused(worker: &Worker, peer: SocketAddr, failed: &GreetingError) {
    let why: &dyn std::fmt::Display = match failed {
        GreetingError::Handshake(HandshakeError::Refused(refusal)) => {
            worker.stats.handshakes_refused.inc(refusal.index());
            let now = worker.clock.now();
            if worker.refused.borrow_mut().may_name(refusal.index(), now) {
                let reason = refusal.code();
                tracing::warn!(%peer, reason, "a connection from another node is refused: {refusal}");
            }
            return;
        }
        GreetingError::Handshake(broken) => broken,
        GreetingError::Preface(why) => why,
        GreetingError::Full => {
            let now = worker.clock.now();
            if worker.refused.borrow_mut().may_name(usize::MAX, now) {
                let most = worker.settings.bounds.handshakes;
                tracing::warn!(
                    most,
                    "connections from other nodes are closed: the limit of \
                    unfinished handshakes is reached (proxy.bounds.handshakes)"
                );
            }
            &"too many handshakes are unfinished"
        }
        GreetingError::Late => &"it took too long",
        GreetingError::Gone => &"it closed the connection",
    };
    worker.stats.handshakes_failed.inc();
    tracing::debug!(%peer, "a connection from another node failed: {why}");
}

impl Inbound {
    /// Puts the answer to an opaque connection into the outbox. Connections for requests get no answer.
    pub(crate) fn answer(&self, worker: &Worker, client: &mut Side, status: Status) {
        if self.kind == Kind::Bytes && !self.is_stock {
            let said = client
                .outbox
                .extend_from_slice(&worker.pool, &[status.byte()]);
            // Without a buffer block, the connection is reset without an answer.
            if said.is_err() {
                client.reset_on_close(true);
            }
        }
    }

    /// Sends the reason of a refusal as far as the socket accepts it without waiting, then half-closes. A stock proxy
    /// would take that for the end of the endpoint's bytes: its connection is reset.
    pub(crate) fn turn_away(&self, worker: &Worker, client: &mut Side, reason: Reason) {
        if self.is_stock {
            return client.reset_on_close(true);
        }
        self.answer(worker, client, reason.status());
        let cx = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(())) = client.poll_flush(cx) {
            let _later = client.poll_shutdown(cx);
        }
    }
}
