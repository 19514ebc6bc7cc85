//! Where a connection was going before it was steered to us.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};

/// Where the client of an accepted connection was going. It is asked for in one way, whether the kernel's
/// packet filter redirected the connection (`SO_ORIGINAL_DST` of netfilter) or our own programs did, which
/// answer the same question.
///
/// An IPv4 address comes as one, also from a socket that speaks both.
///
/// # Errors
/// When this connection was not redirected, or is not known any more.
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
