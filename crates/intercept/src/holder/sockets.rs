//! Sockets in a pod's namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::within;
use crate::routes::MARK;
use crate::{Family, INBOUND_PORT, OUTBOUND_PORT};

/// Connections that may wait to be accepted. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// The addresses of a pod, without those that only it can reach itself.
pub(super) fn addresses(netns: BorrowedFd<'_>) -> io::Result<Vec<IpAddr>> {
    let all = within(netns, if_addrs::get_if_addrs)??;
    let addresses = all.into_iter().map(|interface| interface.ip());
    let mut addresses: Vec<IpAddr> = addresses.filter(|address| !is_local(address)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Loopback and link-local addresses (RFC 4291, section 2.5.6).
fn is_local(address: &IpAddr) -> bool {
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
    let stream = Type::STREAM.nonblocking().cloexec();
    let (socket, any) = match Socket::new(Domain::IPV6, stream, Some(Protocol::TCP)) {
        Ok(socket) => {
            socket.set_only_v6(false)?;
            (socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {
            let socket = Socket::new(Domain::IPV4, stream, Some(Protocol::TCP))?;
            (socket, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        Err(error) => return Err(error),
    };
    socket.set_reuse_address(true)?;
    // For connections whose destination is no address of the pod's.
    socket.set_ip_transparent_v4(true)?;
    socket.bind(&any.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A socket for reaching the pod's own programs. With a `source` it speaks with that address, which is
/// another host's.
pub(super) fn open(
    netns: BorrowedFd<'_>,
    family: Family,
    source: Option<SocketAddr>,
) -> io::Result<OwnedFd> {
    within(netns, || {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let stream = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, stream, Some(Protocol::TCP))?;
        if let Some(source) = source {
            socket.set_ip_transparent_v4(true)?;
            // Answers to that address come back instead of leaving the pod.
            socket.set_mark(MARK)?;
            socket.set_reuse_address(true)?;
            socket.bind(&source.into())?;
        }
        Ok(socket.into())
    })?
}
