//! Opening a connection to an endpoint.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use heddle_intercept::{Family, PodId, Sockets};
use heddle_transport::Protocol;
use heddle_wire::preface::Kind;
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};

use super::remote::{join, join_stream};
use super::{Endpoint, Open, Place, Upstream, Way};
use crate::failure::{Failure, Reason};
use crate::io::Side;
use crate::listener::{Door, Entry};
use crate::worker::{Alarm, Millis, Worker};

/// How long it takes to ask again for a socket when too many are asked for.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// For whom an endpoint is connected, and what for: another node is told, and a pod of this one sees the
/// client's address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// By which the caller came: in its name the other node is called.
    pub(crate) door: &'a Door,
    pub(crate) kind: Kind,
    /// Where the client called from, as its connection shows it.
    pub(crate) client: &'a SocketAddr,
}

/// Connects to an endpoint in the place that was reserved for it, by `due`. The endpoint remembers how
/// it went; that it was not in time only if that `is_fair`, since whoever calls may have had no time itself.
///
/// # Errors
/// Why there is no connection.
pub(crate) async fn connect(
    worker: &Rc<Worker>,
    alarm: &Alarm,
    (due, is_fair): (Millis, bool),
    endpoint: &Endpoint,
    place: Open,
    call: &Call<'_>,
) -> Result<Upstream, Reason> {
    if is_refused(worker, endpoint, call.door) {
        return Err(Reason::PeerRefused);
    }
    alarm.set(due);
    if let Some(via) = endpoint.place.via()
        && worker.settings.between_nodes == Protocol::Link
    {
        // In a box: it would take room in every connection.
        let joined = Box::pin(join_stream(worker, alarm, (endpoint, via), call)).await;
        let side = joined.inspect_err(|&reason| {
            if is_fair || reason != Reason::ConnectTimeout {
                endpoint.link_failed(worker, call.door, reason);
            }
        })?;
        return Ok(worker.upstreams.opened(endpoint, place, side));
    }
    let dial = Dial {
        worker,
        place: &endpoint.place,
        call,
        shows_client: Cell::new(false),
    };
    // In a box: it would take room in every connection.
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
            let side = match endpoint.place.via() {
                None if dial.shows_client.get() => Side::of_one_client(stream),
                None => Side::new(stream),
                // In a box: it would take room in every connection.
                Some(via) => {
                    let joined = join(worker, alarm, stream, (endpoint, via), call);
                    let joined = Box::pin(joined).await;
                    joined.map_err(|reason| {
                        remote_failed(worker, alarm, (endpoint, is_fair), reason)
                    })?
                }
            };
            Ok(upstreams.opened(endpoint, place, side))
        }
        Some(Err(error)) if is_ours(&error) => Err(Reason::Descriptors),
        Some(Err(error)) => {
            tracing::debug!(endpoint = %endpoint.label, %error, "cannot connect");
            node_failed(worker, endpoint, Reason::ConnectFailed);
            upstreams.failed(endpoint, now, &error);
            Err(Reason::ConnectFailed)
        }
        None => {
            let reason = worker.rang_for(alarm, Reason::ConnectTimeout);
            if reason == Reason::ConnectTimeout {
                tracing::debug!(endpoint = %endpoint.label, "cannot connect in time");
                node_failed(worker, endpoint, reason);
                if is_fair {
                    upstreams.failed(endpoint, now, &"it did not accept in time");
                }
            }
            Err(reason)
        }
    }
}

/// Whether another node has refused the caller a moment ago.
pub(crate) fn is_refused(worker: &Worker, endpoint: &Endpoint, door: &Door) -> bool {
    let via = endpoint.place.via();
    via.is_some_and(|_| {
        let bound = worker.bound();
        let caller = bound.snapshot.guards.account(door);
        endpoint.refuses(caller, worker.clock.now_ms())
    })
}

/// Why there is no connection through another node, of which the endpoint is told.
fn remote_failed(
    worker: &Worker,
    alarm: &Alarm,
    (endpoint, is_fair): (&Endpoint, bool),
    reason: Reason,
) -> Reason {
    let reason = match reason {
        Reason::ConnectTimeout => worker.rang_for(alarm, Reason::ConnectTimeout),
        reason => reason,
    };
    // What else there may be is the endpoint's.
    if matches!(reason, Reason::PeerRefused | Reason::IdentityMissing) {
        node_failed(worker, endpoint, reason);
    }
    if reason.is_safe_to_retry() && (is_fair || reason != Reason::ConnectTimeout) {
        let failed = Failure::from(reason);
        let now = worker.clock.now_ms();
        worker.upstreams.failed(endpoint, now, &failed.detail());
    }
    reason
}

/// The endpoint's node could not be spoken to, if it is another one.
fn node_failed(worker: &Worker, endpoint: &Endpoint, reason: Reason) {
    if let Some(via) = endpoint.place.via() {
        let now = worker.clock.now_ms();
        worker.peers.failed(via.node, reason, now);
    }
}

