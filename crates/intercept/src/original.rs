//! The original destination of a steered connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};

/// The destination to which the client of an accepted connection was connecting (`SO_ORIGINAL_DST`). The same socket
/// option works whether the packet filter redirected the connection or our BPF programs did, which implement it too.
///
/// An IPv4 destination is returned as IPv4, also on a dual-stack socket.
///
/// # Errors
/// When this connection was not redirected, or its destination is no longer known.
pub fn original_destination(socket: impl AsFd) -> io::Result<SocketAddr> {
    let socket = socket.as_fd();
    let local = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let original: SocketAddr = match local.ip().to_canonical() {
        IpAddr::V4(_) => ip_original_dst(socket)?.into(),
        IpAddr::V6(_) => ipv6_original_dst(socket)?.into(),
    };
    Ok(SocketAddr::new(
        original.ip().to_canonical(),
        original.port(),
    ))
}
