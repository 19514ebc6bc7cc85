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

/// Keeps the headers of each connection's SYN until they are read, or the connection ends (`TCP_SAVE_SYN`): some hundred
/// bytes.
///
/// # Errors
/// When `listener` is no TCP socket.
pub fn keep_syn(listener: impl AsFd) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)
}

/// The traffic class of the SYN by which a connection began, as its client and the network had set it: six bits of DSCP,
/// and two of congestion notification (RFC 2474, RFC 8200 section 7). It can be read once (`TCP_SAVED_SYN`); later, and
/// where the listener [did not keep it](keep_syn), there is none.
///
/// # Errors
/// When `socket` is no TCP socket.
pub fn traffic_class_of_syn(socket: impl AsFd) -> io::Result<Option<u8>> {
    // More than the largest headers: 60 bytes of IPv4 or a few hundred of IPv6 with extensions, and 60 of TCP.
    let mut headers = [0u8; 512];
    let Ok(mut length) = libc::socklen_t::try_from(headers.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    #[allow(unsafe_code, reason = "the option has no other way")]
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the pointers are to two variables
    // of this function that nothing else refers to, and `length` is the size of the first, beyond which the
    // kernel does not write.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let length = usize::try_from(length).unwrap_or_default();
    match failed {
        0 => Ok(headers.get(..length).and_then(traffic_class)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The field of an IPv4 header (RFC 791 section 3.1) or of an IPv6 header (RFC 8200 section 3).
fn traffic_class(headers: &[u8]) -> Option<u8> {
    let [first, second, ..] = *headers else {
        return None;
    };
    match first >> 4 {
        4 => Some(second),
        6 => Some(first << 4 | second >> 4),
        _ => None,
    }
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
    fn the_traffic_class_of_a_syn_is_read_once() {
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let own: SocketAddr = own.parse().unwrap();
            let server = TcpListener::bind(own).unwrap();
            let at = server.local_addr().unwrap();
            let accepted = |class: u8| {
                let family = match Family::of(own) {
                    Family::V4 => rustix::net::AddressFamily::INET,
                    Family::V6 => rustix::net::AddressFamily::INET6,
                };
                let client = socket(family, SocketType::STREAM, None).unwrap();
                match Family::of(own) {
                    Family::V4 => rustix::net::sockopt::set_ip_tos(&client, class).unwrap(),
                    Family::V6 => {
                        rustix::net::sockopt::set_ipv6_tclass(&client, class.into()).unwrap();
                    }
                }
                connect(&client, &at).unwrap();
                server.accept().unwrap().0
            };
            assert_eq!(traffic_class_of_syn(accepted(4)).unwrap(), None);
            keep_syn(&server).unwrap();
            for class in [0, 4, 0xb8] {
                let socket = accepted(class);
                // Without the two bits of congestion notification, which the kernel may set.
                let dscp = traffic_class_of_syn(&socket)
                    .unwrap()
                    .map(|found| found >> 2);
                assert_eq!(dscp, Some(class >> 2), "{own}");
                assert_eq!(traffic_class_of_syn(&socket).unwrap(), None);
            }
        }
    }

    #[test]
    fn headers_that_are_none_have_no_class() {
        for headers in [&[][..], &[0x45], &[0x50, 4], &[0, 0, 0]] {
            assert_eq!(traffic_class(headers), None);
        }
        assert_eq!(traffic_class(&[0x45, 4, 0]), Some(4));
        assert_eq!(traffic_class(&[0x60, 0x40, 0]), Some(4));
    }

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
