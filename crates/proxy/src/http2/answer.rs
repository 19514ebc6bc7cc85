//! The called end of a connection.
//!
//! ```text
//!   handshake ─▶ the client's first words ─▶ drive ─ the client goes ──────────────────────▶ over
//!                                              ├── this Worker ends, idle ─▶ GOAWAY ─▶ ──────┤
//!                                              ├── idle, others need its place: the same ────┤
//!                                              └── cut, not believed any more ─▶ streams fail┘
//! ```
//!
//! Each request names its endpoint in the field [`head::DESTINATION`]. Whether the endpoint is on this node and may be
//! called is checked as for a separate connection.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use heddle_model::{ServiceAccountName, SpiffeId};
use heddle_wire::preface::{Kind, Preface};
use http::StatusCode;
use http::header::HeaderValue;

use super::connections::{ArrivedExchange, Connections, unhex};
use super::head::DESTINATION;
use super::slot::{ExchangeSlot, ExchangeSlots, PendingRequest};
use super::wire::Http2Io;
use super::{
    CONNECTION_WINDOW, Http2Exchange, LOOK_MS, MAX_HEADER_LIST, MAX_STREAMS, SEND_BUFFER,
    SMALL_FRAMES, STREAM_WINDOW, Shared,
};
use crate::clock::{Clock, Millis};
use crate::door::Door;
use crate::entry::Inbound;
use crate::env::{Alarm, Env};
use crate::failure::StreamFailure;
use crate::failure::{Failure, Reason};
use crate::io::{Proof, WireSide};
use crate::link::{Evictable, LinkParties};
use crate::peers::PeerStatus;
use crate::permits::Permit;
use crate::route::Spoken;

/// Time for Collaborators to tell the caller that its identity was revoked, in milliseconds.
const FAREWELL_MS: Millis = 500;

/// An HTTP/2 connection from another node that has proven its identity.
pub(crate) struct InboundHttp2 {
    pub(crate) connections: Rc<Connections>,
    pub(crate) side: WireSide,
    pub(crate) peer: SocketAddr,
    pub(crate) alarm: Alarm,
}

/// State of a called connection, shared with the Collaborators that answer its requests.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) shared: Shared,
    pub(super) slots: ExchangeSlots,
    /// The identity that the caller has proven; a node uses its own for callers that it does not know.
    caller: SpiffeId,
    /// The service account that the caller asked for.
    called: ServiceAccountName,
    peer: SocketAddr,
    /// The proof on which the connection rests.
    proof: Arc<Proof>,
    /// Set when the proof is not valid any more: each Collaborator then tells the caller.
    revoked: Cell<Option<Reason>>,
    /// Whether the deadline [`FAREWELL_MS`] is set.
    is_ending: Cell<bool>,
    /// Deadline after the connection was evicted, whatever the other end does; `Millis::MAX` otherwise.
    parts_by: Cell<Millis>,
    driver: RefCell<Option<Waker>>,
}

type ServerConnection = Connection<Http2Io, Bytes>;

impl InboundHttp2 {
    /// Drives the connection until it ends.
    pub(crate) async fn run(self) {
        let InboundHttp2 {
            connections,
            side,
            peer,
            alarm,
        } = self;
        let env = &connections.env;
        let called = side.called().and_then(SpiffeId::service_account);
        let (Some(proof), Some(called)) = (side.proof(), called) else {
            return;
        };
        let parties = LinkParties {
            caller: proof.peer.id.clone(),
            called: called.clone(),
            address: peer.ip(),
        };
        let answering = Rc::new(Answering {
            shared: Shared::new(env.clock.now_ms()),
            slots: ExchangeSlots::default(),
            caller: proof.peer.id.clone(),
            called: called.clone(),
            peer,
            proof: Arc::clone(proof),
            revoked: Cell::new(None),
            is_ending: Cell::new(false),
            parts_by: Cell::new(Millis::MAX),
            driver: RefCell::default(),
        });
        let connection = Rc::downgrade(&answering);
        let Some(_place) = connections.places.place(parties, connection) else {
            return;
        };
        alarm.clear();
        alarm.rests_on(&side);
        let wire = Http2Io::default();
        wire.plug(side);
        alarm.set(env.after(env.settings.timeouts.request_head));
        let Some(mut connection) = answering.begin(&wire, &alarm).await else {
            return;
        };
        let reason =
            poll_fn(|cx| answering.poll_drive(cx, &connections, &mut connection, &wire, &alarm));
        let failed = StreamFailure {
            reason: reason.await,
            was_sent: true,
        };
        answering.shared.closing.set(true);
        answering.shared.failure.set(Some(failed));
        answering.slots.dismiss();
    }
}

