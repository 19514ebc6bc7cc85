//! Sockets in a pod's namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_linger, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};

use crate::namespace::within;
use crate::routes::{MARK, OWN_MARK};
use crate::sockopt::{set_mark, set_port_at_connect, set_transparent};
use crate::{Family, INBOUND_PORT, OUTBOUND_PORT};

/// Connections that may wait to be accepted. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// The most addresses of a namespace that are looked at.
const MAX_READ: usize = 1_024;

/// The addresses of a namespace.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The first of them, in their order.
    pub(super) addresses: Vec<IpAddr>,
    /// How many there are besides: a pod that may add some may add any number.
    pub(super) more: usize,
}

impl From<Vec<IpAddr>> for Found {
    fn from(mut addresses: Vec<IpAddr>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        let more = addresses.len().saturating_sub(MAX_READ);
        addresses.truncate(MAX_READ);
        Found { addresses, more }
    }
}

/// The addresses of a pod, without those that mean something else in every namespace, or on every link.
pub(super) fn addresses(netns: BorrowedFd<'_>) -> io::Result<Found> {
    let all = within(netns, if_addrs::get_if_addrs)??;
    let addresses = all.into_iter().map(|interface| interface.ip());
    let addresses: Vec<IpAddr> = addresses.filter(|address| !is_local(address)).collect();
    Ok(addresses.into())
}

/// Loopback and link-local addresses (RFC 4291, section 2.5.6), and groups, which no client connects to.
fn is_local(address: &IpAddr) -> bool {
    if address.is_multicast() || address.is_unspecified() {
        return true;
    }
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// The listeners of a pod: for what it dials, and for what arrives.
pub(super) fn listeners(netns: BorrowedFd<'_>) -> io::Result<(TcpListener, TcpListener)> {
    within(netns, || {
        let listener = |port: u16| {
            let listener = listener(port);
            listener.map_err(|error| {
                io::Error::new(error.kind(), format!("port {port} in the pod: {error}"))
            })
        };
        Ok((listener(OUTBOUND_PORT)?, listener(INBOUND_PORT)?))
    })?
}

/// One socket for both families, where there are both.
fn listener(port: u16) -> io::Result<TcpListener> {
    let (socket, any) = match stream(AddressFamily::INET6) {
        Ok(socket) => {
            set_ipv6_v6only(&socket, false)?;
            (socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        }
        Err(Errno::AFNOSUPPORT) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            (stream(AddressFamily::INET)?, any)
        }
        Err(error) => return Err(error.into()),
    };
    set_socket_reuseaddr(&socket, true)?;
    // For connections whose destination is no address of the pod's.
    set_transparent(&socket)?;
    bind(&socket, &any)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Resets what waits to be accepted, unread.
pub(super) fn turn_away(listener: &TcpListener) {
    // More cannot have waited. What comes meanwhile was on its way when the hooks still steered it.
    for _ in 0..BACKLOG {
        let Ok((connection, _)) = listener.accept() else {
            return;
        };
        // Without this the end of it would look like that of a server with nothing to say.
        let _closed_anyway = set_socket_linger(&connection, Some(Duration::ZERO));
    }
}

/// Whether an ordinary program of a namespace may speak with that address.
pub(super) fn is_of_namespace(netns: BorrowedFd<'_>, address: IpAddr) -> io::Result<bool> {
    within(netns, || {
        let socket = stream(match address {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        })?;
        // Only this says that it is not there: whatever else is in the way proves nothing.
        Ok(bind(&socket, &SocketAddr::from((address, 0))) != Err(Errno::ADDRNOTAVAIL))
    })?
}

/// A socket for reaching the pod's own programs. With a `source` it speaks with that address.
pub(super) fn open(
    netns: BorrowedFd<'_>,
    family: Family,
    source: Option<SocketAddr>,
) -> io::Result<OwnedFd> {
    within(netns, || {
        let socket = stream(match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        })?;
        if let Some(source) = source {
            set_transparent(&socket)?;
            // Answers to that address come back instead of leaving the pod.
            set_mark(&socket, MARK)?;
            set_socket_reuseaddr(&socket, true)?;
            if source.port() == 0 {
                set_port_at_connect(&socket)?;
            }
            bind(&socket, &source)?;
        } else {
            set_mark(&socket, OWN_MARK)?;
        }
        Ok(socket)
    })?
}

fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}
