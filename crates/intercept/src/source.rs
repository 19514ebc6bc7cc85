//! The source address of the proxy's connections to a pod's program: which client addresses it may use, and which
//! address it uses instead.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, getsockname, ipproto, socket_with,
};

use crate::Family;

/// The first unprivileged port. Old protocols trust a client on a lower port as root of its host (RFC 1282), so the
/// proxy must never use one for others.
const FIRST_PORT: u16 = 1_024;

/// Addresses that no host has: the IPv4 dummy address (RFC 7600, section 4.8), and one of the IPv6 discard prefix
/// (RFC 6666).
const DUMMY: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 0, 8),
    Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1),
);
/// Port for route lookups. Any port will do, since nothing is sent.
const DISCARD: u16 = 9;

/// Whether an address may be that of a client on another host. It must not be loopback or link-local (RFC 3927,
/// RFC 4291), which mean this host or this link, nor multicast or broadcast, nor an IPv4 address inside an IPv6
/// one, which must be given as IPv4.
pub fn is_of_another_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            // "This network" (RFC 1122, section 3.2.1.3), of which 0.0.0.0 is one.
            address.octets()[0] != 0
                && !address.is_loopback()
                && !address.is_link_local()
                && !address.is_multicast()
                && !address.is_broadcast()
        }
        // `to_ipv4` also matches `::` and `::1`.
        IpAddr::V6(address) => {
            address.to_ipv4().is_none()
                && !address.is_unicast_link_local()
                && !address.is_multicast()
        }
    }
}

/// The source address that the kernel chooses for connections of this node to the pod address `to`; `None` when the
/// node has no address of that family that is valid inside the pod.
pub fn node_address(to: IpAddr) -> Option<IpAddr> {
    let chosen = route_source(to).inspect_err(|error| {
        tracing::debug!(%to, %error, "this node has no address of that family");
    });
    let chosen = chosen.ok()?;
    // The kernel chose `to` itself: this process runs in the pod's own namespace.
    Some(chosen).filter(|chosen| *chosen != to && is_of_another_host(*chosen))
}

/// An address of the family of `to` that no host has. It is used when no better source address is known, so that a
/// program never takes the client for its own machine.
pub fn dummy_address(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(_) => DUMMY.0.into(),
        IpAddr::V6(_) => DUMMY.1.into(),
    }
}

/// The source address that the kernel chooses for `to`: connecting a UDP socket selects it without sending anything.
fn route_source(to: IpAddr) -> io::Result<IpAddr> {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    connect(&socket, &SocketAddr::new(to, DISCARD))?;
    Ok(SocketAddr::try_from(getsockname(&socket)?)?.ip())
}

/// Whether a socket in the namespace of a pod with the addresses `own` may use `source`: an address of another host,
/// with an unprivileged port, or port 0 for any.
pub(crate) fn may_speak_as(source: SocketAddr, family: Family, own: &[IpAddr]) -> bool {
    let port = source.port();
    Family::of(source) == family
        && (port == 0 || port >= FIRST_PORT)
        && is_of_another_host(source.ip())
        && !own.contains(&source.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_speaks_with_the_addresses_of_clients_and_no_others() {
        let own = ["10.1.0.2".parse().unwrap(), "fd10::2".parse().unwrap()];
        for (source, family, is_right) in [
            ("10.1.0.3:40000", Family::V4, true),
            ("10.1.0.3:0", Family::V4, true),
            ("203.0.113.7:1024", Family::V4, true),
            ("[fd10::3]:40000", Family::V6, true),
            ("[2001:db8::1]:0", Family::V6, true),
            ("10.1.0.3:1023", Family::V4, false),
            ("10.1.0.3:22", Family::V4, false),
            ("10.1.0.3:40000", Family::V6, false),
            ("[fd10::3]:40000", Family::V4, false),
            ("10.1.0.2:40000", Family::V4, false),
            ("[fd10::2]:40000", Family::V6, false),
            ("127.0.0.1:40000", Family::V4, false),
            ("127.8.0.1:0", Family::V4, false),
            ("0.0.0.0:40000", Family::V4, false),
            ("0.1.2.3:40000", Family::V4, false),
            ("169.254.0.1:40000", Family::V4, false),
            ("224.0.0.1:40000", Family::V4, false),
            ("239.255.255.255:40000", Family::V4, false),
            ("255.255.255.255:40000", Family::V4, false),
            ("[::]:40000", Family::V6, false),
            ("[::1]:40000", Family::V6, false),
            ("[::ffff:10.1.0.3]:40000", Family::V6, false),
            ("[::ffff:127.0.0.1]:40000", Family::V6, false),
            ("[::ffff:10.1.0.3]:40000", Family::V4, false),
            ("[fe80::1]:40000", Family::V6, false),
            ("[ff02::1]:40000", Family::V6, false),
        ] {
            let source: SocketAddr = source.parse().unwrap();
            assert_eq!(may_speak_as(source, family, &own), is_right, "{source}");
        }
    }

    #[test]
    fn a_node_is_seen_by_an_address_of_its_own_or_not_at_all() {
        // For these addresses this machine itself is the pod.
        for own in ["127.0.0.1", "127.30.0.9", "::1"] {
            assert_eq!(node_address(own.parse().unwrap()), None, "{own}");
        }
        for family in ["10.1.0.2", "fd10::2"] {
            let to: IpAddr = family.parse().unwrap();
            let dummy = dummy_address(to);
            assert!(is_of_another_host(dummy), "{dummy}");
            assert_eq!(dummy.is_ipv4(), to.is_ipv4());
            let node = node_address(to);
            assert!(node.is_none_or(is_of_another_host), "{node:?}");
        }
    }
}
