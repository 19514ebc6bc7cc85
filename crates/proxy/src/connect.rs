//! Opens a connection to an endpoint.

mod envoy;
mod remote;
mod within;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use heddle_transport::Protocol;
use heddle_wire::preface::Kind;
use tokio::net::TcpStream;

use crate::clock::Millis;
use crate::dial::{NOT_IN_TIME, is_ours, open_from_here, say_unreachable};
use crate::door::Door;
use crate::env::Alarm;
use crate::failure::{Failure, Reason};
use crate::place::{Place, Way};
use crate::side::Side;
use crate::upstream::{Endpoint, Upstream, UpstreamPermit};
use crate::worker::Worker;
use envoy::join_envoy;
use remote::{join, join_stream};
use within::open_within;

pub(crate) use remote::{link_failed, refused};

/// The caller for which an endpoint is connected, and the purpose. Another node is told both, and a pod of this node
/// sees the client's address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The door through which the caller came in; its identity is used towards the other node.
    pub(crate) door: &'a Door,
    pub(crate) kind: Kind,
    /// The client's address, as its connection shows it.
    pub(crate) client: &'a SocketAddr,
}

/// Connects to an endpoint by the deadline `due`, with the permit that was reserved for it. The result counts for the
/// endpoint's record; a timeout counts only if `is_fair`, since the caller may have had little time left.
///
/// # Errors
/// Why the connection failed.
pub(crate) async fn connect(
    worker: &Rc<Worker>,
    alarm: &Alarm,
    (due, is_fair): (Millis, bool),
    endpoint: &Endpoint,
    permit: UpstreamPermit,
    call: &Call<'_>,
) -> Result<Upstream, Reason> {
    if is_refused(worker, endpoint, call.door) {
        return Err(Reason::PeerRefused);
    }
    alarm.set(due);
    if let Some(via) = endpoint.place.via()
        && worker.settings.between_nodes == Protocol::Link
    {
        // Boxed: it would take room in every connection.
        let joined = Box::pin(join_stream(worker, alarm, (endpoint, via), call)).await;
        let side = joined.inspect_err(|&reason| {
            if is_fair || !reason.is_connect_timeout() {
                link_failed(worker, endpoint, call.door, reason);
            }
        })?;
        return Ok(worker.upstreams.opened(endpoint, permit, side));
    }
    let dial = Dial {
        worker,
        place: &endpoint.place,
        call,
        shows_client: Cell::new(false),
    };
    // Boxed: it would take room in every connection.
    let mut connecting = Box::pin(open_with_room(&dial));
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
            let failed = |reason| remote_failed(worker, alarm, (endpoint, is_fair), reason);
            // Boxed: they would take room in every connection.
            let side = match &endpoint.place.way {
                Way::Through(via) => {
                    let joined = join(worker, alarm, stream, (endpoint, via), call);
                    Box::pin(joined).await.map_err(failed)?
                }
                Way::Envoy(envoy) => {
                    let joined = join_envoy(worker, alarm, stream, (endpoint, envoy), call);
                    Box::pin(joined).await.map_err(failed)?
                }
                _ if dial.shows_client.get() => Side::of_one_client(stream),
                _ => Side::new(stream),
            };
            Ok(upstreams.opened(endpoint, permit, side))
        }
        Some(Err(error)) if is_ours(&error) => Err(Reason::Descriptors),
        Some(Err(error)) => {
            tracing::debug!(endpoint = %endpoint.label, %error, "cannot connect");
            let reason = match endpoint.place.via() {
                None => Reason::ConnectFailed,
                Some(via) => {
                    say_unreachable(&worker.env, via.node, &error);
                    Reason::NodeConnectFailed
                }
            };
            node_failed(worker, endpoint, reason);
            upstreams.failed(endpoint, now, &error);
            Err(reason)
        }
        None => {
            let via = endpoint.place.via();
            let late = via.map_or(Reason::ConnectTimeout, |_| Reason::NodeConnectTimeout);
            let reason = worker.rang_for(alarm, late);
            if reason == late {
                tracing::debug!(endpoint = %endpoint.label, "cannot connect in time");
                node_failed(worker, endpoint, reason);
                if is_fair {
                    if let Some(via) = via {
                        say_unreachable(&worker.env, via.node, &NOT_IN_TIME);
                    }
                    upstreams.failed(endpoint, now, &"it did not accept in time");
                }
            }
            Err(reason)
        }
    }
}

/// Whether the endpoint's node, or its Envoy, refused the caller a moment ago.
pub(crate) fn is_refused(worker: &Worker, endpoint: &Endpoint, door: &Door) -> bool {
    endpoint.place.sees_caller() && {
        let snapshot = worker.snapshot();
        let caller = snapshot.guards.account(door);
        endpoint.refuses(caller, worker.clock.now_ms())
    }
}

/// Records that a connection through another node, or to an Envoy, failed, and returns the reason.
fn remote_failed(
    worker: &Worker,
    alarm: &Alarm,
    (endpoint, is_fair): (&Endpoint, bool),
    reason: Reason,
) -> Reason {
    let reason = match reason {
        late if late.is_connect_timeout() => worker.rang_for(alarm, late),
        reason => reason,
    };
    // Other reasons are about the endpoint, not about its node.
    if matches!(
        reason,
        Reason::PeerRefused
            | Reason::IdentityMissing
            | Reason::NodeConnectFailed
            | Reason::NodeConnectTimeout
    ) {
        node_failed(worker, endpoint, reason);
    }
    if let (Reason::NodeConnectTimeout, true, Some(via)) = (reason, is_fair, endpoint.place.via()) {
        say_unreachable(&worker.env, via.node, &NOT_IN_TIME);
    }
    if reason.is_safe_to_retry() && (is_fair || !reason.is_connect_timeout()) {
        let failed = Failure::from(reason);
        let now = worker.clock.now_ms();
        worker.upstreams.failed(endpoint, now, &failed.detail());
    }
    reason
}

/// Records that the endpoint's node could not be used, if it is another node.
fn node_failed(worker: &Worker, endpoint: &Endpoint, reason: Reason) {
    if let Some(via) = endpoint.place.via() {
        let now = worker.clock.now_ms();
        worker.peers.failed(via.node, reason, now);
    }
}

/// A connection attempt.
struct Dial<'a> {
    worker: &'a Worker,
    place: &'a Place,
    call: &'a Call<'a>,
    /// Whether the connection has the client's address, or the one shown in its place, as its source.
    shows_client: Cell<bool>,
}

/// Connects. If no descriptor is left, closes idle connections and tries once more.
async fn open_with_room(dial: &Dial<'_>) -> io::Result<TcpStream> {
    let mut first = true;
    // A loop, so that the future has only one await: every connection has room for it.
    loop {
        let opened = open(dial).await;
        let none_left = matches!(&opened, Err(error) if is_ours(error));
        if !(none_left && mem::take(&mut first) && dial.worker.upstreams.close_idle()) {
            return opened;
        }
    }
}

/// Connects with Nagle's algorithm off: a request is sent whole, and must not wait for the acknowledgement of the one
/// before.
async fn open(dial: &Dial<'_>) -> io::Result<TcpStream> {
    match dial.place.pod() {
        Some(pod) => open_within(dial, pod).await,
        None => open_from_here(dial.place.dialled(), dial.worker.stats.class()).await,
    }
}