impl Answering {
    pub(super) fn proof(&self) -> &Arc<Proof> {
        &self.proof
    }

    /// Waits for the client's HTTP/2 preface, until the alarm rings.
    async fn begin(&self, wire: &Http2Io, alarm: &Alarm) -> Option<ServerConnection> {
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_STREAMS as usize)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEADER_LIST)
            .data_frame_budget(SMALL_FRAMES);
        let handshake: Handshake<Http2Io, Bytes> = builder.handshake(wire.clone());
        // Boxed: it would take room in the driver of every idle connection.
        let mut handshake = Box::pin(handshake);
        poll_fn(|cx| {
            // A task's waker never changes.
            self.driver
                .borrow_mut()
                .get_or_insert_with(|| cx.waker().clone());
            if alarm.rang() {
                return Poll::Ready(None);
            }
            if self.parts() {
                // A caller that has already sent a request is told that it was not processed.
                alarm.set(self.parts_by.get());
            }
            wire.begin_turn();
            let begun = handshake.as_mut().poll(cx);
            match wire.poll_sent(cx) {
                Poll::Ready(Err(_)) => Poll::Ready(None),
                _ => begun.map(Result::ok),
            }
        })
        .await
    }

    /// Drives the connection. Ready with the reason why the open requests fail.
    fn poll_drive(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        connections: &Connections,
        connection: &mut ServerConnection,
        wire: &Http2Io,
        alarm: &Alarm,
    ) -> Poll<Reason> {
        let env = &connections.env;
        if alarm.rang() {
            if let Some(revoked) = self.revoked.get() {
                return Poll::Ready(revoked);
            }
            self.revoked.set(alarm.take_revoked());
            if env.is_cutting() {
                return Poll::Ready(Reason::Draining);
            }
        }
        if env.clock.now_ms() >= self.parts_by.get() {
            return Poll::Ready(Reason::LinkLost);
        }
        if self.parts() {
            self.close(connection);
        }
        wire.begin_turn();
        let over = loop {
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(arrived))) => self.take(connections, arrived),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, peer = %self.peer, "a connection between nodes broke");
                    break true;
                }
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        match wire.poll_sent(cx) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, peer = %self.peer, "a connection between nodes was cut");
                return Poll::Ready(Reason::LinkLost);
            }
            _ if over => return Poll::Ready(Reason::LinkLost),
            _ => {}
        }
        self.rest(env, connection, wire);
        match self.revoked.get() {
            // Until the deadline, callers that wait for a response are told the reason.
            Some(_) if self.shared.open.get() > 0 => {
                if !self.is_ending.replace(true) {
                    alarm.set(env.clock.now_ms() + FAREWELL_MS);
                }
            }
            Some(revoked) => return Poll::Ready(revoked),
            None => {
                let look = env.clock.now_ms() + LOOK_MS;
                alarm.set(look.min(self.parts_by.get()));
            }
        }
        Poll::Pending
    }

    /// Closes the connection if it is idle for too long, or if no new request should begin on it.
    fn rest(&self, env: &Env, connection: &mut ServerConnection, wire: &Http2Io) {
        let now = env.clock.now_ms();
        let idle = self.shared.idle(now);
        let leaves = env.is_leaving();
        if !self.slots.is_empty() && (idle >= LOOK_MS || leaves) {
            self.slots.dismiss();
        }
        let keep = env.settings.timeouts.client_idle;
        let is_old = !keep.is_zero() && u128::from(idle) >= keep.as_millis();
        if (leaves || is_old || self.revoked.get().is_some() || wire.is_ending(env.clock.now()))
            && self.close(connection)
        {
            // The GOAWAY is sent in the next turn.
            env.gate.current().inspect(|&task| env.gate.wake(task));
        }
    }

    /// Accepts no new requests, and sends GOAWAY. False if that was done before.
    fn close(&self, connection: &mut ServerConnection) -> bool {
        let first = !self.shared.closing.replace(true);
        if first {
            self.slots.dismiss();
            connection.graceful_shutdown();
        }
        first
    }

    /// Gives a request to a Collaborator that waits for its destination, or to a new one.
    fn take(self: &Rc<Self>, connections: &Connections, (request, mut respond): PendingRequest) {
        let mut named = request.headers().get_all(DESTINATION).iter();
        let (Some(destination), None) = (named.next().cloned(), named.next()) else {
            return refuse(&mut respond, Reason::EndpointGone);
        };
        if let Some(revoked) = self.revoked.get() {
            return refuse(&mut respond, revoked);
        }
        if self.parts() {
            // The request was not processed, so the caller may send it elsewhere.
            return respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
        self.shared.opened();
        let Some(arrived) = self.slots.give(&destination, (request, respond)) else {
            return;
        };
        match self.admit(&connections.env, &destination) {
            Ok((door, permit)) => {
                let slot = ExchangeSlot::of(destination, arrived);
                let exchange = Http2Exchange::called(self, slot);
                connections.arrives(ArrivedExchange {
                    door,
                    permit,
                    exchange,
                    peer: self.peer,
                });
            }
            Err(reason) => {
                let (_, mut respond) = arrived;
                refuse(&mut respond, reason);
                self.shared.ended();
            }
        }
    }

    /// Parses a destination, and takes a permit for a new Collaborator.
    ///
    /// # Errors
    /// Why the requests are refused.
    fn admit(&self, env: &Env, destination: &HeaderValue) -> Result<(Arc<Door>, Permit), Reason> {
        let bytes = unhex(destination.as_bytes()).ok_or(Reason::EndpointGone)?;
        let parsed = Preface::parse(&bytes).ok().flatten();
        let parsed =
            parsed.filter(|(preface, length)| preface.kind == Kind::Http && *length == bytes.len());
        let (preface, _) = parsed.ok_or(Reason::EndpointGone)?;
        let inbound = Inbound::of(&preface, &self.called, &self.caller);
        let inbound = inbound.map_err(|_| Reason::EndpointGone)?;
        let permit = env.permit(&inbound)?;
        let door = Door::inbound_of(inbound, None);
        match env.snapshot().spoken(&door) {
            Spoken::Http => Ok((door, permit)),
            // By this node's configuration, the port does not carry declared HTTP.
            Spoken::Opaque | Spoken::Unknown => Err(Reason::CarriesBytes),
        }
    }
}

impl Evictable for Answering {
    fn idle(&self) -> Option<(bool, Millis)> {
        let Shared {
            open, idle_since, ..
        } = &self.shared;
        (open.get() == 0).then_some((true, idle_since.get()))
    }

    fn part(&self, by: Millis) {
        self.parts_by.set(by);
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    fn parts(&self) -> bool {
        self.parts_by.get() != Millis::MAX
    }

    fn show(&self, _clock: &Clock, shown: &mut PeerStatus) {
        self.shared.show(shown);
    }
}

/// Answers a request without a Collaborator.
fn refuse(respond: &mut SendResponse<Bytes>, reason: Reason) {
    let failure = Failure::from(reason);
    let mut answer = http::Response::new(());
    *answer.status_mut() = StatusCode::from_u16(failure.status()).unwrap_or_default();
    let code = HeaderValue::from_static(failure.code());
    answer.headers_mut().insert("heddle-reason", code);
    // Fails only if the caller is gone.
    let _gone = respond.send_response(answer, true);
}
