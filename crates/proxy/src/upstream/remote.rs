//! A connection through the proxy of another node: mutual TLS, and a word about whom it is for.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use heddle_transport::NoIdentity;
use heddle_wire::preface::{Kind, Preface, Status};
use tokio::net::TcpStream;

use super::{Call, Endpoint, Via};
use crate::failure::Reason;
use crate::handshake::{Broken, Handshake};
use crate::inbound::reason_of;
use crate::io::Side;
use crate::listener::Door;
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
    let identities = worker.identities().ok_or(Reason::IdentityMissing)?;
    let caller = {
        let bound = worker.bound();
        bound.snapshot.guards.account(call.door).cloned()
    };
    let session = identities.connect(caller.as_ref(), &via.account);
    let session = session.map_err(|error| missing(worker, call.door, &error))?;
    let mut handshake = Handshake::connect(stream, session, caller);
    worker.stats.handshakes.inc();
    let shaken = poll_fn(|cx| match alarm.rang() {
        true => Poll::Ready(None),
        false => handshake.poll(cx, worker).map(Some),
    });
    let shaken = shaken.await.ok_or(Reason::ConnectTimeout)?;
    let side = shaken.and_then(|()| handshake.finish(worker, &identities));
    let mut side = side.map_err(|broken| refused(worker, endpoint, call.door, &broken))?;
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
        let status = poll_fn(|cx| match alarm.rang() {
            true => Poll::Ready(Err(Reason::ConnectTimeout)),
            false => poll_status(cx, worker, (endpoint, call.door), &mut side),
        });
        if let Some(reason) = reason_of(status.await?) {
            return Err(reason);
        }
    }
    // Whoever was shut out meanwhile is sent nothing.
    let held = worker.check(&side);
    held.map_err(|refusal| refused(worker, endpoint, call.door, &Broken::Refused(refusal)))?;
    Ok(side)
}

/// Says whom the connection is for, and waits for the answer.
fn poll_status(
    cx: &mut Context<'_>,
    worker: &Worker,
    (endpoint, door): (&Endpoint, &Door),
    side: &mut Side,
) -> Poll<Result<Status, Reason>> {
    let fault = |error: io::Error| refused(worker, endpoint, door, &Broken::of(error));
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

fn missing(worker: &Worker, door: &Door, error: &NoIdentity) -> Reason {
    let now = worker.clock.now();
    let number = NoIdentity::clone(error);
    if worker.no_identity.borrow_mut().may_name(number, now) {
        let caller = &*door.source;
        tracing::warn!(caller, "another node cannot be called: {error}");
    }
    Reason::IdentityMissing
}

/// Counts and says why the other node is not spoken to.
pub(crate) fn refused(
    worker: &Worker,
    endpoint: &Endpoint,
    door: &Door,
    broken: &Broken,
) -> Reason {
    match broken {
        Broken::Refused(refusal) => {
            let caller = worker.bound().snapshot.guards.account(door).cloned();
            endpoint.refused(caller, worker.clock.now_ms());
            let endpoint = &endpoint.label;
            worker.stats.handshakes_refused.inc(refusal.index());
            let now = worker.clock.now();
            if worker.refused.borrow_mut().may_name(refusal.index(), now) {
                let reason = refusal.code();
                tracing::warn!(%endpoint, reason, "another node is not spoken to: {refusal}");
            }
            Reason::PeerRefused
        }
        Broken::Memory => Reason::Memory,
        Broken::Io(error) => {
            worker.stats.handshakes_failed.inc();
            let endpoint = &endpoint.label;
            tracing::debug!(%endpoint, %error, "another node left in the middle of a handshake");
            Reason::ConnectFailed
        }
    }
}
