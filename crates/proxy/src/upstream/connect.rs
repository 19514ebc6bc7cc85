//! Opening a connection to an endpoint.

use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use heddle_wire::preface::Kind;
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};

use super::remote::join;
use super::{Endpoint, Open, Upstream, Via};
use crate::failure::{Failure, Reason};
use crate::io::Side;
use crate::listener::Door;
use crate::worker::{Alarm, Millis, Worker};

/// For whom an endpoint is connected, and what for: only another node is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// By which the caller came: in its name the other node is called.
    pub(crate) door: &'a Door,
    pub(crate) kind: Kind,
}

/// Connects to an endpoint in the place that was reserved for it, by `due`. The endpoint remembers how
/// it went.
///
/// # Errors
/// Why there is no connection.
pub(crate) async fn connect(
    worker: &Worker,
    alarm: &Alarm,
    due: Millis,
    endpoint: &Endpoint,
    place: Open,
    call: &Call<'_>,
) -> Result<Upstream, Reason> {
    if is_refused(worker, endpoint, call.door) {
        return Err(Reason::PeerRefused);
    }
    alarm.set(due);
    let mut connecting = pin!(open_with_room(worker, endpoint.place.dialled()));
    let connected = poll_fn(|cx| {
        if alarm.rang() {
            return Poll::Ready(None);
        }
        connecting.as_mut().poll(cx).map(Some)
    })
    .await;
    let upstreams = &worker.upstreams;
    let now = worker.clock.now_ms();
    match connected {
        Some(Ok(stream)) => {
            let side = match endpoint.place.via.as_deref() {
                None => Side::new(stream),
                // In a box: it would take room in every connection.
                Some(via) => Box::pin(remote(worker, alarm, stream, (endpoint, via), call)).await?,
            };
            Ok(upstreams.opened(endpoint, place, side))
        }
        Some(Err(error)) if is_ours(&error) => Err(Reason::Descriptors),
        Some(Err(error)) => {
            tracing::debug!(endpoint = %endpoint.label, %error, "cannot connect");
            upstreams.failed(endpoint, now, &error);
            Err(Reason::ConnectFailed)
        }
        None => {
            let reason = worker.rang_for(alarm, Reason::ConnectTimeout);
            if reason == Reason::ConnectTimeout {
                tracing::debug!(endpoint = %endpoint.label, "cannot connect in time");
                upstreams.failed(endpoint, now, &"it did not accept in time");
            }
            Err(reason)
        }
    }
}

/// Whether another node has refused the caller a moment ago.
fn is_refused(worker: &Worker, endpoint: &Endpoint, door: &Door) -> bool {
    let via = endpoint.place.via.as_ref();
    via.is_some_and(|_| {
        let bound = worker.bound();
        let caller = bound.snapshot.guards.account(door);
        endpoint.refuses(caller, worker.clock.now_ms())
    })
}

/// Goes on through another node.
async fn remote(
    worker: &Worker,
    alarm: &Alarm,
    stream: TcpStream,
    (endpoint, via): (&Endpoint, &Via),
    call: &Call<'_>,
) -> Result<Side, Reason> {
    let joined = join(worker, alarm, stream, (endpoint, via), call).await;
    joined.map_err(|reason| {
        let reason = match reason {
            Reason::ConnectTimeout => worker.rang_for(alarm, Reason::ConnectTimeout),
            reason => reason,
        };
        if reason.is_safe_to_retry() {
            let failed = Failure::from(reason);
            let now = worker.clock.now_ms();
            worker.upstreams.failed(endpoint, now, &failed.detail());
        }
        reason
    })
}

/// Connects, and if there is no descriptor left gives up what is only kept to save time and tries once
/// more.
async fn open_with_room(worker: &Worker, address: SocketAddr) -> io::Result<TcpStream> {
    let mut first = true;
    // One place that waits: the future of every connection has room for it.
    loop {
        let opened = open(address).await;
        let none_left = matches!(&opened, Err(error) if is_ours(error));
        if !(none_left && mem::take(&mut first) && worker.upstreams.close_idle()) {
            return opened;
        }
    }
}

/// Connects with Nagle's algorithm off: a request is sent whole and must not wait for the
/// acknowledgement of the one before.
async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// Whether connecting failed for want of a descriptor, which says nothing about the endpoint.
fn is_ours(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
