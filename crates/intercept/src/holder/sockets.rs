//! Sockets and addresses in a pod's namespace.

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

/// Backlog of the listeners. The kernel reduces it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Limit of addresses of a namespace that are examined.
const MAX_READ: usize = 1_024;

/// The addresses of a namespace.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The first [`MAX_READ`] addresses, sorted.
    pub(super) addresses: Vec<IpAddr>,
    /// Number of further addresses: a pod that can add addresses can add any number.
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

/// The addresses of a pod, without loopback and link-local ones, which are not unique.
pub(super) fn addresses(netns: BorrowedFd<'_>) -> io::Result<Found> {
    let all = within(netns, if_addrs::get_if_addrs)??;
    let addresses = all.into_iter().map(|interface| interface.ip());
    let addresses: Vec<IpAddr> = addresses.filter(|address| !is_local(address)).collect();
    Ok(addresses.into())
}

/// Whether it is a loopback or link-local address (RFC 4291, section 2.5.6), or a multicast or unspecified one, to
/// which no client connects.
fn is_local(address: &IpAddr) -> bool {
    if address.is_multicast() || address.is_unspecified() {
        return true;
    }
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// Makes the listeners of a pod, for outbound and for inbound connections.
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

/// Makes a dual-stack listener, or an IPv4 one where there is no IPv6.
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
    // To accept connections whose destination is not an address of the pod.
    set_transparent(&socket)?;
    bind(&socket, &any)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Resets the connections in the backlog of a listener, without reading from them.
pub(super) fn turn_away(listener: &TcpListener) {
    // The backlog cannot have held more. Connections that arrive meanwhile were steered before the hooks changed.
    for _ in 0..BACKLOG {
        let Ok((connection, _)) = listener.accept() else {
            return;
        };
        // Send a reset: a normal close would look like a server that ends the connection without data.
        let _closed_anyway = set_socket_linger(&connection, Some(Duration::ZERO));
    }
}

/// Whether an address belongs to a namespace, so that an ordinary program there could bind to it.
pub(super) fn is_of_namespace(netns: BorrowedFd<'_>, address: IpAddr) -> io::Result<bool> {
    within(netns, || {
        let socket = stream(match address {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        })?;
        // Only EADDRNOTAVAIL proves that the address is missing; other errors prove nothing.
        Ok(bind(&socket, &SocketAddr::from((address, 0))) != Err(Errno::ADDRNOTAVAIL))
    })?
}

/// Makes a socket for connections to the pod's own programs, bound to `source` if given.
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
            // Replies to that address come back to this socket instead of leaving the pod.
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
