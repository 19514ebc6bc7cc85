//! Connections to the programs of pods, made from within the pod's network namespace.
//!
//! A program that gets opaque bytes should see who calls: some programs accept only certain addresses. So such a
//! connection has its client's address as its source where possible, and otherwise the address of a host that the
//! program does not trust:
//!
//! | client | source address that the program sees |
//! |---|---|
//! | a pod of this node | its own address, of the family that it dialled, at the endpoint's address of that family. Where the endpoint has none, or nothing listens there: by its address of the other family |
//! | outside of the mesh | its address |
//! | the pod itself | the pod's address |
//! | on another node, or with an address no other host has | this node's address towards the pod, else a dummy one |

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use heddle_intercept::{Family, PodId, Sockets, dummy_address, is_of_another_host};
use heddle_wire::preface::Kind;
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};

use super::{Call, Dial};
use crate::dial::{is_ours, open_from_here};
use crate::entry::Entry;
use crate::io::{limit_under_way, set_effort};
use crate::place::{Place, Way};
use crate::worker::Worker;

/// Delay before asking again for a socket when too many are requested at the same time.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// One combination of destination and source address by which to reach a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Visit {
    to: SocketAddr,
    /// The address that the program sees; `None` for the pod's own.
    source: Option<SocketAddr>,
}

/// Connects from within a pod, by the first way that works.
pub(super) async fn open_within(dial: &Dial<'_>, mut pod: PodId) -> io::Result<TcpStream> {
    let (worker, call) = (dial.worker, dial.call);
    let sockets = worker.sockets().ok_or(io::ErrorKind::NotConnected)?;
    let mut visits = visits(worker, pod, dial.place, call).into_iter().peekable();
    let mut failed = io::ErrorKind::NotConnected.into();
    while let Some(visit) = visits.next() {
        dial.shows_client.set(visit.source.is_some());
        let socket = loop {
            match socket_within(&sockets, pod, visit).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound && has_arrived(call) => {
                    match here_now(worker, call).filter(|now| *now != pod) {
                        Some(now) => pod = now,
                        // The workload is not intercepted any more.
                        None => {
                            dial.shows_client.set(false);
                            return open_from_here(dial.place.address, worker.stats.class()).await;
                        }
                    }
                }
                made => break made,
            }
        };
        let opened = async {
            let socket = TcpSocket::from_std_stream(socket?.into());
            socket.set_nodelay(true)?;
            let class = worker.stats.class();
            set_effort(&socket, class);
            limit_under_way(&socket, class);
            socket.connect(visit.to).await
        };
        failed = match opened.await {
            Err(error) if !is_ours(&error) => error,
            opened => return opened,
        };
        // If nothing listens there, another source address does not help: only another destination is worth a try.
        if !is_taken(&failed) && !is_denied(&failed) {
            while visits.next_if(|next| next.to == visit.to).is_some() {}
        }
    }
    Err(failed)
}

/// The ways to reach a program, the best one first.
fn visits(worker: &Worker, pod: PodId, place: &Place, call: &Call<'_>) -> Vec<Visit> {
    let first = place.address;
    let is_shown = call.kind == Kind::Bytes && matches!(place.way, Way::Inside(_));
    let caller = call.door.entry.caller();
    let own = caller.and_then(|caller| call.door.pod.or_else(|| worker.pods().of(caller)));
    if !is_shown || own == Some(pod) {
        let to = first;
        return vec![Visit { to, source: None }];
    }
    let mut visits = Vec::with_capacity(MOST);
    let mut add = |to: SocketAddr, ip: IpAddr, port: u16| {
        let source = Some(SocketAddr::new(ip, port));
        visits.push(Visit { to, source });
    };
    let bound = worker.bound();
    let addresses = &bound.snapshot.addresses;
    // Whether this address can be the client's: not the program's own address, nor one that means the program's own
    // machine, because a program trusts those.
    let is_client = |ip: IpAddr, to: SocketAddr| {
        let is_callers = || caller.is_some_and(|caller| addresses.is_of(ip, caller));
        ip != to.ip() && ip.is_ipv4() == to.is_ipv4() && (is_of_another_host(ip) || is_callers())
    };
    let port = call.client.port();
    // The address of a client on another node is known only to that node.
    if !call.door.is_from_proxy() {
        let client = call.client.ip().to_canonical();
        // A client that has dialled one particular address is connected to that address only.
        if client.is_ipv4() != first.is_ipv4()
            && !call.door.is_fixed()
            && let Some(other) = addresses.beside(first.ip())
            && worker.pods().of(other.workload) == Some(pod)
        {
            let to = SocketAddr::new(other.address, first.port());
            if is_client(client, to) {
                add(to, client, port);
                add(to, client, 0);
            }
        }
        let of_family = caller.and_then(|caller| addresses.of(caller, first.is_ipv4()));
        let seen = [Some(client), of_family].into_iter().flatten();
        if let Some(client) = { seen }.find(|client| is_client(*client, first)) {
            // A connection that has arrived at this pod has the same addresses and ports as the new connection would
            // have, in the same namespace: the kernel would confuse the two.
            if !has_arrived(call) {
                add(first, client, port);
            }
            add(first, client, 0);
        }
    }
    if let Some(node) = (worker.settings.node_address.0)(first.ip()) {
        add(first, node, 0);
    }
    add(first, dummy_address(first.ip()), 0);
    visits
}

/// Most ways that [`visits`] returns.
const MOST: usize = 6;

/// Whether the client's connection has arrived at the pod whose program it calls. Such a connection, and its later
/// requests, may outlive the pod's interception.
fn has_arrived(call: &Call<'_>) -> bool {
    matches!(&call.door.entry, Entry::Direct(direct) if direct.caller.is_none())
}

/// The pod in which the called workload runs now.
fn here_now(worker: &Worker, call: &Call<'_>) -> Option<PodId> {
    let Entry::Direct(direct) = &call.door.entry else {
        return None;
    };
    worker.pods().of(direct.workload()?)
}

/// A socket within a pod. If many are requested at the same time, waits and asks again until the connect timeout.
async fn socket_within(sockets: &Sockets, pod: PodId, visit: Visit) -> io::Result<OwnedFd> {
    loop {
        let family = Family::of(visit.to);
        match sockets.open(pod, family, visit.source).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// Whether a source address cannot be used because another connection uses it.
fn is_taken(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL))
        || error.kind() == io::ErrorKind::AddrInUse
}

/// Whether a source address is not permitted: for example, the socket holder makes no socket with a link-local address.
fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
