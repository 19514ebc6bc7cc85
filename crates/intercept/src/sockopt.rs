//! Socket options that none of the used crates offers.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The cookie of a socket's network namespace, unique until the machine reboots (`SO_NETNS_COOKIE`).
///
/// # Errors
/// When the kernel does not support this option, or `socket` is not a socket.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let size = size_of::<u64>();
    let Ok(mut length) = libc::socklen_t::try_from(size) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    #[allow(unsafe_code, reason = "the option has no other way")]
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the pointers are to two variables
    // of this function that nothing else refers to, and `length` is the size of the first, beyond which the
    // kernel does not write.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match failed {
        0 if usize::try_from(length) == Ok(size) => Ok(cookie),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a socket bind to addresses that are not local (`IP_TRANSPARENT`). On an IPv6 socket this applies to
/// both families.
///
/// # Errors
/// Without CAP_NET_ADMIN in the socket's namespace.
pub fn set_transparent(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    let is_v6 = rustix::net::sockopt::socket_domain(socket)? == rustix::net::AddressFamily::INET6;
    if is_v6 {
        set(socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)?;
    }
    set(socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)
}

/// Defers the choice of the port from bind to connect (`IP_BIND_ADDRESS_NO_PORT`): only then does the kernel know
/// which ports are free for this destination. A port chosen at bind is taken for all destinations of its address, and
/// stays so for a while after the connection is closed.
///
/// # Errors
/// When `socket` is not an IP socket.
pub fn set_port_at_connect(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Marks the packets that a socket sends, for routing rules and the packet filter (`SO_MARK`).
///
/// # Errors
/// Without CAP_NET_ADMIN in the socket's namespace.
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// The priority of the packets that a socket sends, within this machine (`SO_PRIORITY`, socket(7)).
///
/// # Errors
/// Without CAP_NET_ADMIN for priorities other than 0 to 6.
pub fn set_priority(socket: impl AsFd, priority: i32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
}

/// Makes a Unix socket refuse messages with descriptors (`SO_PASSRIGHTS`, unix(7)).
///
/// # Errors
/// Before Linux 6.16.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    /// `asm-generic/socket.h`.
    const SO_PASSRIGHTS: i32 = 83;
    set(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, 0)
}

fn set(socket: impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let Ok(length) = libc::socklen_t::try_from(size_of::<i32>()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    #[allow(unsafe_code, reason = "these options have no other way")]
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the pointer is to a variable of this
    // function, which the kernel reads and whose size is `length`.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use rustix::net::{SocketType, bind, connect, getsockname, socket};

    use super::*;
    use crate::Family;

    #[test]
    fn a_port_is_chosen_when_its_socket_connects() {
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let own: SocketAddr = own.parse().unwrap();
            let server = TcpListener::bind(own).unwrap();
            let family = match Family::of(own) {
                Family::V4 => rustix::net::AddressFamily::INET,
                Family::V6 => rustix::net::AddressFamily::INET6,
            };
            let client = socket(family, SocketType::STREAM, None).unwrap();
            set_port_at_connect(&client).unwrap();
            bind(&client, &own).unwrap();
            let port = || SocketAddr::try_from(getsockname(&client).unwrap()).map(|at| at.port());
            assert_eq!(port(), Ok(0));
            connect(&client, &server.local_addr().unwrap()).unwrap();
            assert_ne!(port(), Ok(0));
        }
    }
}
