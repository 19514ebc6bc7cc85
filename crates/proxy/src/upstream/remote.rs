//! A connection through the proxy of another node: mutual TLS, and a word about whom it is for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use heddle_model::ServiceAccountName;
use heddle_transport::{NoIdentity, Protocol};
use heddle_wire::preface::{Kind, Preface, Status};
use tokio::net::TcpStream;

use super::connect::{is_ours, open_from_here};
use super::{Call, Endpoint};
use crate::door::Door;
use crate::failure::Reason;
use crate::handshake::{Broken, Handshake};
use crate::io::Side;
use crate::link::reason_of;
use crate::place::Via;
use crate::worker::{Alarm, Worker};

/// Makes a connection of a socket that is connected to the other node, while `alarm` does not ring. A
/// connection for requests has its preface in the outbox, so that it goes along with the first of them.
///
/// # Errors
/// Why there is none.
pub(super) async fn join(
    worker: &Worker,
    alarm: &Alarm,
    stream: TcpStream,
    (endpoint, via): (&Endpoint, &Via),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let caller = {
        let bound = worker.bound();
        bound.snapshot.guards.account(call.door).cloned()
    };
    let shaking = Shaking {
        worker,
        alarm,
        caller: caller.as_ref(),
        called: &via.account,
        node: via.node,
    };
    let mut side = match shaking.hands(stream, Protocol::Http1).await {
        Ok(side) => side,
        Err(Unmet::Late) => return Err(Reason::ConnectTimeout),
        Err(Unmet::NoIdentity(error)) => return Err(missing(worker, &call.door.source, &error)),
        Err(Unmet::Broken(broken)) => return Err(refused(worker, endpoint, call.door, &broken)),
    };
    let mut preface = Vec::new();
    let written = Preface {
        kind: call.kind,
        endpoint: endpoint.address,
        namespace: via.service.namespace.as_str(),
        service: via.service.name.as_str(),
        port: via.port,
    }
    .write_to(&mut preface);
    // Names of the mesh are never too long.
    written.map_err(|_| Reason::ServiceGone)?;
    let kept = side.outbox.extend_from_slice(&worker.pool, &preface);
    kept.map_err(|_| Reason::Memory)?;
    alarm.rests_on(&side);
    if call.kind == Kind::Bytes {
        hear(worker, alarm, (endpoint, call.door), &mut side).await?;
    }
    // Whoever was shut out meanwhile is sent nothing.
    let held = worker.check(&side);
    held.map_err(|refusal| refused(worker, endpoint, call.door, &Broken::Refused(refusal)))?;
    Ok(side)
}

/// Makes a stream of bytes on a link to the other node, which says whether the endpoint is connected.
///
/// # Errors
/// Why there is none.
pub(super) async fn join_stream(
    worker: &Rc<Worker>,
    alarm: &Alarm,
    (endpoint, via): (&Endpoint, &Arc<Via>),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let bound = worker.bound();
    let caller = bound.snapshot.guards.account(call.door);
    let links = &worker.links;
    let mut side = links.stream(worker, (endpoint, via), caller, call.kind, 0)?;
    hear(worker, alarm, (endpoint, call.door), &mut side).await?;
    Ok(side)
}

/// Waits until the other node has said whether it has connected the endpoint. A stream is opened by that, when there
/// is room on its link.
///
/// # Errors
/// Why it has not.
async fn hear(
    worker: &Worker,
    alarm: &Alarm,
    (endpoint, door): (&Endpoint, &Door),
    side: &mut Side,
) -> Result<(), Reason> {
    let status = poll_fn(|cx| match (alarm.rang(), side.waits_for_link()) {
        (false, _) => poll_status(cx, worker, (endpoint, door), side),
        // Nobody was asked: it says nothing about the endpoint.
        (true, true) => Poll::Ready(Err(worker.rang_for(alarm, Reason::LinkFull))),
        (true, false) => Poll::Ready(Err(worker.rang_for(alarm, Reason::ConnectTimeout))),
    });
    match Reason::of_status(status.await?) {
        Some(reason) => Err(reason),
        None => {
            worker.upstreams.reached(endpoint);
            Ok(())
        }
    }
}

/// Says whom the connection is for, and waits for the answer.
fn poll_status(
    cx: &mut Context<'_>,
    worker: &Worker,
    (endpoint, door): (&Endpoint, &Door),
    side: &mut Side,
) -> Poll<Result<Status, Reason>> {
    let fault = |error: io::Error| match reason_of(&error) {
        Some(reason) => reason,
        None => refused(worker, endpoint, door, &Broken::of(error)),
    };
    ready!(side.poll_flush(cx)).map_err(fault)?;
    let pool = &worker.pool;
    let n = ready!(side.poll_fill(cx, pool, pool.block_size())).map_err(fault)?;
    let said = side.inbox.front().first().filter(|_| n > 0);
    let status = said.map(|&byte| Status::from_byte(byte));
    side.inbox.consume(1);
    Poll::Ready(match status {
        Some(Ok(status)) => Ok(status),
        Some(Err(_)) | None => Err(Reason::PeerRefused),
    })
}