/// A connection in the making.
struct Dial<'a> {
    worker: &'a Worker,
    place: &'a Place,
    call: &'a Call<'a>,
    /// It speaks with the client's address.
    shows_client: Cell<bool>,
}

/// Connects, and if there is no descriptor left gives up what is only kept to save time and tries once
/// more.
async fn open_with_room(dial: &Dial<'_>) -> io::Result<TcpStream> {
    let mut first = true;
    // One place that waits: the future of every connection has room for it.
    loop {
        let opened = open(dial).await;
        let none_left = matches!(&opened, Err(error) if is_ours(error));
        if !(none_left && mem::take(&mut first) && dial.worker.upstreams.close_idle()) {
            return opened;
        }
    }
}

/// Connects with Nagle's algorithm off: a request is sent whole and must not wait for the
/// acknowledgement of the one before.
async fn open(dial: &Dial<'_>) -> io::Result<TcpStream> {
    match dial.place.pod() {
        Some(pod) => open_within(dial, pod).await,
        None => open_from_here(dial.place.dialled()).await,
    }
}

pub(super) async fn open_from_here(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// The same from within a pod, with the client's address where that is to be seen. Its port as well, unless
/// another connection has it still, or had it a moment ago.
async fn open_within(dial: &Dial<'_>, mut pod: PodId) -> io::Result<TcpStream> {
    let Dial {
        worker,
        place,
        call,
        shows_client,
    } = dial;
    let sockets = worker.sockets().ok_or(io::ErrorKind::NotConnected)?;
    let address = place.address;
    let mut source = seen_address(worker, pod, place, call);
    shows_client.set(source.is_some());
    loop {
        let socket = match socket_within(&sockets, pod, Family::of(address), source).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound && has_arrived(call) => {
                match here_now(worker, call).filter(|now| *now != pod) {
                    Some(now) => pod = now,
                    // Nothing is intercepted there any more.
                    None => {
                        shows_client.set(false);
                        return open_from_here(address).await;
                    }
                }
                continue;
            }
            made => made,
        };
        let opened = async {
            let socket = TcpSocket::from_std_stream(socket?.into());
            socket.set_nodelay(true)?;
            socket.connect(address).await
        };
        match (opened.await, &mut source) {
            (Err(error), Some(source))
                if source.port() != 0 && (is_taken(&error) || is_denied(&error)) =>
            {
                source.set_port(0);
            }
            // The holder has no socket that speaks with that address: a link-local one, say.
            (Err(error), Some(_)) if is_denied(&error) => {
                source = None;
                shows_client.set(false);
            }
            (opened, _) => return opened,
        }
    }
}

/// Whether the client's connection has arrived at the pod whose program it wants. Such a one outlives that
/// the pod is let go, and so does what it asks for next.
fn has_arrived(call: &Call<'_>) -> bool {
    matches!(&call.door.entry, Entry::Direct(direct) if direct.caller.is_none())
}

/// The pod in which the called workload is by now.
fn here_now(worker: &Worker, call: &Call<'_>) -> Option<PodId> {
    let Entry::Direct(direct) = &call.door.entry else {
        return None;
    };
    worker.pods().of(direct.workload()?)
}

/// A socket within a pod. Whoever makes them is waited for if many are wanted at the same time, as long as
/// connecting may take.
async fn socket_within(
    sockets: &Sockets,
    pod: PodId,
    family: Family,
    source: Option<SocketAddr>,
) -> io::Result<OwnedFd> {
    loop {
        match sockets.open(pod, family, source).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// The address with which an opaque connection speaks to a pod: the client's. None where it means nothing
/// there, or where the pod calls itself.
fn seen_address(worker: &Worker, pod: PodId, place: &Place, call: &Call<'_>) -> Option<SocketAddr> {
    let is_shown = call.kind == Kind::Bytes && matches!(place.way, Way::Inside(_));
    // Of a client on another node only that node knows the address.
    if !is_shown || call.door.inbound().is_some() {
        return None;
    }
    let caller = call.door.entry.caller();
    let own = caller.and_then(|caller| call.door.pod.or_else(|| worker.pods().of(caller)));
    if own == Some(pod) {
        return None;
    }
    let ip = call.client.ip().to_canonical();
    let bound = worker.bound();
    let addresses = &bound.snapshot.addresses;
    // Programs trust whoever calls from their own machine.
    if ip.is_loopback() && !caller.is_some_and(|caller| addresses.is_of(ip, caller)) {
        return None;
    }
    let is_other = ip != place.address.ip() && ip.is_ipv4() == place.address.is_ipv4();
    // What has arrived at this very pod has both ends that the other connection would have, in the same
    // namespace: the kernel takes the one for the other.
    let port = match has_arrived(call) {
        true => 0,
        false => call.client.port(),
    };
    is_other.then(|| SocketAddr::new(ip, port))
}

/// Whether a source cannot be used because another connection has it.
fn is_taken(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL))
        || error.kind() == io::ErrorKind::AddrInUse
}

/// Whether a source is not to be used.
fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether connecting failed for want of a descriptor, which says nothing about the endpoint.
pub(super) fn is_ours(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
