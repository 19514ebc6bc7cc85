//! The calling end of a connection.
//!
//! ```text
//!   dial ─▶ shake hands ─▶ drive ─ idle, told to go, its certificate ends ─▶ nothing new ─ last stream ─▶ over
//!     │         │            │
//!     └─ failed ┴─ nothing   └─ cut, not believed any more ─▶ streams fail
//!                  was sent
//! ```

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use heddle_transport::Protocol;

use super::connections::{Calling, Connections};
use super::wire::Http2Io;
use super::{
    CONNECTION_WINDOW, LOOK_MS, MAX_HEADER_LIST, MAX_STREAMS, SEND_BUFFER, SMALL_FRAMES,
    STREAM_WINDOW,
};
use crate::dial::{Shaking, dial_node, say_refused};
use crate::env::{Alarm, Env};
use crate::failure::Reason;
use crate::failure::StreamFailure;
use crate::handshake::HandshakeError;
use crate::io::WireSide;

type ClientConnection = Connection<Http2Io, Bytes>;

/// Begins HTTP/2 before the socket is connected. `None` is not expected: nothing that could fail is done yet.
pub(super) fn begin() -> Option<(ClientConnection, SendRequest<Bytes>, Http2Io)> {
    let wire = Http2Io::default();
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(MAX_STREAMS as usize)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEADER_LIST)
        .data_frame_budget(SMALL_FRAMES)
        .enable_push(false);
    let begun = pin!(builder.handshake(wire.clone()));
    // The handshake only waits until its preface is written to the buffer.
    match begun.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok((sender, connection))) => Some((connection, sender, wire)),
        _ => None,
    }
}

/// Drives a connection to another node until it ends.
pub(super) async fn call(
    connections: Rc<Connections>,
    calling: Rc<Calling>,
    mut connection: ClientConnection,
    wire: Http2Io,
) {
    let env = &connections.env;
    let alarm = env.alarms.alarm();
    poll_fn(|cx| {
        alarm.wakes(cx.waker());
        Poll::Ready(())
    })
    .await;
    alarm.set(env.after(env.settings.timeouts.connect));
    // Boxed: it would take room in the driver of every idle connection.
    let failed = match Box::pin(dial(env, &calling, &alarm)).await {
        Err(reason) => StreamFailure {
            reason,
            was_sent: false,
        },
        Ok(side) => {
            alarm.clear();
            alarm.rests_on(&side);
            wire.plug(side);
            let driven = poll_fn(|cx| {
                poll_drive(cx, &connections, &calling, &mut connection, &wire, &alarm)
            });
            driven.await
        }
    };
    if !failed.was_sent || calling.shared.open.get() > 0 {
        let now = env.clock.now_ms();
        env.peers.failed(calling.key.node, failed.reason, now);
    }
    calling.shared.failure.set(Some(failed));
    connections.forget(&calling);
}

async fn dial(env: &Env, calling: &Calling, alarm: &Alarm) -> Result<WireSide, Reason> {
    let shaking = Shaking {
        env,
        alarm,
        caller: calling.key.caller.as_ref(),
        called: &calling.key.called,
        node: calling.key.node,
    };
    dial_node(shaking, Protocol::Http2).await
}

/// The reason of a broken connection. The other end may refuse our identity after the handshake (RFC 8446 section 2),
/// without having processed any request.
fn lost(env: &Env, calling: &Calling, wire: &Http2Io) -> StreamFailure {
    match wire.refused().map(HandshakeError::of) {
        Some(broken @ HandshakeError::Refused(_)) => StreamFailure {
            reason: say_refused(env, &calling.key.node, &broken),
            was_sent: false,
        },
        _ => StreamFailure {
            reason: Reason::LinkLost,
            was_sent: true,
        },
    }
}

/// Drives the connection. Ready with the reason why the open requests fail.
fn poll_drive(
    cx: &mut Context<'_>,
    connections: &Connections,
    calling: &Rc<Calling>,
    connection: &mut ClientConnection,
    wire: &Http2Io,
    alarm: &Alarm,
) -> Poll<StreamFailure> {
    let env = &connections.env;
    if alarm.rang() {
        let revoked = alarm.take_revoked();
        if let Some(reason) = revoked.or(env.is_cutting().then_some(Reason::Draining)) {
            let was_sent = true;
            return Poll::Ready(StreamFailure { reason, was_sent });
        }
    }
    wire.begin_turn();
    let over = match Pin::new(connection).poll(cx) {
        Poll::Ready(Err(error)) => {
            tracing::debug!(%error, node = %calling.key.node, "a connection between nodes broke");
            true
        }
        Poll::Ready(Ok(())) => true,
        Poll::Pending => false,
    };
    match wire.poll_sent(cx) {
        Poll::Ready(Err(error)) => {
            tracing::debug!(%error, node = %calling.key.node, "a connection between nodes was cut");
            return Poll::Ready(lost(env, calling, wire));
        }
        _ if over => return Poll::Ready(lost(env, calling, wire)),
        _ => {}
    }
    let now = env.clock.now_ms();
    let idle = calling.shared.idle(now);
    if !calling.shared.closing.get() {
        let keep = env.settings.timeouts.upstream_idle;
        let is_old = !keep.is_zero() && u128::from(idle) >= keep.as_millis();
        let is_left = env.is_leaving() && calling.shared.open.get() == 0;
        let is_ending = wire.is_ending(env.clock.now());
        if is_old || is_left || is_ending || calling.is_told_to_go() {
            connections.forget(calling);
        }
    }
    alarm.set(now + LOOK_MS);
    Poll::Pending
}
