//! Connections through the proxy of another node: mutual TLS, and a preface that names the endpoint.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use heddle_transport::Protocol;
use heddle_wire::preface::{Kind, Preface, Status};
use tokio::net::TcpStream;

use super::Call;
use crate::dial::{Shaking, Unmet, missing, say_left, say_refused};
use crate::door::Door;
use crate::env::Alarm;
use crate::failure::{Failure, Reason};
use crate::handshake::HandshakeError;
use crate::io::SideError;
use crate::place::Via;
use crate::side::Side;
use crate::upstream::Endpoint;
use crate::worker::Worker;

/// Sets up a connection over a socket to the other node, until `alarm` rings. The preface of a connection for requests
/// stays in the outbox, so that it is sent together with the first request.
///
/// # Errors
/// Why the setup failed.
pub(super) async fn join(
    worker: &Worker,
    alarm: &Alarm,
    stream: TcpStream,
    (endpoint, via): (&Endpoint, &Via),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let caller = worker.snapshot().guards.account(call.door).cloned();
    let shaking = Shaking {
        env: &worker.env,
        alarm,
        caller: caller.as_ref(),
        called: &via.account,
        node: via.node,
    };
    let mut side: Side = match shaking.hands(stream, Protocol::Http1).await {
        Ok(side) => side.into(),
        Err(Unmet::Late) => return Err(Reason::NodeConnectTimeout),
        Err(Unmet::NoIdentity(error)) => {
            return Err(missing(&worker.env, &call.door.source, &error));
        }
        Err(Unmet::Broken(broken)) => return Err(refused(worker, endpoint, call.door, &broken)),
    };
    let mut preface = Vec::new();
    let written = Preface {
        kind: call.kind,
        endpoint: endpoint.address,
        namespace: via.service.namespace.as_str(),
        service: via.service.name.as_str(),
        port: via.port,
        caller: call.door.entry.caller().map(|caller| caller.name.as_str()),
    }
    .write_to(&mut preface);
    // Names of the mesh are never too long for the preface.
    written.map_err(|_| Reason::ServiceGone)?;
    let kept = side.outbox.extend_from_slice(&worker.pool, &preface);
    kept.map_err(|_| Reason::Memory)?;
    alarm.rests_on(&side);
    if call.kind == Kind::Bytes {
        hear(worker, alarm, (endpoint, call.door), &mut side).await?;
    }
    // If the node's identity was revoked meanwhile, nothing is sent to it.
    let held = worker.check(&side);
    held.map_err(|refusal| {
        refused(
            worker,
            endpoint,
            call.door,
            &HandshakeError::Refused(refusal),
        )
    })?;
    Ok(side)
}

/// Opens a stream for opaque bytes on a link to the other node, which answers whether it has connected the endpoint.
///
/// # Errors
/// Why the setup failed.
pub(super) async fn join_stream(
    worker: &Rc<Worker>,
    alarm: &Alarm,
    (endpoint, via): (&Endpoint, &Arc<Via>),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let bound = worker.bound();
    let caller = bound.snapshot.guards.account(call.door);
    let links = &worker.links;
    let stream = links.stream(
        endpoint.far(via, call.door.entry.caller()),
        caller,
        call.kind,
        0,
    )?;
    let mut side = Side::from(stream);
    hear(worker, alarm, (endpoint, call.door), &mut side).await?;
    Ok(side)
}

/// Waits until the other node answers whether it has connected the endpoint. On a link, this also opens the stream,
/// once the link has room.
///
/// # Errors
/// Why the endpoint is not connected.
async fn hear(
    worker: &Worker,
    alarm: &Alarm,
    (endpoint, door): (&Endpoint, &Door),
    side: &mut Side,
) -> Result<(), Reason> {
    let status = poll_fn(|cx| match (alarm.rang(), side.waits_for_link()) {
        (false, _) => poll_status(cx, worker, (endpoint, door), side),
        // The node has not been asked yet, so this says nothing about the endpoint.
        (true, true) => Poll::Ready(Err(worker.rang_for(alarm, Reason::LinkFull))),
        (true, false) => {
            // If the link is up, the node has not connected the endpoint in time.
            let late = match side.is_linked() {
                true => Reason::ConnectTimeout,
                false => Reason::NodeConnectTimeout,
            };
            Poll::Ready(Err(worker.rang_for(alarm, late)))
        }
    });
    match Reason::of_status(status.await?) {
        Some(reason) => Err(reason),
        None => {
            worker.upstreams.reached(endpoint);
            Ok(())
        }
    }
}

/// Sends the preface, which names the endpoint, and waits for the answer.
fn poll_status(
    cx: &mut Context<'_>,
    worker: &Worker,
    (endpoint, door): (&Endpoint, &Door),
    side: &mut Side,
) -> Poll<Result<Status, Reason>> {
    let fault = |error| match error {
        SideError::Stream(failure) => failure.of_request(),
        error => refused(worker, endpoint, door, &HandshakeError::of(error)),
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

/// Counts and logs why an endpoint's node is not used. The endpoint remembers a refusal for a while.
pub(crate) fn refused(
    worker: &Worker,
    endpoint: &Endpoint,
    door: &Door,
    broken: &HandshakeError,
) -> Reason {
    if let HandshakeError::Refused(_) = broken {
        let caller = worker.snapshot().guards.account(door).cloned();
        endpoint.refused(caller, worker.clock.now_ms());
    }
    if let Some(via) = endpoint.place.via() {
        say_left(&worker.env, via.node, broken);
    }
    say_refused(&worker.env, &endpoint.label, broken)
}

/// Records that a stream to an endpoint failed.
pub(crate) fn link_failed(worker: &Worker, endpoint: &Endpoint, door: &Door, reason: Reason) {
    let now = worker.clock.now_ms();
    if reason == Reason::PeerRefused {
        let caller = worker.snapshot().guards.account(door).cloned();
        endpoint.refused(caller, now);
    }
    if reason.is_safe_to_retry() {
        let failed = Failure::from(reason);
        worker.upstreams.failed(endpoint, now, &failed.detail());
    }
}