/// A handshake to be made with another node.
pub(crate) struct Shaking<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) alarm: &'a Alarm,
    /// In whose name.
    pub(crate) caller: Option<&'a ServiceAccountName>,
    /// Whom it must prove to host.
    pub(crate) called: &'a ServiceAccountName,
    /// Where it takes connections.
    pub(crate) node: SocketAddr,
}

/// Why there was no handshake.
enum Unmet {
    Late,
    NoIdentity(NoIdentity),
    Broken(Broken),
}

impl Shaking<'_> {
    /// Makes the handshake over a socket that is connected, while the alarm does not ring.
    async fn hands(&self, stream: TcpStream, protocol: Protocol) -> Result<Side, Unmet> {
        let Shaking { worker, alarm, .. } = *self;
        let missing = Unmet::NoIdentity(NoIdentity::Missing);
        let identities = worker.identities().ok_or(missing)?;
        let session = identities.connect(self.caller, self.called, protocol);
        let session = session.map_err(Unmet::NoIdentity)?;
        let mut handshake = Handshake::connect(stream, session, self.caller.cloned());
        worker.stats.handshakes.inc();
        let shaken = poll_fn(|cx| match alarm.rang() {
            true => Poll::Ready(None),
            false => handshake.poll(cx, &worker.pace).map(Some),
        });
        let shaken = shaken.await.ok_or(Unmet::Late)?;
        let side = shaken.and_then(|()| {
            let side = handshake.finish(worker.clock.now(), &worker.pool, &identities)?;
            // By what holds now: it may have changed since the handshake began.
            worker.check(&side).map_err(Broken::Refused)?;
            Ok(side)
        });
        side.map_err(Unmet::Broken)
    }
}

/// Dials another node for a connection that many share.
///
/// # Errors
/// Why it cannot be spoken to; [`Reason::LinkLost`] when the connection was cut in the middle of the handshake.
pub(crate) async fn dial_node(shaking: Shaking<'_>, protocol: Protocol) -> Result<Side, Reason> {
    let Shaking {
        worker,
        alarm,
        caller,
        node,
        ..
    } = shaking;
    let mut connecting = pin!(open_from_here(node));
    let connected = poll_fn(|cx| match alarm.rang() {
        true => Poll::Ready(None),
        false => connecting.as_mut().poll(cx).map(Some),
    });
    let stream = match connected.await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) if is_ours(&error) => return Err(Reason::Descriptors),
        Some(Err(error)) => {
            tracing::debug!(%node, %error, "another node cannot be connected to");
            return Err(Reason::ConnectFailed);
        }
        None => return Err(worker.rang_for(alarm, Reason::ConnectTimeout)),
    };
    match shaking.hands(stream, protocol).await {
        Ok(side) => Ok(side),
        Err(Unmet::Late) => Err(worker.rang_for(alarm, Reason::ConnectTimeout)),
        Err(Unmet::NoIdentity(error)) => {
            let caller = caller.map_or_else(|| "unidentified".to_owned(), ToString::to_string);
            Err(missing(worker, &caller, &error))
        }
        Err(Unmet::Broken(broken)) => Err(match say_refused(worker, &node, &broken) {
            // It was there, and may be again.
            Reason::ConnectFailed => Reason::LinkLost,
            reason => reason,
        }),
    }
}

fn missing(worker: &Worker, caller: &str, error: &NoIdentity) -> Reason {
    let now = worker.clock.now();
    let number = NoIdentity::clone(error);
    if worker.no_identity.borrow_mut().may_name(number, now) {
        tracing::warn!(caller, "another node cannot be called: {error}");
    }
    Reason::IdentityMissing
}

/// The same of an endpoint, which remembers it for a while.
pub(crate) fn refused(
    worker: &Worker,
    endpoint: &Endpoint,
    door: &Door,
    broken: &Broken,
) -> Reason {
    if let Broken::Refused(_) = broken {
        let caller = worker.bound().snapshot.guards.account(door).cloned();
        endpoint.refused(caller, worker.clock.now_ms());
    }
    say_refused(worker, &endpoint.label, broken)
}

/// Counts and says why somebody is not spoken to.
pub(crate) fn say_refused(worker: &Worker, whom: &dyn fmt::Display, broken: &Broken) -> Reason {
    match broken {
        Broken::Refused(refusal) => {
            worker.stats.handshakes_refused.inc(refusal.index());
            let now = worker.clock.now();
            if worker.refused.borrow_mut().may_name(refusal.index(), now) {
                let reason = refusal.code();
                tracing::warn!(endpoint = %whom, reason, "another node is not spoken to: {refusal}");
            }
            Reason::PeerRefused
        }
        Broken::Memory => Reason::Memory,
        Broken::Io(error) => {
            worker.stats.handshakes_failed.inc();
            tracing::debug!(endpoint = %whom, %error, "another node left in the middle of a handshake");
            Reason::ConnectFailed
        }
    }
}
