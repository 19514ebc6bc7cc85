//! Connections to programs of pods, made from within the pod.
//!
//! Programs that are spoken to in bytes are to see who calls: some let an address in that others do not. So such a
//! connection has its client's address where it can, and that of no host that the program trusts where it cannot:
//!
//! | the client | is seen by |
//! |---|---|
//! | a pod of this node | its own address, of the family that it dialled, at the endpoint's address of that family. Where the endpoint has none, or nothing listens there: by its address of the other family |
//! | outside of the mesh | its address |
//! | the pod itself | the pod's address |
//! | on another node, or with an address that no host may be called from | this node's address, with which it would dial the pod itself |

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
use crate::place::{Place, Way};
use crate::worker::Worker;

/// How long it takes to ask again for a socket when too many are asked for.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// One way to reach a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Visit {
    to: SocketAddr,
    /// The address that the program sees; `None` for the pod's own.
    source: Option<SocketAddr>,
}

/// Connects from within a pod, in the first way that works.
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
                        // Nothing is intercepted there any more.
                        None => {
                            dial.shows_client.set(false);
                            return open_from_here(dial.place.address).await;
                        }
                    }
                }
                made => break made,
            }
        };
        let opened = async {
            let socket = TcpSocket::from_std_stream(socket?.into());
            socket.set_nodelay(true)?;
            socket.connect(visit.to).await
        };
        failed = match opened.await {
            Err(error) if !is_ours(&error) => error,
            opened => return opened,
        };
        // Where nothing listens, no other source helps: only another address is worth a try.
        if !is_taken(&failed) && !is_denied(&failed) {
            while visits.next_if(|next| next.to == visit.to).is_some() {}
        }
    }
    Err(failed)
}

/// How a program is reached, the best way first.
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
    // Whether the client can be seen so: a program trusts an address of its own, and those that mean its own machine.
    let is_client = |ip: IpAddr, to: SocketAddr| {
        let is_callers = || caller.is_some_and(|caller| addresses.is_of(ip, caller));
        ip != to.ip() && ip.is_ipv4() == to.is_ipv4() && (is_of_another_host(ip) || is_callers())
    };
    let port = call.client.port();
    // Of a client on another node only that node knows the address.
    if call.door.inbound().is_none() {
        let client = call.client.ip().to_canonical();
        // A client that has dialled one very address is led there and nowhere else.
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
            // What has arrived at this very pod has both ends that the other connection would have, in the same
            // namespace: the kernel takes the one for the other.
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

/// As many ways as there may be.
const MOST: usize = 6;

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

/// A socket within a pod. Its maker is waited for if many are wanted at the same time, as long as connecting may
/// take.
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

/// Whether a source cannot be used because another connection has it.
fn is_taken(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL))
        || error.kind() == io::ErrorKind::AddrInUse
}

/// Whether a source is not to be used: the holder makes no socket that speaks with a link-local address, say.
fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
