//! Tells the kernel, the network and the other end that a socket's packets may wait for those of others.

use std::os::fd::AsFd;

use heddle_intercept::sockopt::{keep_syn, set_priority, traffic_class_of_syn};
use heddle_model::Class;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{
    set_ip_tos, set_ipv6_tclass, set_socket_recv_buffer_size, set_socket_send_buffer_size,
    socket_domain,
};

/// The Lower-Effort Per-Hop Behavior in the field that IPv4 calls type of service, and IPv6 traffic class: code point
/// 000001, and two bits of congestion notification, which are the kernel's (RFC 8622 section 3).
const LOWER_EFFORT: u8 = 0b0000_0100;
/// `TC_PRIO_FILLER` (`linux/pkt_sched.h`): queues with bands send it last.
const FILLER: i32 = 1;
/// `TC_PRIO_BESTEFFORT`: that of a new socket.
const BEST_EFFORT: i32 = 0;

/// Makes what a new socket sends for an offline caller wait for what is sent for others, where anything on the way makes
/// a difference. Neither option needs a privilege, unlike a packet mark.
pub(crate) fn set_effort(socket: impl AsFd, class: Class) {
    if class == Class::Offline {
        follow_effort(socket, class);
    }
}

/// As [`set_effort`], for a socket that has been used for callers of either class.
pub(crate) fn follow_effort(socket: impl AsFd, class: Class) {
    let (field, priority) = match class {
        Class::Online => (0, BEST_EFFORT),
        Class::Offline => (LOWER_EFFORT, FILLER),
    };
    let socket = socket.as_fd();
    let of_network = match socket_domain(socket) {
        Ok(AddressFamily::INET6) => set_ipv6_tclass(socket, field.into()),
        _ => set_ip_tos(socket, field),
    };
    // The field for the network sets a priority of its own: this comes after it.
    let of_kernel = set_priority(socket, priority);
    if let Err(error) = of_network.map_err(std::io::Error::from).and(of_kernel) {
        tracing::debug!(%error, "a socket cannot be given the class of its caller");
    }
}

/// Limit of what an offline caller's connection within this node has under way in each direction, in bytes (the kernel
/// doubles it for its own bookkeeping).
const UNDER_WAY: usize = 64 << 10;

/// Limits how much is under way on a connection within this node, for an offline caller.
///
/// The kernel delivers what is sent within a node at once, in the time of the sending thread or of whichever thread it
/// interrupts, and no scheduler holds that back. With megabytes under way on each connection it takes milliseconds at a
/// time, during which online callers' threads wait. Within a node 64 KiB lose little throughput; between nodes the
/// kernel's own limits stay, since a connection needs as much as its round trip takes. A connection that becomes an online
/// caller's keeps the limit: the kernel sizes a buffer no more once its size was set.
pub(crate) fn limit_under_way(socket: impl AsFd, class: Class) {
    if class == Class::Online {
        return;
    }
    let socket = socket.as_fd();
    let sent = set_socket_send_buffer_size(socket, UNDER_WAY);
    if let Err(error) = sent.and(set_socket_recv_buffer_size(socket, UNDER_WAY)) {
        tracing::debug!(%error, "what is under way for an offline caller cannot be limited");
    }
}

/// Makes [`is_lower_effort`] work for the connections of a listener.
pub(crate) fn tell_effort(listener: impl AsFd) {
    if let Err(error) = keep_syn(listener) {
        tracing::debug!(%error, "connections of offline callers cannot be told apart before their handshake");
    }
}

/// Whether a connection was opened [for an offline caller](set_effort), by its SYN: before anything is read from it. Works
/// once.
pub(crate) fn is_lower_effort(socket: impl AsFd) -> bool {
    let class = traffic_class_of_syn(socket);
    class.is_ok_and(|class| class.is_some_and(|class| class >> 2 == LOWER_EFFORT >> 2))
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{
        ip_tos, ipv6_tclass, socket_recv_buffer_size, socket_send_buffer_size,
    };
    use rustix::net::{SocketType, socket};

    use super::*;

    #[test]
    fn what_is_sent_for_offline_callers_is_lower_effort() {
        let v4 = |class| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_effort(&socket, class);
            let set = ip_tos(&socket).unwrap();
            follow_effort(&socket, Class::Online);
            assert_eq!(ip_tos(&socket).unwrap(), 0);
            set
        };
        let v6 = |class| {
            let socket = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
            set_effort(&socket, class);
            ipv6_tclass(&socket).unwrap()
        };
        assert_eq!((v4(Class::Online), v6(Class::Online)), (0, 0));
        assert_eq!((v4(Class::Offline) >> 2, v6(Class::Offline) >> 2), (1, 1));
    }

    #[test]
    fn what_is_under_way_is_limited_for_offline_callers_alone() {
        let sizes = |class| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            let before = [
                socket_send_buffer_size(&socket).unwrap(),
                socket_recv_buffer_size(&socket).unwrap(),
            ];
            limit_under_way(&socket, class);
            let after = [
                socket_send_buffer_size(&socket).unwrap(),
                socket_recv_buffer_size(&socket).unwrap(),
            ];
            (before, after)
        };
        let (before, after) = sizes(Class::Online);
        assert_eq!(before, after);
        assert_eq!(sizes(Class::Offline).1, [2 * UNDER_WAY; 2]);
    }
}
